"""Converts responses to plain data: output arrays, or the classes with the highest scores."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deploykit.client.label_image import predictions
from deploykit.serving.protocol.signatures import CLASSES, SCORES
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.tensors import Array, type_of


def values(answer: Mapping[str, Array]) -> dict[str, Any]:
    """Return the outputs as plain data; a non-finite number is null, bytes are base64."""
    return {
        alias: {"dtype": str(type_of(array)), "shape": list(array.shape), "values": _plain(array)}
        for alias, array in sorted(answer.items())
    }


def classes(
    answer: Mapping[str, Array], labels: Sequence[str] | None, top: int
) -> list[list[dict[str, Any]]]:
    """Return the `top` best classes of each sample as plain data.

    Class names in the response have priority, unless `labels` are given. GraphError: not exactly
    one output contains a finite score per class.
    """
    named = names_themselves(answer)
    scores = {
        alias: array
        for alias, array in answer.items()
        if array.dtype.kind in "fV" and array.ndim == 2 and array.shape[1] > 1
        if not (named and alias == SCORES)
    }
    if named and (labels is None or not scores):
        full = next(iter(scores.values())) if len(scores) == 1 else None
        return [_best_named(answer, row, full, top) for row in range(len(answer[CLASSES]))]
    if len(scores) != 1:
        text = "several outputs give" if scores else "no output gives"
        raise GraphError("response-without-scores", got=text, known=scores or answer)
    (alias, array), *_ = scores.items()
    if not np.isfinite(array.astype(np.float64)).all():
        raise GraphError("class-scores-nan", name=alias)
    names = [""] * array.shape[1] if labels is None else labels
    return [predictions(item.astype(np.float64), names, top) for item in array]


def names_themselves(answer: Mapping[str, Array]) -> bool:
    """Return whether a response contains the names of the best classes and their scores."""
    names, scores = answer.get(CLASSES), answer.get(SCORES)
    if names is None or scores is None:
        return False
    fits = names.dtype.kind == "O" and scores.dtype.kind in "fV"
    return fits and names.ndim == 2 and names.shape == scores.shape


def _best_named(
    answer: Mapping[str, Array], row: int, full: Array | None, top: int
) -> list[dict[str, Any]]:
    """Return the best classes of a sample, with class numbers if all scores are available."""
    names, scores = answer[CLASSES][row].tolist(), answer[SCORES][row].tolist()
    numbers: list[int | None] = [None] * len(names)
    if full is not None and full.shape[1] >= len(names):
        best = np.argsort(-full[row].astype(np.float64), kind="stable")[: len(names)]
        if np.array_equal(full[row][best].astype(np.float64), scores):
            numbers = best.tolist()
    return [
        {"class": number, "label": _text(name), "score": score}
        for number, name, score in zip(numbers[:top], names, scores, strict=False)
    ]


def _plain(array: Array) -> Any:
    """Return nested lists of values that JSON supports."""
    if array.dtype.kind == "O":
        flat = np.array([_text(item) for item in array.reshape(-1).tolist()], object)
    elif array.dtype.kind == "c":
        flat = np.array([[str(item)] for item in array.reshape(-1).tolist()], object)[:, 0]
    elif array.dtype.kind in "fV":
        numbers = array.astype(np.float64).reshape(-1)
        flat = numbers.astype(object)
        flat[~np.isfinite(numbers)] = None
    else:
        flat = array.reshape(-1)
    return flat.reshape(array.shape).tolist()


def _text(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}
