"""What is told of results, to people and to programs."""

import json

import pytest

from deploykit.batch_inference.infer_run import Inferred, InferRun
from deploykit.rendering.formatters.data import inferred_lines as lines
from tests.deploykit.batch_inference.made_up_results import made_of, run
from tests.support import Containing, because, shows


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    found, _ = run(tmp_path_factory.mktemp("out"), skipped=(2,))
    return found


def test_a_run_is_told_in_lines(index):
    run_ = InferRun("local", 2, 9, 1, 1, seconds=4.5, rows_per_second=2.0, cpus=1.9)
    assert list(lines(Inferred("out/photos.index.json", index, run_))) == [
        "file: string []",
        "row: int64 []",
        "scores: float32 [2]",
        because("rows-skipped", count=1),
        "  1.jpg: no é JPEG \udcff",
        Containing("out/photos.index.json", "11", "4", f"{index['bytes'] / 1000:.2f} kB", "1"),
        Containing("2.00 rows/s", "2", "local", "1.90 CPUs", "0:04"),
        because("workers-lost", workers="1 worker"),
    ]


@pytest.mark.parametrize("count", [0, 1, 5, 6, 12_345])
def test_at_most_five_rows_are_named_and_the_rest_counted(index, count):
    bad = [{"file": "a.csv", "row": row, "reason": "no number"} for row in range(count)]
    data = {**index["data"], "kind": "csv"}
    found = Inferred("p", {**index, "skipped": bad, "data": data}, InferRun("ray"))
    said = list(lines(found))
    assert [line for line in said if shows(line, "rows-skipped-more")] == (
        [because("rows-skipped-more", count=f"{count - 5:,}")] if count > 5 else []
    )
    assert found.skipped == bad
    start = said.index(because("rows-skipped", count=f"{count:,}")) + 1 if count else 0
    rows = [f"  a.csv: line {row}: no number" for row in range(min(count, 5))]
    assert [line for line in said if "a.csv" in line] == said[start : start + len(rows)] == rows


def test_a_run_that_did_nothing_says_so(index):
    found = Inferred("p", index, InferRun("local", kept=4))
    assert list(lines(found))[-2] == Containing("(4 ")
    assert list(lines(found))[-1] == because("nothing-left")
    assert found.document()["run"]["rows_per_second"] is None


def test_a_run_that_was_too_short_to_tell_its_rate_says_what_it_did(index):
    found = Inferred("p", index, InferRun("local", 1, 11, seconds=3.0))
    assert list(lines(found))[-1] == Containing("11 ", " 1 ", "(local)", "0:03")


def test_a_program_is_told_all_of_it(index):
    document = Inferred("p", index, InferRun("ray", 3, 11, 0, 0, 2.0, 5.5, 3.0)).document()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["run"]["rows_per_second"] == 5.5
    assert document["run"]["cpus"] == 3.0
    assert document["options"] == made_of().options
    assert (document["rows"], len(document["shards"]), len(document["skipped"])) == (11, 4, 1)
    assert not {"seconds", "inputs", "outputs", "command", "schema"} & document.keys()
