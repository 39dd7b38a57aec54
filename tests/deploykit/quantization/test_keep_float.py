"""The search finds the cheapest layers that have to stay float, in few trials."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploykit.quantization.accuracy import Judgement
from deploykit.quantization.layer_search import place_of
from deploykit.quantization.metrics import Score
from deploykit.quantization.sensitivity import (
    FloatOption,
    Trial,
    cheapest_options,
    choose_among,
)
from deploykit.transforms.common.errors import CrashError, GraphError
from tests.support import raises

LAYERS = [f"layer_{number}" for number in range(50)]


class Judging:
    """A judge of noise that falls with each layer in float; it counts what it was asked."""

    def __init__(self, sqnr, accuracy=None):
        self.sqnr, self.accuracy, self.asked = sqnr, accuracy, []

    def __call__(self, keep_float):
        assert list(keep_float) == LAYERS[: len(keep_float)], "the noisiest first"
        self.asked.append(len(keep_float))
        sqnr = self.sqnr(len(keep_float))
        if self.accuracy is None:
            return Judgement(sqnr, None, 20)
        after = self.accuracy(len(keep_float))
        return Judgement(sqnr, None, 20, "top1", Score(0.9), Score(after))


def chosen(layers, judge, min_sqnr=24, max_drop=0.01, **more):
    """Return the shortest part of a ranking's head that has to stay float."""
    options = [tuple(layers[:count]) for count in range(len(layers) + 1)]
    return choose_among(options, judge, lambda trial: trial.meets_bar(min_sqnr, max_drop), **more)


@pytest.mark.parametrize("needed", range(51))
def test_the_shortest_head_that_holds(needed):
    judge = Judging(lambda length: 24 + length - needed)
    found = chosen(LAYERS, judge, min_sqnr=24)
    assert found.holds
    assert len(found.keep_float) == needed
    assert found.best.judgement.sqnr_db == 24
    assert len(judge.asked) <= 2 * math.ceil(math.log2(50)) + 2
    assert len(set(judge.asked)) == len(judge.asked), "nothing is judged twice"
    assert [len(trial.keep_float) for trial in found.trials] == judge.asked


def test_all_layers_are_tried_first():
    judge = Judging(lambda length: 30)
    assert chosen(LAYERS, judge).keep_float == ()
    assert judge.asked == [0]


def test_an_accuracy_that_drops_needs_more_layers_in_float():
    judge = Judging(lambda length: 30 + length, lambda length: 0.85 + 0.01 * min(length, 5))
    assert len(chosen(LAYERS, judge, max_drop=0.0101).keep_float) == 4
    assert len(chosen(LAYERS, judge, max_drop=0.0301).keep_float) == 2
    assert len(chosen(LAYERS, judge, max_drop=0.0301, min_sqnr=40).keep_float) == 10


def test_of_an_error_more_is_worse():
    one = Judgement(30, None, 20, "mae", Score(1.0), Score(1.5))
    assert one.drop == 0.5
    assert not Trial((), one).meets_bar(24, 0.1)
    assert Trial((), Judgement(30, None, 20, "top1", Score(1.0), Score(1.5))).meets_bar(24, 0.1)


def test_noise_that_is_not_monotonic_ends_with_what_holds():
    noise = [20, 25, 19, 22, 21, 23, 26, 18] + 42 * [27]
    found = chosen(LAYERS, Judging(noise.__getitem__))
    assert found.holds
    assert found.best.judgement.sqnr_db >= 24


def test_where_nothing_holds_the_least_noisy_is_kept():
    found = chosen(LAYERS, Judging(lambda length: 20 - abs(length - 8)))
    assert not found.holds
    assert len(found.keep_float) == 8
    assert len(found.trials[-1].keep_float) == 50, "even all in float were tried"
    assert not chosen([], Judging(lambda length: 3)).holds


def test_time_that_runs_out_leaves_the_best_so_far():
    judge = Judging(lambda length: length)
    found = chosen(LAYERS, judge, out_of_time=lambda: len(judge.asked) == 4)
    assert judge.asked == [0, 1, 2, 4]
    assert (len(found.keep_float), found.holds) == (4, False)
    judge = Judging(lambda length: length)
    found = chosen(LAYERS, judge, out_of_time=lambda: len(judge.asked) == 7)
    assert (len(found.keep_float), found.holds) == (32, True)
    judge = Judging(lambda length: 3)
    found = chosen(LAYERS, judge, out_of_time=lambda: True)
    assert judge.asked == [0], "one is always made"


