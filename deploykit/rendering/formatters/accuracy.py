"""Tables of an accuracy comparison: metric, groups, classes and disagreements."""

from collections.abc import Iterator, Sequence
from typing import Any

from deploykit.evaluation.result import Accuracy, GivenAnswer
from deploykit.quantization.metrics import Score
from deploykit.rendering.tables import Cell, Table, table
from deploykit.rendering.templates import between, filled, filled_lines, rendered_rows
from deploykit.transforms.engines.engines import TITLES
from deploykit.verification.confidence import GroupCloseness, worst_first
from deploykit.verification.coverage import WeakClass

_GROUPS, _WORST = 20, 10
"""The maximum number of rows: the noisiest groups and the worst samples; --json lists all."""
_CLASSES = 20
"""The maximum number of shown classes, those with the lowest accuracy; --json lists all."""
_SHARES = ("top1", "top5")
_SCORE = "{value:%s}[[ ({interval:%s})]]"
_SHARE = _SCORE % ("share", "share")


def lines(accuracy: Accuracy) -> Iterator[str | Table]:
    """Yield an accuracy as lines and tables."""
    form = "share" if accuracy.metric in _SHARES else "number"
    if accuracy.metric is not None:
        lower = ", lower is better" if accuracy.lower_is_better else ""
        yield table(
            accuracy.models,
            {
                "model": "{name}",
                "engine": lambda model: TITLES[model.engine],
                accuracy.metric: f"{{score.value:{form}}}",
                "95 % CI": f"{{score.interval:{form}}}",
            },
            f"{accuracy.metric} on {accuracy.samples} samples of {accuracy.source}{lower}",
        )
    if accuracy.change is not None:
        change = _change(accuracy, accuracy.change)
        yield f"{accuracy.models[-1].name} vs {accuracy.models[0].name}: {change}"
    yield from filled_lines(
        accuracy,
        "agreement: {agreement.value:share}[[ (95 % CI {agreement.interval:share})]], "
        "on {samples} samples",
        "SQNR relative to the first model: {noise.sqnr_db:dB}"
        "[[ (95 % lower bound {noise.sqnr_low_db:dB})]]",
        "classes of the data: {class_order}",
    )
    yield from weak_class_lines(accuracy.weak_classes)
    if accuracy.by_group:
        scores = {group.closeness.name: group.scores for group in accuracy.by_group}
        yield group_table(
            [group.closeness for group in accuracy.by_group],
            f"samples of {accuracy.source} by group"
            + (f"; models: {accuracy.metric} (95 % CI)" if any(scores.values()) else ""),
            _by_model(accuracy, lambda group: scores[group.name], _SCORE % (form, form)),
        )
    if accuracy.by_class:
        yield _classes(accuracy)
    if accuracy.worst:
        yield _worst(accuracy)
    yield from rendered_rows(accuracy.notes, "note: {}")


def weak_class_lines(classes: Sequence[WeakClass]) -> Iterator[str]:
    """Yield a line for each class on which a model fails."""
    yield from rendered_rows(classes[:_CLASSES], "{text}")
    if len(classes) > _CLASSES:
        yield f"and {len(classes) - _CLASSES} more such classes (--json lists all)"


def group_table(
    groups: Sequence[GroupCloseness], what: str, columns: Sequence[tuple[str, Cell]] = ()
) -> Table:
    """Return a table of groups, noisiest first; `what` describes the samples in the caption."""
    shown = worst_first(groups)[: _WORST if len(groups) > _GROUPS else None]
    if len(shown) < len(groups):
        what += f": the {len(shown)} worst of {len(groups)} groups"
    common: dict[str, Cell] = {
        "group": "{name}",
        "samples": "{samples}",
        "SQNR": "{sqnr_db:dB}",
        "95 % lower bound": "{sqnr_low_db:dB}",
        "agreement (95 % CI)": "{agreement:share} ({agreement_interval:share})",
    }
    return table(shown, common, what, more=columns)


def _change(accuracy: Accuracy, score: Score) -> str:
    """Return the change of the metric, and whether it is significant."""
    unit, scale = (" points", 100) if accuracy.metric in _SHARES else ("", 1)
    moved = f"{score.value * scale:+.3g}{unit}" if score.value else "unchanged"
    if score.interval is None:
        return f"{accuracy.metric} {moved}"
    low, high = score.interval
    ends = between((low * scale, high * scale), "{:+.3g}".format)
    if not score.value:
        return f"{accuracy.metric} unchanged (95 % CI {ends}{unit})"
    better = (score.value < 0) == accuracy.lower_is_better
    outcome = "not significant" if low <= 0 <= high else "better" if better else "worse"
    return f"{accuracy.metric} {moved} (95 % CI {ends}), {outcome}"


def _by_model(accuracy: Accuracy, scores: Any, template: str) -> Sequence[tuple[str, Cell]]:
    """Return a column for each model; `scores` returns the scores of a row."""

    def cell(index: int) -> Cell:
        return lambda row: filled(template, scores(row)[index]) if scores(row) else None

    return [(model.name, cell(index)) for index, model in enumerate(accuracy.models)]


def _classes(accuracy: Accuracy) -> Table:
    """Return a table of classes; if many, those with the lowest accuracy of the last model."""
    shown, caption = [*accuracy.by_class], "accuracy by class (95 % CI)"
    if len(shown) > _CLASSES:
        shown = sorted(shown, key=lambda row: row.scores[-1].value)[:_CLASSES]
        caption = (
            f"the {_CLASSES} of {len(accuracy.by_class)} classes with the lowest accuracy (95 % CI)"
        )
    models = _by_model(accuracy, lambda row: row.scores, _SHARE)
    return table(shown, {"class": "{name}", "samples": "{samples}"}, caption, more=models)


def _worst(accuracy: Accuracy) -> Table:
    """Return a table of the samples on which the models disagree most."""
    columns: dict[str, Cell] = {
        "sample": lambda row: str(row.sample) if row.file is None else row.file,
        "label": "{label}",
    }
    answers: list[tuple[str, Cell]] = [
        (accuracy.models[0].name, lambda row: _answer(row.first)),
        (accuracy.models[-1].name, lambda row: _answer(row.last)),
        ("disagreement" if len(accuracy.models) > 1 else "score", "{size:.3f}"),
    ]
    caption = "samples on which the models disagree most"
    if len(accuracy.models) == 1:
        caption = "wrong predictions with the highest scores"
    return table(accuracy.worst, columns, caption, more=answers)


def _answer(answer: GivenAnswer | None) -> str | None:
    return None if answer is None else filled("[[{name} ]][[{score:.3g}]]", answer)
