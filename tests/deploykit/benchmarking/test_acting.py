"""Models have a scenario one after another, and the figures are those of TensorFlow's calls."""

import numpy as np
import pytest

import deploykit
from deploykit.benchmarking import scenario_runs
from deploykit.benchmarking.tables import tables
from deploykit.benchmarking.worker_sessions import CandidateSession
from deploykit.rendering.tables import Table
from deploykit.transforms.common.errors import LimitError
from tests.deploykit.benchmarking.nets import aborting, dense
from tests.support import Containing, raises


def shown(result):
    return "\n".join(str(each) for each in tables(result) if not isinstance(each, Table))


def test_offline_computes_all_samples_and_not_some():
    """Forty batches; a benchmark without a scenario takes sixteen."""
    data = {"x": np.ones((83, 8), np.float32)}
    result = deploykit.benchmark(
        dense(), data=data, batch=2, scenario="offline", seconds=0.01, concurrency=2
    )
    (found,) = result.measurements
    calls = len(found.latencies_ms)
    assert calls >= 41
    assert calls % 41 == 0
    assert found.scenario.figure == "throughput"
    assert found.scenario.value == pytest.approx(2 * calls / sum(found.rounds_seconds))
    assert found.scenario.value == pytest.approx(found.items_per_second)


@pytest.mark.slow
def test_each_model_is_measured_alone_and_nothing_is_compared():
    result = deploykit.benchmark(
        {"a": dense(), "b": dense()}, scenario="single", seconds=0.2, profile=True
    )
    assert [each.scenario.figure for each in result.measurements] == ["p90 latency"] * 2
    assert result.judgements() == [None, None]
    assert result.document()["comparisons"] == []
    assert set(result.profiles) == {"a", "b"}
    assert result.conditions is not None
    text = shown(result)
    assert text == Containing("a: invalid", "0.2 s")
    assert "ratio" not in text
    assert "call after another" in text


def test_what_kills_tensorflow_is_told():
    with raises(LimitError, "child-died", runs="TensorFlow"):
        deploykit.benchmark(aborting(), allow_ops=["Abort"], scenario="single", seconds=0.2)


def test_an_interruption_keeps_what_was_measured(monkeypatch):
    """The first look at the load that shows some calls is when the user ends it."""

    def look(seat, method, *arguments):
        found = ask(seat, method, *arguments)
        if method == "so_far" and not found.over and found.done and not ended:
            ended.append(found)
            raise KeyboardInterrupt
        return found

    ask, ended = CandidateSession.ask, []
    monkeypatch.setattr(CandidateSession, "ask", look)
    monkeypatch.setattr(scenario_runs, "_LOOK_SECONDS", 0.1)
    result = deploykit.benchmark(
        {"a": dense(), "b": dense()}, scenario="server", rate=500, seconds=60
    )
    assert result.interrupted
    (found,) = result.measurements
    assert found.scenario.why[0] == "it was interrupted"
    assert found.scenario.seconds < 60
