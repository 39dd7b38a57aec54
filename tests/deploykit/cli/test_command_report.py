"""The page of a folder or of results, from the command line."""

import json
import re

import pytest

from tests.deploykit.reporting.page.reading import read
from tests.deploykit.reporting.page.samples import KINDS, ship
from tests.support import says


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shapes.ship").mkdir()
    (tmp_path / "shapes.ship" / "report.json").write_text(json.dumps(ship(lambda path: 0.25)))
    for kind in ("verify", "tuned"):
        (tmp_path / f"{kind}.json").write_text(json.dumps(KINDS[kind](lambda path: 0.25)))
    return tmp_path


@pytest.mark.sampled
def test_a_page_lies_in_the_folder_that_it_shows(deploykit, here):
    found = deploykit("report", "shapes.ship")
    assert found.status == 0, found.stderr
    page = (here / "shapes.ship" / "report.html").read_text()
    assert f"shapes.ship/report.html: ship, {len(page.encode()) / 1000:.3g} kB" in found.stdout
    read(page)
    assert deploykit("report", "shapes.ship").status == 4
    assert deploykit("report", "shapes.ship", "--force").status == 0


def test_a_page_lies_beside_the_result_that_it_shows(deploykit, here):
    found = deploykit("report", "tuned.json", "verify.json", "--json")
    assert found.status == 0, found.stderr
    assert found.document["output_file"] == "tuned.html"
    assert found.document["kinds"] == ["tuned", "verify"]
    assert found.document["files"] == ["tuned.json", "verify.json"]
    assert found.document["bytes_out"] == (here / "tuned.html").stat().st_size


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ([], 2, re.escape("Missing argument")),
        (["nothing.json"], 4, re.escape("nothing.json: No such file")),
        (["."], 4, says("not-found", source="report.json")),
        (
            ["shapes.ship/report.json", "-o", "shapes.ship/report.json", "--force"],
            4,
            says("output-is-input"),
        ),
        (["verify.json", "-o", "no/page.html"], 4, says("folder-missing", folder="no")),
        (["kind.json"], 2, says("report-kind-unknown", source="kind.json")),
    ],
    ids=str,
)
def test_errors_are_one_sentence_with_their_status(deploykit, here, arguments, status, said):
    (here / "kind.json").write_text('{"kind": "x", "format": 1}')
    found = deploykit("report", *arguments)
    assert found.status == status
    assert re.search(said, found.stderr)
    assert len(found.stderr.splitlines()) == 1
    assert not list(here.rglob("*.html"))
