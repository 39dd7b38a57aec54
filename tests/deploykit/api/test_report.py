"""A page of a folder, of files, of values and of their documents; and what is none of these."""

import json
from dataclasses import dataclass

import pytest

import deploykit
from deploykit.transforms.common.errors import FileError, GraphError
from tests.deploykit.reporting.page.reading import read
from tests.deploykit.reporting.page.samples import KINDS, ship
from tests.support import Containing, raises, says


def leaf(path: str) -> float:
    return 0.25


@dataclass
class Found:
    """A value as functions of deploykit return them; a graph has one as its `report`."""

    kind: str

    def document(self):
        return KINDS[self.kind](leaf)


@dataclass
class Made:
    report: Found


@pytest.fixture
def folder(tmp_path):
    shipped = tmp_path / "shapes.ship"
    shipped.mkdir()
    (shipped / "report.json").write_text(json.dumps(ship(leaf)))
    (tmp_path / "result.json").write_text(json.dumps(KINDS["verify"](leaf)))
    return tmp_path


@pytest.mark.slow
def test_the_page_of_a_shipped_model_is_written(folder):
    page = deploykit.report(folder / "shapes.ship", folder / "report.html")
    assert (folder / "report.html").read_text() == page.html
    assert page.kinds == ("ship",)
    assert page.files == (str(folder / "shapes.ship" / "report.json"),)
    assert "0.25" in read(page.html).text


def test_files_values_and_documents_are_one_page(folder):
    several = [folder / "result.json", Found("tuned"), Made(Found("quantize")),
               KINDS["load-test"](leaf)]  # fmt: skip
    page = deploykit.report(several)
    assert page.kinds == ("verify", "tuned", "quantize", "load-test")
    assert read(page.html).tags["article"] == 4
    assert page.output is None


def test_a_notebook_shows_the_page_in_a_frame_of_its_own(folder):
    page = deploykit.report(folder / "result.json")
    frame = page._repr_html_()
    assert frame.count("<") == 1 + frame.count("</iframe>")
    assert "<iframe sandbox" in frame


@pytest.mark.parametrize(
    ("results", "error", "said"),
    [
        ([], GraphError, says("report-needs-results")),
        (3, GraphError, says("report-type-unsupported", kind="int")),
        ([{"kind": {1, 2}}], GraphError, says("document-not-plain")),
        (
            "nothing.json",
            FileError,
            says("file-error", reason=Containing("No such file"), source="nothing.json"),
        ),
        ("empty", FileError, says("not-found", source="empty/report.json")),
        ("words.json", GraphError, says("json-expected", source="words.json")),
        ("list.json", GraphError, says("document-not-object", source="list.json")),
        (
            "old.json",
            GraphError,
            says("document-format", source="old.json", what="format", got=0, known=1),
        ),
        (
            ["result.json", "old.json"],
            GraphError,
            says("document-format", source="old.json", what="format", got=0),
        ),
    ],
    ids=str,
)
def test_what_is_no_result_writes_nothing(folder, monkeypatch, results, error, said):
    monkeypatch.chdir(folder)
    (folder / "empty").mkdir()
    (folder / "words.json").write_text("words")
    (folder / "list.json").write_text("[]")
    (folder / "old.json").write_text(json.dumps({"kind": "tuned", "format": 0}))
    with pytest.raises(error, match=said):
        deploykit.report(results, "page.html")
    assert not (folder / "page.html").exists()


@pytest.mark.parametrize("output", ["result.json", "there.html"])
def test_no_file_is_written_in_the_place_of_another(folder, monkeypatch, output):
    monkeypatch.chdir(folder)
    (folder / "there.html").write_text("mine")
    before = (folder / output).read_bytes()
    with pytest.raises(FileError, match=output):
        deploykit.report("result.json", output)
    assert (folder / output).read_bytes() == before
    with raises(FileError, "output-is-input"):
        deploykit.report("result.json", "result.json", force=True)
    assert deploykit.report("result.json", "there.html", force=True).output == "there.html"
