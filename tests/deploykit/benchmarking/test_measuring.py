"""Models take turns, each in a process of its own; how often they run is what was asked for."""

import hashlib
import os

import pytest

from deploykit.benchmarking import runner
from deploykit.benchmarking.measuring import measure_models, spill
from deploykit.benchmarking.settings import Settings
from deploykit.freezing.open_model import open_model
from deploykit.transforms.core.errors import GraphError
from tests.deploykit.benchmarking.nets import dense, written


def benchmark(models, *arguments, **options):
    opened = {name: open_model(graph) for name, graph in models.items()}
    return measure_models(opened, *arguments, **options)


@pytest.fixture(scope="module")
def in_turn():
    """Two models in four rounds of three or four calls, and the steps that were announced."""
    steps = []
    result = benchmark(
        {"a": dense(), "b": dense()},
        [Settings(batch=3)],
        runs=14,
        rounds=4,
        advance=lambda name, count: steps.append((name, count)),
    )
    return result, steps


def test_models_take_turns(in_turn):
    _, steps = in_turn
    assert [name for name, count in steps if count] == [
        "load a", "load b", "a", "b", "b", "a", "a", "b", "b", "a",
    ]  # fmt: skip
    assert {count for _, count in steps if count} == {10}


def test_as_many_calls_as_asked_for(in_turn):
    result, _ = in_turn
    for each in result.measurements:
        assert [len(calls) for calls in each.rounds_ms] == [3, 4, 3, 4]
        assert len(each.rounds_seconds) == 4


def test_phases_are_kept_apart(in_turn):
    result, _ = in_turn
    a, b = result.measurements
    assert (a.name, b.name) == ("a", "b")
    assert a.samples == b.samples == 3
    assert a.sha256 == b.sha256  # of the graph, where there is no file
    for each in (a, b):
        assert each.load_ms > 0
        assert each.first_run_ms > min(each.latencies_ms)
        assert all(
            sum(calls) / 1e3 <= seconds
            for calls, seconds in zip(each.rounds_ms, each.rounds_seconds, strict=True)
        )
        assert each.facts["tensorflow"]
        assert each.facts["inputs"] == {"x": "float32 [3, 8]"}
        assert each.facts["bytes_peak"] >= each.facts["bytes_before"]
    assert not result.interrupted
    assert result.machine["affinity"] == sorted(os.sched_getaffinity(0))


class Stub:
    """A process that is made up: what is asked of it is kept, and every call takes 2 ms."""

    pid = os.getpid()
    asked: list  # set by each test

    def __init__(self, kind, job, forced=None):
        self.job = job

    def ask(self, method, *arguments):
        self.asked.append((method, *arguments))
        if method == "facts":
            return {"towers": ["/CPU:0"], "load_ns": 1_000_000}
        seconds, runs = arguments
        count = min(runs or 10**9, max(1, round(seconds / 0.002)))
        return [2_000_000] * count, count * 2_000_000

    def close(self):
        self.asked.append(("close",))


@pytest.fixture
def asked(monkeypatch):
    """Take made-up processes, to see what is asked of them without a clock."""
    Stub.asked = []
    monkeypatch.setattr(runner, "Worker", Stub)
    return Stub.asked


@pytest.mark.parametrize(
    ("runs", "expected"), [(1, [1]), (3, [1, 1, 1]), (5, [1, 1, 1, 2]), (8, [2, 2, 2, 2])]
)
def test_calls_are_shared_among_rounds(asked, runs, expected):
    (found,) = benchmark({"a": dense()}, runs=runs, rounds=4).measurements
    assert [len(calls) for calls in found.rounds_ms] == expected


def test_seconds_are_shared_among_rounds(asked):
    (found,) = benchmark({"a": dense()}, seconds=2, rounds=4).measurements
    assert [len(calls) for calls in found.rounds_ms] == [250] * 4
    assert found.rounds_seconds == (0.5,) * 4
    assert found.settled
    assert asked[-1] == ("close",)


def test_an_interruption_keeps_what_was_measured(asked):
    def interrupt(name, count):
        seen.append(name)
        if seen.count("b") == 2:
            raise KeyboardInterrupt

    seen: list[str] = []
    result = benchmark({"a": dense(), "b": dense()}, seconds=1, rounds=4, advance=interrupt)
    assert result.interrupted
    assert [len(each.rounds_ms) for each in result.measurements] == [1, 1]
    assert asked.count(("close",)) == 2


def test_who_had_no_round_yet_is_left_out(asked):
    def interrupt(name, count):
        if name == "b":
            raise KeyboardInterrupt

    result = benchmark({"a": dense(), "b": dense()}, seconds=1, rounds=4, advance=interrupt)
    assert result.interrupted
    assert [each.name for each in result.measurements] == ["a"]


@pytest.mark.parametrize("when", ["load b", "a"])
def test_an_interruption_before_the_first_round_is_one(asked, when):
    def interrupt(name, count):
        if name == when:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        benchmark({"a": dense(), "b": dense()}, seconds=1, rounds=4, advance=interrupt)
    assert ("close",) in asked


@pytest.mark.parametrize(
    ("models", "settings", "names"),
    [
        (["m/a.pb"], [Settings()], ["a.pb"]),
        (["m/a.pb", "n/b.pb"], [Settings()], ["a.pb", "b.pb"]),
        (["m/a.pb", "n/a.pb"], [Settings()], ["m/a.pb", "n/a.pb"]),
        (["m/a.pb"], [Settings(1), Settings(8)], ["batch 1", "batch 8"]),
        (
            ["m/a.pb", "n/b.pb"],
            [Settings(), Settings(8)],
            ["a.pb, TensorFlow's defaults", "a.pb, batch 8",
             "b.pb, TensorFlow's defaults", "b.pb, batch 8"],
        ),
    ],
)  # fmt: skip
def test_names_tell_measurements_apart(asked, models, settings, names):
    result = benchmark({model: dense() for model in models}, settings, runs=1)
    assert [each.name for each in result.measurements] == names


def test_an_input_of_unknown_shape_starts_no_process(asked):
    with pytest.raises(GraphError, match="--shape x="):
        benchmark({"a": dense(shape=(-1, -1))})
    assert asked == []


def test_the_sum_is_that_of_the_file(tmp_path):
    path = written(dense(), tmp_path / "net.pb")
    expected = hashlib.sha256(path.read_bytes()).hexdigest()
    assert open_model(path).sha256 == open_model(dense()).sha256 == expected
    assert spill(dense(), tmp_path / "copy.pb") == expected
