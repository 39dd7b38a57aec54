"""What is told of results, to people and to programs."""

import json

import pytest

from deploykit.batch_inference.infer_run import Inferred, InferRun
from deploykit.rendering.formatters.data import inferred_lines as lines
from tests.deploykit.batch_inference.made_up_results import made_of, run
from tests.support import Containing


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
        "rows skipped: 1",
        "  1.jpg: no é JPEG \udcff",
        Containing("out/photos.index.json", "11", "4", f"{index['bytes'] / 1000:.2f} kB", "1"),
        Containing("2.00 rows/s", "2", "local", "1.90 CPUs", "0:04"),
        Containing("1 worker"),
    ]


@pytest.mark.parametrize("count", [0, 1, 5, 6, 12_345])
def test_at_most_five_rows_are_named_and_the_rest_counted(index, count):
    bad = [{"file": "a.csv", "row": row, "reason": "no number"} for row in range(count)]
    data = {**index["data"], "kind": "csv"}
    found = Inferred("p", {**index, "skipped": bad, "data": data}, InferRun("ray"))
    said = [line for line in lines(found) if "a.csv" in line or "skipped" in line]
    more = [line for line in lines(found) if "more" in line]
    assert len(said) == min(count, 5) + bool(count)
    assert more == ([Containing(f" {count - 5:,} more")] if count > 5 else [])
    assert found.skipped == bad
    if count:
        assert said[1] == "  a.csv: line 0: no number"


def test_a_run_that_did_nothing_says_so(index):
    found = Inferred("p", index, InferRun("local", kept=4))
    assert list(lines(found))[-2] == Containing("(4 ")
    assert list(lines(found))[-1] == Containing("nothing")
    assert found.document()["run"]["rows_per_second"] is None


def test_a_run_that_was_too_short_to_tell_its_rate_says_what_it_did(index):
    found = Inferred("p", index, InferRun("local", 1, 11, seconds=3.0))
    assert list(lines(found))[-1] == Containing("11 rows", "1 worker (local)", "0:03")


def test_a_program_is_told_all_of_it(index):
    document = Inferred("p", index, InferRun("ray", 3, 11, 0, 0, 2.0, 5.5, 3.0)).document()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["run"]["rows_per_second"] == 5.5
    assert document["run"]["cpus"] == 3.0
    assert document["options"] == made_of().options
    assert (document["rows"], len(document["shards"]), len(document["skipped"])) == (11, 4, 1)
    assert not {"seconds", "inputs", "outputs", "command", "schema"} & document.keys()
