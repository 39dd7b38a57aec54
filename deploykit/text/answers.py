"""What models answered, in lines for people: arrays, or the classes with the highest scores."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from deploykit.transforms.core.tensors import Array, type_of

_SHOWN_VALUES = 20


def output_lines(outputs: Mapping[str, Array]) -> Iterator[str]:
    """Yield each output with its type and shape, and its values or the first of them."""
    for alias, array in sorted(outputs.items()):
        values = np.array2string(array, threshold=_SHOWN_VALUES, precision=6)
        yield f"{alias}: {type_of(array)}{list(array.shape)}\n{values}"


def prediction_lines(
    outputs: Mapping[str, Array],
    classes: Sequence[Sequence[Mapping[str, Any]]] | None,
    sources: Sequence[str] = (),
) -> Iterator[str]:
    """Yield outputs, or in their place the best classes of each sample under where it comes from.

    `sources` are as many as samples, or none.
    """
    if classes is None:
        yield from output_lines(outputs)
    for place, each in enumerate(classes or ()):
        if sources:
            yield f"{sources[place]}:"
        yield from class_lines(each)


def class_lines(predicted: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the best classes of a sample as a table."""
    width = max(5, *(len(str(each["class"])) for each in predicted))
    yield f"{'score':>10}  {'class':>{width}}  label"
    for each in predicted:
        number, label = ("-" if each[key] is None else each[key] for key in ("class", "label"))
        yield f"{each['score']:10.6f}  {number:>{width}}  {label}"
