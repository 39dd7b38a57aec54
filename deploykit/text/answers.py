"""Outputs of models: arrays, or the classes with the highest scores."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from deploykit.text.tables import Table, table
from deploykit.transforms.core.tensors import type_of

_SHOWN_VALUES = 20


def prediction_lines(found: Any) -> Iterator[str | Table]:
    """Yield each output with its type, shape and first values, or the best classes of each sample.

    The sources of a prediction, where the samples come from, may be empty.
    """
    if found.classes is None:
        for alias, array in sorted(found.outputs.items()):
            values = np.array2string(array, threshold=_SHOWN_VALUES, precision=6)
            yield f"{alias}: {type_of(array)}{list(array.shape)}\n{values}"
    for index, predicted in enumerate(found.classes or ()):
        if found.sources:
            yield f"{found.sources[index]}:"
        yield _classes(predicted)


def label_lines(found: Any) -> list[str | Table]:
    """Return the best classes of an image as a table."""
    return [_classes(found.predictions)]


def code_lines(found: Any) -> list[str]:
    """Return the code of an input pipeline."""
    return [found.text.removesuffix("\n")]


def _classes(predicted: Sequence[Mapping[str, Any]]) -> Table:
    return table(predicted, {"class": "{class}", "score": "{score:.6f}", "label": "{label}"})
