"""Rows of the GPU benchmark: each is written at once, and a later run goes on behind them."""

import json

import pytest

from deploykit.transforms.common.errors import GraphError
from tests.benchmarks import gpu
from tests.benchmarks.gpu import Row, known, measured, rows
from tests.benchmarks.gpu_page import page
from tests.support import Containing


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Measure rows that take no time, and return what the file of rows has then."""
    calls = []

    def refuse():
        raise GraphError("no kernel for a GPU")

    def measure():
        calls.append(1)
        return {"fed p50 ms": 1.25, "computed in": "tf32"}

    given = [Row("a", measure), Row("b", measure, needs_gpu=False), Row("c", refuse)]
    path = tmp_path / "gpu.jsonl"

    def run(gpus=(), minutes=9.0, resume=False):
        monkeypatch.setattr(gpu, "visible_gpus", lambda: list(gpus))
        monkeypatch.setattr(gpu, "gpu_refusal", lambda: "there is no driver")
        monkeypatch.setattr(gpu, "rows", lambda *_: iter(given))
        calls.clear()
        measured(minutes, path, 1.0, resume)
        found = [json.loads(line) for line in path.read_text().splitlines()]
        return [(row["name"], row["status"]) for row in found], len(calls)

    run.path = path
    return run


def test_without_a_gpu_it_is_said_which_rows_were_not_run(run, capsys):
    assert run() == ([("a", "not run"), ("b", "measured"), ("c", "not run")], 1)
    said = capsys.readouterr().out
    assert said == Containing("GPUs", "no driver)")
    assert said == Containing("a: not run", "no GPU")
    assert said == Containing("b: fed p50 ms 1.25", "tf32")
    text = run.path.with_suffix(".md").read_text()
    assert text == Containing("* a; c:", "no driver")
    assert text == Containing("| b, on the CPU |", "p50 ms 1.25", "tf32 |")


def test_a_later_run_measures_what_is_missing(run):
    run()
    statuses, count = run(["H200"], resume=True)
    assert statuses[3:] == [("a", "measured"), ("c", "refused")]
    assert count == 1
    assert run(["H200"], resume=True) == (statuses, 0)
    found = known(run.path)
    assert [row["status"] for row in found.values()] == ["measured", "measured", "refused"]
    assert run(["H200"])[0] == [("a", "measured"), ("b", "measured"), ("c", "refused")]


def test_no_row_is_begun_after_the_time(run, capsys):
    assert run(["H200"], minutes=0.0) == ([], 0)
    assert capsys.readouterr().out == Containing("3 rows", "0 minutes", "--resume")


def test_a_row_that_was_cut_short_is_measured_again(run):
    run(["H200"])
    run.path.write_text(run.path.read_text()[:-20])
    assert list(known(run.path)) == ["a", "b"]
    run.path.write_text("no row\n" + run.path.read_text())
    with pytest.raises(SystemExit, match=r"gpu.jsonl, line 1: this is no row"):
        known(run.path)


def test_all_that_is_asked_for_is_among_the_rows(tmp_path):
    names = [row.name for row in rows(["H200"], tmp_path, 1.0)]
    assert len(set(names)) == len(names)
    for model in ("lite0", "resnet50"):
        for kind in ("tf32", "fp32", "fp16", "bf16", "xla"):
            for batch in (1, 8, 32, 128, 256):
                assert f"{model}, {kind}, batch {batch}" in names
    assert {"input styles", "tf.data for long", "two towers", "8 bits"} < set(names)
    on_cpu = [row.name for row in rows([], tmp_path, 1.0) if not row.needs_gpu]
    assert "two towers" in on_cpu
    assert "lite0, tf32, batch 1" not in on_cpu


def test_a_page_of_nothing_says_so():
    assert "GPU: none" in page([])
