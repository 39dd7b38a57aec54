"""How right models are on the same samples: shares with their intervals, classes, disagreements."""

import math
from collections.abc import Iterator

from deploykit.correctness.result import Accuracy, ClassAccuracy, Disagreement, GivenAnswer
from deploykit.quantization.metrics import Score
from deploykit.text.results.groups import group_table
from deploykit.text.tables import Table, new_table, number
from deploykit.transforms.core.engines.engines import TITLES
from deploykit.verification.groups import GroupCloseness

_CLASSES = 20
"""Of more, the worst are shown; --json has them all."""
_SHARES = ("top1", "top5")


def lines(found: Accuracy) -> Iterator[str | Table]:
    """Yield an accuracy for people."""
    if found.metric is not None:
        yield _models(found)
    if found.change is not None:
        yield f"{found.models[-1].name} against {found.models[0].name}: {_change(found)}"
    if found.agreement is not None:
        share = f"{_percent(found.agreement.value)} of the answers agree{_between(found.agreement)}"
        yield f"{share}, on {found.samples} samples"
    if found.noise is not None and found.noise.sqnr_db is not None:
        yield _noise(found.noise)
    if found.class_order:
        yield f"classes of the data: {found.class_order}"
    if found.by_group:
        yield _groups(found)
    yield from _classes(found)
    if found.worst:
        yield _worst(found)
    yield from (f"note: {note}" for note in found.notes)


def _models(found: Accuracy) -> Table:
    table = new_table("model", "engine", str(found.metric), "95 % interval", texts=("engine",))
    for each in found.models:
        assert each.score is not None
        value, interval = each.score.value, each.score.interval
        table.add_row(
            each.name,
            TITLES[each.engine],
            _value(found, value),
            "" if interval is None else " to ".join(_value(found, end) for end in interval),
        )
    kind = ", less is better" if found.lower_is_better else ""
    table.caption = f"{found.metric} on {found.samples} samples of {found.source}{kind}"
    return table


def _change(found: Accuracy) -> str:
    """Return how the metric changed, in words, and whether that is more than chance."""
    score = found.change
    assert score is not None
    unit, scale = (" points", 100) if found.metric in _SHARES else ("", 1)
    moved = f"{score.value * scale:+.3g}{unit}" if score.value else "unchanged"
    if score.interval is None:
        return f"{found.metric} {moved}"
    low, high = score.interval
    ends = f"{low * scale:+.3g} to {high * scale:+.3g}"
    if not score.value:
        return f"{found.metric} {moved} (95 %: {ends}{unit})"
    if low <= 0 <= high:
        return f"{found.metric} {moved} (95 %: {ends}), which may be chance"
    better = (score.value < 0) == found.lower_is_better
    return f"{found.metric} {moved} (95 %: {ends}), {'better' if better else 'worse'}"


def _noise(found: GroupCloseness) -> str:
    """Return how far outputs of the last model are from those of the first."""
    if found.sqnr_db == math.inf:
        return "the outputs are equal"
    low = found.sqnr_low_db
    bound = "" if low is None else f" (95 % lower bound {low:.1f} dB)"
    return f"SQNR {found.sqnr_db:.1f} dB{bound}, relative to the outputs of the first model"


def _groups(found: Accuracy) -> Table:
    are_scored = any(each.scores for each in found.by_group)
    names = [each.name for each in found.models] if are_scored else []
    scored = f"; models: {found.metric}" if are_scored else ""
    values = {
        each.closeness.name: [
            f"{_value(found, s.value)}{_between_in(found, s)}" for s in each.scores
        ]
        for each in found.by_group
    }
    groups = [each.closeness for each in found.by_group]
    return group_table(groups, f"samples of {found.source} by group{scored}", names, values)


def _classes(found: Accuracy) -> Iterator[Table]:
    """Yield a table of classes; of many, those of which the last model is least right."""
    if not found.by_class:
        return
    shown = list(found.by_class)
    if len(shown) > _CLASSES:
        shown = sorted(shown, key=_weakness)[:_CLASSES]
    table = new_table("class", "samples", *(each.name for each in found.models))
    for each in shown:
        cells = (f"{_percent(score.value)}{_between(score)}" for score in each.scores)
        table.add_row(each.name, str(each.samples), *cells)
    if len(shown) < len(found.by_class):
        table.caption = f"the {len(shown)} of {len(found.by_class)} classes with the least right"
    yield table


def _weakness(each: ClassAccuracy) -> float:
    return each.scores[-1].value


def _worst(found: Accuracy) -> Table:
    """Return a table of the samples of which models say the most different things."""
    several = len(found.models) > 1
    names = [found.models[0].name, *([found.models[-1].name] if several else [])]
    labelled = any(each.label is not None for each in found.worst)
    table = new_table("sample", *(["label"] if labelled else []), *names, "apart", texts=("label",))
    for each in found.worst:
        answers = [_answer(each.first), *([] if each.last is None else [_answer(each.last)])]
        label = [each.label or "-"] if labelled else []
        table.add_row(_where(each), *label, *answers, f"{each.size:.3f}")
    table.caption = (
        "samples of which they say the most different things" if several
        else "the surest wrong answers"
    )  # fmt: skip
    return table


def _where(each: Disagreement) -> str:
    return str(each.sample) if each.file is None else each.file


def _answer(answer: GivenAnswer) -> str:
    score = "" if answer.score is None else f"{answer.score:.3g}"
    return " ".join(part for part in (answer.name, score) if part) or "-"


def _value(found: Accuracy, value: float) -> str:
    return _percent(value) if found.metric in _SHARES else number(value)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _between_in(found: Accuracy, score: Score) -> str:
    """Return the 95 % interval of a metric."""
    if score.interval is None or found.metric in _SHARES:
        return _between(score)
    return f" ({' to '.join(map(number, score.interval))})"


def _between(score: Score) -> str:
    """Return the 95 % interval of a share."""
    if score.interval is None:
        return ""
    low, high = score.interval
    return f" ({100 * low:.1f} to {100 * high:.1f})"
