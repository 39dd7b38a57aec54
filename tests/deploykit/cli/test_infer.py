"""infer as a user calls it: a model, files of data, and a folder of answers."""

import csv
import json
import re

import numpy as np
import pytest

from deploykit.transforms.common.errors import GraphError
from tests.deploykit.batch_inference.tiny_models import scores_of, tiny_model
from tests.support import Containing, because, says, shows

LABELS = "alpha\nbeta\ngamma\n"


@pytest.fixture
def work(tmp_path):
    """Return a model and data for it."""
    rows = np.random.default_rng(3).normal(size=(50, 4)).astype(np.float32)
    np.savez(tmp_path / "rows.npz", x=rows)
    (tmp_path / "tiny.pb").write_bytes(tiny_model().SerializeToString())
    (tmp_path / "labels.txt").write_text(LABELS)
    return tmp_path / "tiny.pb", tmp_path / "rows.npz", rows


@pytest.mark.sampled
def test_what_is_written_is_said_and_is_there(deploykit, work, tmp_path):
    model, data, rows = work
    found = deploykit("infer", model, data, tmp_path / "out", "--processes", 1, "--format", "npz")
    assert found.status == 0
    assert "scores: float32 [3]" in found.stdout
    path = f"{tmp_path}/out/rows.index.json"
    assert shows(found.stdout, "rows-written", path=path, rows="50 rows", parts="1 part")
    assert found.stderr == Containing("x: float32 4 ", "rows.npz")
    with np.load(tmp_path / "out" / "rows-00000-of-00001.npz") as part:
        np.testing.assert_allclose(part["scores"], scores_of(rows), rtol=1e-6)


@pytest.mark.sampled
def test_best_classes_of_a_table(deploykit, work, tmp_path):
    model, data, rows = work
    options = ["--top", 2, "--labels", tmp_path / "labels.txt", "--format", "csv", "--name", "best"]
    found = deploykit("infer", model, data, tmp_path / "out", *options, "--json")
    assert found.status == 0, found.stderr
    assert found.document["rows"] == 50
    assert found.document["inputs"] == ["x"]
    assert found.document["outputs"] == ["scores"]
    assert found.document["run"]["scheduler"] == "local"
    with open(tmp_path / "out" / "best-00000-of-00001.csv", newline="") as file:
        table = list(csv.DictReader(file))
    best = np.argsort(-scores_of(rows), axis=1)[:, :2]
    assert [[int(row["top_classes[0]"]), int(row["top_classes[1]"])] for row in table] == (
        best.tolist()
    )
    names = LABELS.split()
    assert [row["top_labels[0]"] for row in table] == [names[first] for first, _ in best]


@pytest.mark.sampled
def test_other_data_are_refused_unless_forced(deploykit, work, tmp_path):
    model, data, rows = work
    out = tmp_path / "out"
    assert deploykit("infer", model, data, out).status == 0
    again = deploykit("infer", model, data, out)
    assert again.status == 0
    assert because("nothing-left") in again.stdout
    np.savez(data, x=rows[:20])
    refused = deploykit("infer", model, data, out)
    assert refused.status == 4
    assert shows(refused.stderr, "results-exist")
    assert "--force" in refused.stderr
    assert deploykit("infer", model, data, out, "--force").status == 0
    assert json.loads((out / "rows.index.json").read_text())["rows"] == 20


@pytest.mark.sampled
def test_a_bad_row_ends_the_run_or_is_left_out_and_named(deploykit, work, tmp_path):
    model, _, rows = work
    (tmp_path / "table").mkdir()
    lines = [",".join(map(str, row)) for row in rows]
    lines[7] = "1,2,three,4"
    (tmp_path / "table" / "a.csv").write_text("\n".join(lines) + "\n")
    how = ["--preprocess", '{"format": 1, "columns": {"x": [0, 4]}}']
    stopped = deploykit("infer", model, tmp_path / "table", tmp_path / "out", *how)
    assert stopped.status == 2
    assert shows(stopped.stderr, "item-failed", reason=Containing("a.csv: line 8: "))
    assert not list((tmp_path / "out").glob("*.json"))
    how += ["--on-error", "skip"]
    found = deploykit("infer", model, tmp_path / "table", tmp_path / "out", *how)
    assert found.status == 0, found.stderr
    assert deploykit("infer", model, tmp_path / "table", tmp_path / "out", *how, "--json").document
    skipped = because("rows-skipped", count=1)
    assert f"{skipped}\n  a.csv: line 8: " in found.stdout
    index = json.loads((tmp_path / "out" / "table.index.json").read_text())
    assert (index["rows"], [each["row"] for each in index["skipped"]]) == (49, [8])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--address", "local"], says("option-needs", option="address")),
        (["--labels", "labels.txt"], says("option-needs")),
        (["--scheduler", "spark"], says("not-one-of", got="spark")),
        (["--outputs", "nothing"], re.escape("nothing")),
        (["--scheduler", "ray", "--address", "here"], says("unexpected", got="here")),
        (["--scheduler", "ray", "--address", "ray://h:10001"], says("ray-client-address")),
    ],
)
def test_what_contradicts_itself_is_refused_before_anything_is_done(
    deploykit, work, tmp_path, options, said
):
    model, data, _ = work
    found = deploykit("infer", model, data, tmp_path / "out", *options)
    assert found.status == GraphError.exit_status
    assert re.search(said, found.stderr)
    assert not (tmp_path / "out").exists()


def test_columns_of_a_table(deploykit, work, tmp_path):
    model, _, rows = work
    path = tmp_path / "table.jsonl"
    path.write_text(
        "".join(
            json.dumps({"id": f"r{n}", "values": list(map(float, row))}) + "\n"
            for n, row in enumerate(rows)
        )
    )
    options = ["--columns", "x=values", "--keep-columns", "id", "--format", "jsonl"]
    found = deploykit("infer", model, path, tmp_path / "out", *options, "--engine", "processes")
    assert found.status == 0, found.stderr
    (part,) = (tmp_path / "out").glob("*.jsonl")
    records = [json.loads(line) for line in part.read_text().splitlines()]
    assert [record["id"] for record in records] == [f"r{n}" for n in range(len(rows))]
    scores = [record["scores"] for record in records]
    np.testing.assert_allclose(scores, scores_of(rows), rtol=1e-5)
    wrong = deploykit("infer", model, path, tmp_path / "no", "--columns", "x=id")
    assert wrong.status == GraphError.exit_status
    assert shows(wrong.stderr, "column-type", name="id", got="string", expected="float32 [?, 4]")
    assert shows(deploykit("infer", model, path, tmp_path / "no", "--columns", "x=value").stderr,
                 "unknown-name", kind="column", name="value")  # fmt: skip