def test_what_is_known_is_not_judged_again():
    whole = chosen(LAYERS, Judging(lambda length: 20 + length))
    kept = {len(trial.keep_float): trial for trial in whole.trials}
    judge = Judging(lambda length: 20 + length)
    assert chosen(LAYERS, judge, known=dict(list(kept.items())[:3])) == whole
    assert judge.asked == list(kept)[3:]


def test_graphs_that_cannot_be_run_do_not_hold():
    def judge(keep_float):
        if len(keep_float) < 3:
            raise CrashError("it died")
        return Judgement(30, None, 20)

    found = chosen(LAYERS, judge)
    assert len(found.keep_float) == 3
    assert found.trials[0].fault == "it died"

    def never(keep_float):
        raise GraphError("no kernel")

    with raises(GraphError, "quantized-not-runnable", reason="no kernel"):
        chosen(LAYERS, never)


def test_noise_that_is_no_number_does_not_hold():
    assert not Trial((), Judgement(math.nan, None, 1)).meets_bar(24, 1)
    assert not Trial((), Judgement(-math.inf, None, 1)).meets_bar(24, 1)
    assert Trial((), Judgement(math.inf, None, 1)).meets_bar(24, 1)


LAYER = st.tuples(st.floats(1e-6, 1.0), st.integers(1, 1000))


@pytest.mark.sampled
@given(st.lists(LAYER, min_size=1, max_size=7))
def test_layers_in_float_cost_the_least_for_their_noise(layers):
    noise = {f"l{number}": power for number, (power, _) in enumerate(layers)}
    worth = {f"l{number}": gained for number, (_, gained) in enumerate(layers)}
    found = cheapest_options(noise, worth)
    assert (found[0].layers, set(found[-1].layers)) == ((), set(noise))
    for option in found[1:]:
        kept = [name for name in noise if name not in option.layers]
        assert math.isclose(option.noise, sum(noise[name] for name in kept), abs_tol=1e-12)
        gained = sum(worth[name] for name in kept)
        others = (c for n in range(len(noise) + 1) for c in itertools.combinations(noise, n))
        for other in others:  # what is clearly less noise gains no more
            if sum(noise[name] for name in other) < 0.98 * option.noise:
                assert sum(worth[name] for name in other) <= gained + 1e-9


def test_a_large_noisy_layer_stays_where_two_small_ones_will_do():
    noise = {"large": 3.0, "small": 2.0, "tiny": 2.0, "quiet": 0.1}
    options = cheapest_options(noise, {"large": 900, "small": 30, "tiny": 30, "quiet": 50})
    assert ("small", "tiny") in [each.layers for each in options]
    by_count = cheapest_options(noise, {})
    assert [each.layers for each in by_count[:2]] == [(), ("large",)], "else the noisiest"


def test_layers_that_cannot_or_gain_nothing_are_float_wherever_any_is():
    noise = {"broken": math.inf, "slow": 0.01, "good": 1.0, "unknown": 0.0}
    options = cheapest_options(noise, {"slow": -5, "good": 70})
    assert [each.layers for each in options] == [
        (), ("broken", "slow"), ("broken", "slow", "good"),
        ("broken", "slow", "good", "unknown"),
    ]  # fmt: skip


@pytest.mark.parametrize("needed", [0, 1, 40, 49, 50, 51, 60, 99])
@pytest.mark.parametrize("start", [1, 50, 99])
def test_what_is_expected_to_hold_is_tried_first(needed, start):
    options, asked = [tuple(LAYERS[:1]) * n for n in range(100)], []

    def judge(keep_float):
        asked.append(len(keep_float))
        return Judgement(24 + len(keep_float) - needed, None, 20)

    found = choose_among(options, judge, lambda trial: trial.meets_bar(24, 0), start=start)
    assert len(found.keep_float) == needed
    assert asked[:2] == [0, start][: len(asked)]
    assert len(asked) <= 2 * math.ceil(math.log2(100)) + 2
    if start == needed > 0:
        assert len(asked) <= 8, "a good guess needs few"


def test_where_a_bar_is_expected():
    options = [FloatOption((str(n),), power) for n, power in enumerate((4e-3, 2e-3, 1e-3, 0.0))]
    as_told, noisier = Judgement(10 * math.log10(250), None, 9), Judgement(20.97, None, 9)
    assert [place_of(options, as_told, bar) for bar in (20, 26.9, 29.9, 60)] == [0, 1, 2, 3]
    assert place_of(options, noisier, 23.9) == 1, "twice as noisy as the layers tell"
    assert place_of(options, None, 29.9) == 2
