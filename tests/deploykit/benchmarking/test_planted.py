"""A difference that is planted is found by the made-up time of calls; real processes take turns."""

from pathlib import Path

import pytest

import deploykit as api
from deploykit.transforms.ir.protos import GraphDef
from tests.benchmarks.judge import chain
from tests.deploykit.benchmarking.made_up_process import take_made_up_processes


def compared(seconds, **lengths):
    found = api.benchmark({name: chain(n) for name, n in lengths.items()}, seconds=seconds)
    (comparison,) = found.document()["comparisons"]
    assert (comparison["a"], comparison["b"]) == tuple(lengths)
    return found, comparison


def fifth_of_a_millisecond_each(job):
    """Return the time of a call of a model, by the number of its convolutions."""
    graph = GraphDef.FromString(Path(job.model).read_bytes())
    return 0.0002 * sum(node.op == "Conv2D" for node in graph.node)


@pytest.mark.sampled
@pytest.mark.parametrize("lengths", [(10, 30), (30, 10), (10, 10)])
def test_three_times_the_work_is_slower(monkeypatch, lengths):
    take_made_up_processes(monkeypatch, fifth_of_a_millisecond_each)
    _, comparison = compared(4, a=lengths[0], b=lengths[1])
    assert comparison["significant"] == (lengths[0] != lengths[1])
    for figure in ("ratio", "cpu_ratio"):
        assert comparison[figure]["value"] == pytest.approx(lengths[0] / lengths[1], rel=0.01)


@pytest.mark.sampled
def test_real_processes_take_turns_and_are_compared():
    found, comparison = compared(1.5, short=10, long=30)
    ratio = comparison["ratio"]
    assert 0 < ratio["low"] <= ratio["value"] <= ratio["high"]
    for each in found.measurements:
        assert {turn.block for turn in each.turns} >= {0, 1}
        assert len({turn.session for turn in each.turns}) > 1
        assert each.cpu_ms > 0
    assert found.conditions.own_cores > 0
    assert found.conditions.reference_ms > 0


@pytest.mark.slow
@pytest.mark.alone
def test_real_processes_find_three_times_the_work():
    found, comparison = compared(5, short=10, long=30)
    short, long = (each.cpu_ms for each in found.measurements)
    assert short < long
    assert comparison["ratio"]["value"] < 1
    assert comparison["ratio"]["high"] < 1 or found.conditions.busy
