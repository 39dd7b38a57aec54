"""A difference that is planted is found by real processes, on whatever machine this is."""

import json

import deploykit as api
from tests.benchmarks.judge import chain


def test_three_times_the_work_is_slower(tmp_path):
    found = api.benchmark({"short": chain(10), "long": chain(30)}, seconds=1.5)
    comparison = json.loads(json.dumps(found.document()))["comparisons"][0]
    assert (comparison["a"], comparison["b"]) == ("short", "long")
    assert comparison["verdict"].startswith("slower: ")
    assert comparison["significant"]
    assert comparison["cpu_ratio"]["high"] < 0.7
    for each in found.measurements:
        assert {turn.block for turn in each.turns} >= {0, 1}
        assert len({turn.session for turn in each.turns}) > 1
        assert each.cpu_ms > 0
    short, long = (each.cpu_ms for each in found.measurements)
    assert 2 < long / short < 4, "CPU time grows with the work"
    assert found.conditions.own_cores > 0.2
    assert 0 < found.conditions.reference_ms < 100
