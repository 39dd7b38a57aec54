"""Plans from files: what load tests and benchmarks tell, and what they do not."""

import json

import numpy as np
import pytest

import deploykit
from deploykit.benchmarking.scenario_load import SEED
from deploykit.planning.from_results import recorded
from deploykit.serving.client.load_generator import poisson
from deploykit.transforms.common.errors import Error, GraphError
from tests.deploykit.planning.load_tests import document, load, services
from tests.deploykit.planning.servers import traced
from tests.support import Containing, raises, says


@pytest.fixture
def write(tmp_path):
    def written(*loads, **more) -> str:
        path = tmp_path / "load.json"
        path.write_text(json.dumps(document(*loads, **more)))
        return str(path)

    return written


@pytest.mark.slow
def test_a_load_test_is_enough(write):
    path = write(load(1), load(4), load(8))
    found = deploykit.plan(path, rate=1000, latency_limit=60)
    assert found.measured.capacity == pytest.approx(100)
    assert (found.measured.slots, found.check, found.problem) == (1, None, "")
    assert 15 <= found.size.replicas <= 18
    outcome = found.size.outcomes[0]
    assert outcome.p99.low_ms < outcome.p99.ms < outcome.p99.high_ms <= 60
    assert "idle periods" in found.notes[0]


@pytest.mark.slow
def test_loads_at_random_are_compared(write):
    closed = load(1), load(8)
    assert deploykit.plan(write(*closed, load(rate=70.0)), rate=1000, latency_limit=60).check.passed
    found = deploykit.plan(write(*closed, load(rate=70.0, slower=1.3)), rate=1000, latency_limit=60)
    assert "misses the estimate" in found.problem


@pytest.mark.slow
def test_several_places(write):
    four = {**load(8), "throughput": 400.0}
    assert deploykit.plan(write(load(1), four), rate=1000, latency_limit=60).measured.slots == 4


@pytest.mark.parametrize(
    ("loads", "said"),
    [
        ([load(1)], "several clients"),
        ([load(8), load(rate=80.0)], "unloaded request"),
        ([load(1), {**load(8), "generator_limited": True}], says("plan-generator-limited")),
        ([], "several clients"),
        ([{**load(8), "latency_ms": {}}], "several clients"),
    ],
)
def test_what_is_not_enough(write, loads, said):
    with pytest.raises(GraphError, match=said):
        recorded(write(*loads), None)


def test_files_that_are_something_else(write, tmp_path):
    for text, said in (("[]", "its kind is None"), ('{"command": "tune"}', "tune"), ("{", "JSON")):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(Error, match=said):
            recorded(tmp_path / "x.json", None)
    with raises(
        GraphError,
        "not-a",
        reason="KeyError('latency_ms')",
        what=Containing("of deploykit load-test"),
    ):
        recorded(write({"callers": 1}), None)
    with pytest.raises(GraphError, match=says("unknown-name", name="nett")):
        recorded(write(load(1), load(8)), "nett")
    with pytest.raises(Error, match=says("plan-file-needs-no-data")):
        deploykit.plan(write(load(1), load(8)), data="x.npz", rate=1, latency_limit=1)
    with raises(Error, "plan-address-needs-model"):
        deploykit.plan("localhost:8500", rate=1, latency_limit=1)


def benchmark(rate: float, slower: float = 1.0) -> dict:
    """Return a result of scenario server, whose arrivals are those of its seed."""
    due = np.array(list(poisson(rate, 60.0, SEED)))
    taken = (1e3 * traced(due, slower * services(len(due))).latencies).tolist()
    settings = deploykit.RunConfig().document()
    scenario = {
        "name": "server", "figure": "p99 latency", "value": 1.0, "unit": "ms", "at_most": 1.0,
        "valid": True, "why": [], "seconds": 60.0, "calls": len(taken), "left": 0,
        "rate_asked": rate, "rate_reached": rate, "latency_limit": None,
    }  # fmt: skip
    return {
        "format": 1, "kind": "benchmark", "started": "2026-11-24T12:00:00", "machine": {},
        "measurements": [{
            "name": "net.pb", "model": "net.pb", "sha256": "0", "settings": settings, "samples": 1,
            "load_ms": 1.0, "first_run_ms": 1.0, "warm_up_ms": [], "settled": True,
            "rounds_ms": [taken], "rounds_seconds": [60.0], "scenario": scenario,
        }],
    }  # fmt: skip


@pytest.mark.slow
def test_a_benchmark_of_scenario_server(tmp_path):
    path = tmp_path / "server.json"
    path.write_text(json.dumps(benchmark(50.0)))
    found = deploykit.plan(path, rate=1000, latency_limit=60)
    assert found.measured.capacity == pytest.approx(100, rel=0.02)
    assert 15 <= found.size.replicas <= 18
    assert found.check.passed
    assert found.check.ratio == pytest.approx(1, abs=0.05)
    assert "what a server adds" in found.notes[0]
    assert deploykit.plan(path, "net.pb", rate=1000, latency_limit=60).size == found.size


def test_a_benchmark_without_that_scenario(tmp_path):
    other = benchmark(50.0)
    del other["measurements"][0]["scenario"]
    (tmp_path / "b.json").write_text(json.dumps(other))
    with raises(GraphError, "plan-no-server-scenario"):
        recorded(tmp_path / "b.json", None)
