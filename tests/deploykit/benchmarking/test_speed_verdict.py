"""The judge of speed: right about planted differences, and about models that are alike."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from deploykit.benchmarking import speed_verdict
from deploykit.benchmarking.measurement import Turn
from deploykit.benchmarking.run_config import RunConfig
from deploykit.benchmarking.speed_verdict import (
    ALIKE,
    FASTER,
    SLOWER,
    UNDECIDED,
    SpeedVerdict,
    compare_apart,
    inconclusive_against_first,
    judge,
    seconds_an_item,
    undisturbed,
)
from deploykit.benchmarking.statistics import Ratio, student
from deploykit.transforms.common.documents import document
from tests import pairwise
from tests.deploykit.benchmarking.made_up import KINDS, in_turns, measurement, times
from tests.support import Containing, assert_golden

GPU = RunConfig(device="gpu:0")
BUSY = "measured on a loaded machine: other processes used 1.9 of 2 cores"


# Of made-up machines.
NUMBERS = pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.full)])


def rates(kind, count, **planted):
    """Return how often each verdict is given, over many pairs of one kind of machine."""
    found = [judge(*in_turns(seed, kind, **planted)).kind for seed in range(count)]
    return {each: found.count(each) / count for each in (FASTER, SLOWER, ALIKE, UNDECIDED)}


@pytest.mark.sampled
@NUMBERS
@pytest.mark.parametrize("processes", ["shared", "apart"])
@pytest.mark.parametrize(
    "kind", pairwise.drawn("models_that_are_alike_differ_by_chance_only", KINDS, 0, quick=2)
)
def test_models_that_are_alike_differ_by_chance_only(kind, processes, count):
    """Intervals at 99 % miss 1 in 1 % of the pairs, and two clocks are asked."""
    found = rates(kind, count, processes=processes)
    assert found[FASTER] + found[SLOWER] <= 0.05


@pytest.mark.sampled
@NUMBERS
@pytest.mark.parametrize("kind", KINDS)
def test_more_work_of_5_percent_is_found_on_any_machine(kind, count):
    assert rates(kind, count, slowdown=1.05)[SLOWER] >= 0.9


@pytest.mark.sampled
@NUMBERS
@pytest.mark.parametrize("kind", ["plain", "drifting", "autocorrelated"])
def test_less_work_of_5_percent_is_found_where_others_do_not_take_the_cores(kind, count):
    assert rates(kind, count, slowdown=1 / 1.05)[FASTER] >= 0.9


@pytest.mark.sampled
@NUMBERS
def test_between_processes_10_percent_are_found(count):
    assert rates("plain", count, slowdown=1.1, processes="apart")[SLOWER] >= 0.9


@pytest.mark.sampled
def test_what_only_cpu_time_shows_is_slower_but_never_faster():
    """The wall clock sees no difference, whatever the work."""
    more = [in_turns(seed, "contended", work=1.08) for seed in range(20)]
    less = [in_turns(seed, "contended", work=1 / 1.08) for seed in range(20)]
    assert {judge(*each).kind for each in more} == {SLOWER}
    assert sum(judge(*each).kind == FASTER for each in less) <= 1  # by chance
    assert judge(*less[0]).cpu.low > 1


def test_the_wall_clock_comes_first():
    """Two threads do more work in less time: they are faster."""
    found = judge(*in_turns(0, "plain", slowdown=0.6, work=2.0))
    assert found.kind == FASTER
    assert found.cpu.high < 1


@pytest.mark.sampled
@NUMBERS
def test_sessions_decide_and_not_turns(count):
    """A session that is slower by its place in memory is no slower model, however often it runs."""
    few = [judge(*in_turns(seed, "plain", turns=200, sessions=3)) for seed in range(count)]
    assert sum(each.significant for each in few) <= 0.05 * count


def test_one_session_each_tells_nothing():
    found = judge(*in_turns(0, "plain", slowdown=2.0, sessions=1))
    assert (found.kind, found.wall.low, math.isinf(found.wall.high)) == (UNDECIDED, 0, True)
    assert found.wall.value == pytest.approx(0.5, rel=0.1)
    plain = json.loads(json.dumps(document(found), allow_nan=False))
    assert (plain["ratio"]["low"], plain["significant"]) == (None, False)


def test_an_interval_is_students_over_sessions():
    """Levels 0, 1, 2 and 3, 4, 5: three apart, with an error of sqrt(2/3) and 4 degrees."""
    turns = tuple(Turn(0, 0, session, 1.0, 0, 0) for session in range(3))
    a, b = (
        measurement([[math.exp(level)] for level in levels], turns=turns, settings=GPU)
        for levels in ([0, 1, 2], [3, 4, 5])
    )
    found = judge(a, b, confidence=0.95).wall
    assert math.log(found.value) == pytest.approx(-3)
    assert math.log(found.high / found.value) == pytest.approx(2.7764 * math.sqrt(2 / 3), rel=1e-3)
    assert student(0.99, 9) == pytest.approx(3.2498, rel=1e-3)


def test_pairs_of_sessions_in_processes_are_pairs():
    """One session of each in each of four processes: what a process does to both falls out."""
    rng = np.random.default_rng(0)
    of_process = rng.normal(0, 0.2, 4)
    sides = [
        in_turns(seed, "plain", sessions=4, processes="shared", copies=4, of_process=of_process)[0]
        for seed in (0, 1)
    ]
    assert judge(*sides).wall.reach < 0.1


def test_disturbed_turns_are_left_out_by_the_rule():
    one, _ = in_turns(0, "contended")
    kept = undisturbed(one)
    stretched = 1e3 * np.array(one.rounds_seconds) / [turn.cpu_ms for turn in one.turns]
    assert 0 < kept.mean() < 1
    assert stretched[kept].max() <= 1.25 * np.quantile(stretched, 0.1) < stretched[~kept].min()
    assert undisturbed(replace(one, turns=())).all()
    assert undisturbed(replace(one, settings=GPU)).all()


@pytest.mark.sampled
def test_leaving_out_disturbed_turns_narrows_the_interval(monkeypatch):
    pairs = [in_turns(seed, "contended") for seed in range(20)]
    narrow = np.median([judge(*pair).wall.reach for pair in pairs])
    monkeypatch.setattr(speed_verdict, "DISTURBED", math.inf)
    assert np.median([judge(*pair).wall.reach for pair in pairs]) > 1.5 * narrow


def test_an_interruption_leaves_what_both_have():
    a, b = in_turns(0, "plain", slowdown=2.0)
    parallel = ("rounds_ms", "rounds_seconds", "turns")
    short = replace(b, **{name: getattr(b, name)[:-3] for name in parallel})
    assert judge(a, short).kind == SLOWER
    none = replace(b, turns=tuple(replace(turn, block=turn.block + 1000) for turn in b.turns))
    assert judge(a, none).wall.value == pytest.approx(0.5, rel=0.1)


def test_results_without_turns_are_judged_by_their_rounds():
    found = judge(measurement(times(2)), measurement())
    assert (found.kind, found.cpu) == (FASTER, None)
    assert found.wall.value == pytest.approx(2)


def test_items_a_second_are_judged_too():
    a, b = measurement(samples=1), measurement(times(4), samples=8)
    assert judge(a, b).kind == SLOWER
    assert judge(a, b, figure=seconds_an_item).wall.value == pytest.approx(2)


def test_what_is_undecided_goes_on_with_its_partner():
    a, b = in_turns(0, "plain", slowdown=1.2)
    same = in_turns(0, "contended", turns=3, sessions=2)[1]
    assert inconclusive_against_first([a, b]) == set()
    assert inconclusive_against_first([a]) == {0}
    assert inconclusive_against_first([a, b, replace(same, name="c")]) == {0, 2}
    alone = replace(same, samples=9)
    assert inconclusive_against_first([a, b, alone]) == set()
    assert inconclusive_against_first([a, b, replace(same, name="c"), alone]) == {0, 2, 3}


POSITIVE = some.floats(0.2, 5)
INTERVALS = some.builds(
    lambda value, below, above: Ratio(value, value / (1 + below), value * (1 + above)),
    POSITIVE, some.floats(0, 3), some.floats(0, 3),
)  # fmt: skip


@pytest.mark.sampled
@given(INTERVALS, some.none() | INTERVALS, some.sampled_from(["", BUSY]),
       some.sampled_from([0.0, 0.1]))  # fmt: skip
def test_a_verdict_says_what_its_intervals_do(wall, cpu, busy, drift):
    found = SpeedVerdict(wall, cpu, busy, drift)
    kind = found.kind
    assert found.verdict.startswith(kind)
    assert found.significant == (kind in (FASTER, SLOWER))
    assert kind != FASTER or wall.low > 1
    assert kind != SLOWER or wall.high < 1 or (cpu is not None and cpu.high < 1)
    assert kind not in (ALIKE, UNDECIDED) or wall.high >= 1 / (1 + drift)
    assert kind != ALIKE or wall.reach <= 0.05
    if kind == UNDECIDED and busy and wall.low < 1 < wall.high:
        assert busy in found.verdict
    json.dumps(document(found), allow_nan=False)


VERDICTS = {
    "faster, no CPU time": (Ratio(1.5, 1.2, 1.9), None, "", 0.0),
    "faster with less work": (Ratio(1.5, 1.2, 1.9), Ratio(1.25, 1.1, 1.4), BUSY, 0.0),
    "faster with more work": (Ratio(1.5, 1.2, 1.9), Ratio(0.5, 0.4, 0.6), "", 0.0),
    "slower": (Ratio(0.5, 0.4, 0.6), Ratio(1.0, 0.9, 1.1), "", 0.0),
    "slower by CPU time": (Ratio(0.95, 0.8, 1.1), Ratio(0.9, 0.85, 0.95), "", 0.0),
    "no difference": (Ratio(1.0, 0.98, 1.02), Ratio(1.0, 0.99, 1.01), "", 0.0),
    "too few sessions": (Ratio(0.5, 0.0, math.inf), None, "", 0.0),
    "high variance": (Ratio(1.1, 0.8, 1.5), None, "", 0.0),
    "a loaded machine": (Ratio(1.1, 0.8, 1.5), None, BUSY, 0.0),
    "as fast with more work, loaded": (Ratio(1.03, 0.99, 1.04), Ratio(0.5, 0.4, 0.6), BUSY, 0.1),
    "a machine that changes": (Ratio(1.07, 1.05, 1.09), None, "", 0.1),
}


@pytest.mark.golden("speed_verdicts")
def test_verdicts_in_words():
    found = {case: SpeedVerdict(*values).verdict for case, values in VERDICTS.items()}
    assert_golden("".join(f"{case}: {words}\n" for case, words in found.items()))


@pytest.mark.parametrize("drift", [0.0, 0.1])
def test_cpu_time_alone_is_not_slower_on_a_loaded_machine(drift):
    """Threads that wait for each other use CPU time too; the words say what the kind does."""
    cpu = Ratio(0.5, 0.48, 0.52)
    found = SpeedVerdict(Ratio(1.03, 0.99, 1.04), cpu, BUSY, drift)
    assert (found.kind, found.significant, found.is_below(1)) == (ALIKE, False, False)
    assert found.verdict.startswith(ALIKE)
    assert replace(found, busy="").verdict.startswith(SLOWER)
    longer = replace(found, wall=Ratio(0.98, 0.96, 1.0))
    assert (longer.kind, longer.verdict) == (SLOWER, Containing(SLOWER, BUSY))


def test_apart_a_machine_that_was_slower_is_told_from_a_model_that_is():
    a, b = in_turns(0, "plain", slowdown=1.06, processes="apart", copies=3)
    assert compare_apart(a, b).kind == SLOWER
    assert compare_apart(a, b, slower=1.08).kind in (ALIKE, UNDECIDED)
    assert compare_apart(b, a).kind != FASTER  # the wall clock of a machine changes by 10 %
    slow = in_turns(0, "plain", slowdown=1.5, processes="apart", copies=3)
    assert compare_apart(*reversed(slow)).kind == FASTER
    assert compare_apart(*reversed(slow), slower=1 / 1.6).kind != FASTER


@pytest.mark.sampled
def test_apart_the_gate_at_5_percent():
    """Processes of the same model pass, and 10 % more work do not."""
    for seed in range(30):
        same = in_turns(seed, "plain", processes="apart", copies=3)
        assert not compare_apart(*same).is_below(0.95)
    more = [in_turns(s, "plain", slowdown=1.10, processes="apart", copies=3) for s in range(30)]
    assert sum(compare_apart(*each).is_below(0.95) for each in more) >= 27
