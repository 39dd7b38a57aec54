"""Which layers stay float: the fewest of the noisiest with which the answers hold."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from deploykit.quantization.accuracy import Judgement
from deploykit.quantization.requested import MAX_DROP, MIN_SQNR_DB
from deploykit.transforms.core.errors import GraphError


@dataclass(frozen=True)
class Trial:
    """A number of the noisiest layers in float, and what came of it."""

    keep_float: tuple[str, ...]
    judgement: Judgement | None
    """None where TensorFlow cannot run the graph."""
    fault: str = ""
    """Why it cannot."""

    def meets_bar(self, min_sqnr: float, max_drop: float) -> bool:
        """Say whether the answers are as near to the float graph's as asked."""
        found = self.judgement
        if found is None or not found.certain_db >= min_sqnr:
            return False
        return found.drop is None or found.drop <= max_drop


@dataclass(frozen=True)
class FloatChoice:
    """The layers that stay float, and what was tried."""

    best: Trial
    holds: bool
    """Whether the best keeps the answers as near as asked."""
    trials: tuple[Trial, ...]
    """In the order in which they were made."""

    @property
    def keep_float(self) -> tuple[str, ...]:
        """Return the layers that stay float, noisiest first."""
        return self.best.keep_float


def choose_layers(
    ranking: Sequence[str],
    judge: Callable[[tuple[str, ...]], Judgement],
    *,
    min_sqnr: float = MIN_SQNR_DB,
    max_drop: float = MAX_DROP,
    known: Mapping[int, Trial] | None = None,
    on_trial: Callable[[Trial], object] = lambda trial: None,
    out_of_time: Callable[[], bool] = lambda: False,
) -> FloatChoice:
    """Return the shortest part of a ranking's head that has to stay float.

    The answers come nearer with each layer that stays float, but for little, so the length is
    doubled until they hold and then searched between: at most about 2 log2 of the layers' number.

    Args:
        ranking: all layers that can be in 8 bits, noisiest first.
        judge: judges the graph in which these layers stay float and the others are in 8 bits.
        min_sqnr: in dB; the lower end of the confidence interval has to reach it.
        max_drop: of the metric, in its own unit; where none was taken it does not count.
        known: trials of an earlier run, by the number of layers that stay float.
        on_trial: called with each new trial, to be kept.
        out_of_time: asked before each trial but the first; where true, the best so far is returned.

    Where nothing holds, not even with all of them in float, the least noisy is returned. A
    GraphError of `judge` counts as answers that do not hold; where all are, the last is raised.
    """
    trials = dict[int, Trial]()

    def meets_bar(length: int) -> bool:
        if known is not None and length in known:
            trials[length] = known[length]
        else:
            trials[length] = _tried(tuple(ranking[:length]), judge)
            on_trial(trials[length])
        return trials[length].meets_bar(min_sqnr, max_drop)

    failing, holding = -1, None  # the longest that does not hold, the shortest that does
    length = 0
    while holding is None or holding - failing > 1:
        if trials and out_of_time():
            break
        if meets_bar(length):
            holding = length
        else:
            failing = length
        if holding is not None:
            length = (failing + holding) // 2
        elif failing == len(ranking):
            break
        else:
            length = min(max(1, 2 * failing), len(ranking))
    made = tuple(trials.values())
    if holding is not None:
        return FloatChoice(trials[holding], True, made)
    judged = [trial for trial in made if trial.judgement is not None]
    if not judged:
        raise GraphError(made[-1].fault)
    return FloatChoice(max(judged, key=_sqnr), False, made)


def _tried(keep_float: tuple[str, ...], judge: Callable[[tuple[str, ...]], Judgement]) -> Trial:
    try:
        return Trial(keep_float, judge(keep_float))
    except GraphError as error:
        return Trial(keep_float, None, str(error))


def _sqnr(trial: Trial) -> float:
    assert trial.judgement is not None
    return trial.judgement.certain_db
