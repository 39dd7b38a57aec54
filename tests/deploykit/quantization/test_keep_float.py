"""The search finds the shortest head of the ranking that has to stay float, in few trials."""

import math

import pytest

from deploykit.quantization.accuracy import Judgement
from deploykit.quantization.keep_float import Trial, choose_layers
from deploykit.quantization.metrics import Score
from deploykit.transforms.core.errors import CrashError, GraphError

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


@pytest.mark.parametrize("needed", range(51))
def test_the_shortest_head_that_holds(needed):
    judge = Judging(lambda length: 24 + length - needed)
    found = choose_layers(LAYERS, judge, min_sqnr=24)
    assert found.holds
    assert len(found.keep_float) == needed
    assert found.best.judgement.sqnr_db == 24
    assert len(judge.asked) <= 2 * math.ceil(math.log2(50)) + 2
    assert len(set(judge.asked)) == len(judge.asked), "nothing is judged twice"
    assert [len(trial.keep_float) for trial in found.trials] == judge.asked


def test_all_layers_are_tried_first():
    judge = Judging(lambda length: 30)
    assert choose_layers(LAYERS, judge).keep_float == ()
    assert judge.asked == [0]


def test_an_accuracy_that_drops_needs_more_layers_in_float():
    judge = Judging(lambda length: 30 + length, lambda length: 0.85 + 0.01 * min(length, 5))
    assert len(choose_layers(LAYERS, judge, max_drop=0.0101).keep_float) == 4
    assert len(choose_layers(LAYERS, judge, max_drop=0.0301).keep_float) == 2
    assert len(choose_layers(LAYERS, judge, max_drop=0.0301, min_sqnr=40).keep_float) == 10


def test_of_an_error_more_is_worse():
    one = Judgement(30, None, 20, "mae", Score(1.0), Score(1.5))
    assert one.drop == 0.5
    assert not Trial((), one).meets_bar(24, 0.1)
    assert Trial((), Judgement(30, None, 20, "top1", Score(1.0), Score(1.5))).meets_bar(24, 0.1)


def test_noise_that_is_not_monotonic_ends_with_what_holds():
    noise = [20, 25, 19, 22, 21, 23, 26, 18] + 42 * [27]
    found = choose_layers(LAYERS, Judging(noise.__getitem__))
    assert found.holds
    assert found.best.judgement.sqnr_db >= 24


def test_where_nothing_holds_the_least_noisy_is_kept():
    found = choose_layers(LAYERS, Judging(lambda length: 20 - abs(length - 8)))
    assert not found.holds
    assert len(found.keep_float) == 8
    assert len(found.trials[-1].keep_float) == 50, "even all in float were tried"
    assert not choose_layers([], Judging(lambda length: 3)).holds


def test_time_that_runs_out_leaves_the_best_so_far():
    judge = Judging(lambda length: length)
    found = choose_layers(LAYERS, judge, out_of_time=lambda: len(judge.asked) == 4)
    assert judge.asked == [0, 1, 2, 4]
    assert (len(found.keep_float), found.holds) == (4, False)
    judge = Judging(lambda length: length)
    found = choose_layers(LAYERS, judge, out_of_time=lambda: len(judge.asked) == 7)
    assert (len(found.keep_float), found.holds) == (32, True)
    judge = Judging(lambda length: 3)
    found = choose_layers(LAYERS, judge, out_of_time=lambda: True)
    assert judge.asked == [0], "one is always made"


def test_an_interrupted_search_goes_on():
    kept = {}
    whole = choose_layers(
        LAYERS,
        Judging(lambda length: 20 + length),
        on_trial=lambda trial: kept.__setitem__(len(trial.keep_float), trial),
    )
    judge, new = Judging(lambda length: 20 + length), []
    first = dict(list(kept.items())[:3])
    again = choose_layers(LAYERS, judge, known=first, on_trial=new.append)
    assert again == whole
    assert judge.asked == list(kept)[3:]
    assert [len(trial.keep_float) for trial in new] == judge.asked


def test_graphs_that_cannot_be_run_do_not_hold():
    def judge(keep_float):
        if len(keep_float) < 3:
            raise CrashError("it died")
        return Judgement(30, None, 20)

    found = choose_layers(LAYERS, judge)
    assert len(found.keep_float) == 3
    assert found.trials[0].fault == "it died"

    def never(keep_float):
        raise GraphError("no kernel")

    with pytest.raises(GraphError, match="no kernel"):
        choose_layers(LAYERS, never)


def test_noise_that_is_no_number_does_not_hold():
    assert not Trial((), Judgement(math.nan, None, 1)).meets_bar(24, 1)
    assert not Trial((), Judgement(-math.inf, None, 1)).meets_bar(24, 1)
    assert Trial((), Judgement(math.inf, None, 1)).meets_bar(24, 1)
