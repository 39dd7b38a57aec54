"""Models take turns, each in a process of its own; how often they run is what was asked for."""

import hashlib
import os
from types import SimpleNamespace

import pytest

from deploykit.benchmarking import rounds
from deploykit.benchmarking.inputs import SYNTHETIC
from deploykit.benchmarking.rounds import measure_models, spill
from deploykit.benchmarking.run_config import BenchmarkOptions, RunConfig
from deploykit.benchmarking.worker_sessions import MAX_SESSIONS, BenchmarkCandidate, CandidateRun
from deploykit.importers.open_model import open_model
from tests.deploykit.benchmarking.made_up_process import take_made_up_processes
from tests.deploykit.benchmarking.nets import dense, written


def benchmark(models, settings=None, advance=lambda name, count: None, **timing):
    opened = {name: open_model(graph) for name, graph in models.items()}
    how = BenchmarkOptions(**timing)
    return measure_models(opened, settings or [RunConfig()], SYNTHETIC, how, advance=advance)


@pytest.fixture(scope="module")
def in_turn():
    """Two models in eight rounds of three or four calls, and the steps that were announced."""
    steps = []
    result = benchmark(
        {"a": dense(), "b": dense()},
        [RunConfig(batch=3)],
        runs=28,
        rounds=8,
        advance=lambda name, count: steps.append((name, count)),
    )
    return result, steps


@pytest.mark.sampled
def test_what_comes_next_is_announced(in_turn):
    _, steps = in_turn
    names = [name for name, count in steps if count]
    assert names[:3] == ["load a", "load b", "load further sessions"]
    assert set(names[3:]) == {"turns"}
    (count,) = {count for _, count in steps if count}
    assert len(names) <= count


@pytest.mark.sampled
def test_who_agrees_in_what_tensorflow_starts_with_shares_processes(in_turn):
    result, _ = in_turn
    a, b = result.measurements
    assert {turn.process for turn in a.turns} == {turn.process for turn in b.turns} == {0}
    assert [turn.session for turn in a.turns] == [0, 1] * 4
    assert [turn.block for turn in a.turns] == [turn.block for turn in b.turns] == [*range(8)]
    assert all(turn.cpu_ms > 0 for turn in a.turns)


@pytest.mark.sampled
def test_other_threads_are_other_processes():
    settings = [RunConfig(threads=(1, 1)), RunConfig(threads=(2, 1))]
    found = benchmark({"a": dense()}, settings, runs=8, rounds=8).measurements
    ours, others = ({turn.process for turn in each.turns} for each in found)
    assert len(ours) == len(others) == 2
    assert not ours & others


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


@pytest.fixture
def asked(monkeypatch):
    """Take made-up processes, to see what is asked of them without a clock."""
    return take_made_up_processes(monkeypatch)


@pytest.mark.parametrize(
    ("runs", "expected"), [(1, [1]), (3, [1, 1, 1]), (5, [1, 1, 1, 2]), (8, [2, 2, 2, 2])]
)
def test_calls_are_shared_among_rounds(asked, runs, expected):
    (found,) = benchmark({"a": dense()}, runs=runs, rounds=4).measurements
    assert [len(calls) for calls in found.rounds_ms] == expected


def test_turns_are_short_and_many(asked):
    (found,) = benchmark({"a": dense()}, seconds=2).measurements
    assert set(found.rounds_seconds) == {rounds.TURN + 0.001}  # 8 calls of 2 ms
    assert 2 <= sum(found.rounds_seconds) < 2.1
    assert found.settled
    assert asked[-1] == ("close",)


def test_every_session_has_one_turn_in_a_block(asked):
    a, b = benchmark({"a": dense(), "b": dense()}, seconds=8).measurements
    whole = max(turn.block for turn in a.turns)
    count = len({turn.session for turn in a.turns})
    assert 8 <= count <= MAX_SESSIONS
    orders = set()
    for block in range(whole):
        of_block = [[t.session for t in each.turns if t.block == block] for each in (a, b)]
        assert sorted(of_block[0]) == sorted(of_block[1]) == list(range(count))
        orders.add(tuple(of_block[0]))
    assert len(orders) > whole / 2  # in random order


def test_it_ends_once_all_is_decided(asked):
    """Made-up calls all take the same time; of a model alone, nothing is to be decided."""
    a, _ = benchmark({"a": dense(), "b": dense()}, seconds=4).measurements
    assert 0.4 <= sum(a.rounds_seconds) < 0.9  # a tenth of the time, and the block that was begun
    (alone,) = benchmark({"a": dense()}, seconds=4).measurements
    assert 3 < sum(alone.rounds_seconds) < 4.1


def test_long_calls_get_fewer_sessions_and_turns_of_one_call(asked, monkeypatch):
    run = CandidateRun(BenchmarkCandidate("a", "a", "0", None), call_seconds=0.5)
    run.candidate = SimpleNamespace(job=SimpleNamespace(settings=RunConfig()))
    assert rounds._length(run) == rounds.TURN
    run.call_seconds = 0.02
    assert rounds._length(run) == pytest.approx(0.03)


def test_an_interruption_keeps_what_was_measured(asked):
    def interrupt(name, count):
        seen.append(name)
        if seen.count("turns") == 2:
            raise KeyboardInterrupt

    seen: list[str] = []
    result = benchmark({"a": dense(), "b": dense()}, seconds=2, advance=interrupt)
    assert result.interrupted
    assert all(each.rounds_ms for each in result.measurements)
    assert sum(sum(each.rounds_seconds) for each in result.measurements) < 1.0
    assert asked.count(("close",)) == 1


@pytest.mark.parametrize("when", ["load b", "turns"])
def test_an_interruption_before_the_first_round_is_one(asked, when):
    def interrupt(name, count):
        if name == when:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        benchmark({"a": dense(), "b": dense()}, seconds=1, advance=interrupt)
    assert ("close",) in asked


@pytest.mark.parametrize(
    ("models", "settings", "names"),
    [
        (["m/a.pb"], [RunConfig()], ["a.pb"]),
        (["m/a.pb", "n/b.pb"], [RunConfig()], ["a.pb", "b.pb"]),
        (["m/a.pb", "n/a.pb"], [RunConfig()], ["m/a.pb", "n/a.pb"]),
        (["m/a.pb"], [RunConfig(1), RunConfig(8)], ["batch 1", "batch 8"]),
        (
            ["m/a.pb", "n/b.pb"],
            [RunConfig(), RunConfig(8)],
            ["a.pb, TensorFlow's defaults", "a.pb, batch 8",
             "b.pb, TensorFlow's defaults", "b.pb, batch 8"],
        ),
    ],
)  # fmt: skip
def test_names_tell_measurements_apart(asked, models, settings, names):
    result = benchmark({model: dense() for model in models}, settings, runs=1)
    assert [each.name for each in result.measurements] == names


def test_the_sum_is_that_of_the_file(tmp_path):
    path = written(dense(), tmp_path / "net.pb")
    expected = hashlib.sha256(path.read_bytes()).hexdigest()
    assert open_model(path).sha256 == open_model(dense()).sha256 == expected
    assert spill(dense(), tmp_path / "copy.pb") == expected
