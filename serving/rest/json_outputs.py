"""Converts arrays, classes and regression values to JSON in TensorFlow Serving's format."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import numpy as np
import orjson

from deploykit.serving.execution.classify_regress import Class
from deploykit.serving.protocol.errors import ServingError, refused
from deploykit.serving.rest.json_documents import FLOATS, INTEGERS, from_bytes
from deploykit.serving.rest.json_tensors import COLUMNS, ROWS
from deploykit.transforms.ir.tensors import Array

_BINARY_SUFFIX = "_bytes"
_PIECE = 1 << 15  # numbers serialized at once, which blocks all other threads for about 1 ms


def write_outputs(outputs: Mapping[str, Array], rows: bool) -> bytes:
    """Return the response document in row or column format.

    A single output is written without its name. ServingError: outputs are not rows, or JSON has no
    such type.
    """
    if not outputs:
        raise refused("json-no-outputs")
    if not rows:
        columns = {
            alias: orjson.Fragment(to_json(alias, array)) for alias, array in outputs.items()
        }
        only = next(iter(columns.values()))
        return orjson.dumps({"outputs": columns if len(columns) > 1 else only})
    count = _count(outputs)
    if len(outputs) == 1:
        alias, array = next(iter(outputs.items()))
        return orjson.dumps({"predictions": orjson.Fragment(to_json(alias, array))})
    named = [
        {
            alias: orjson.Fragment(to_json(alias, array[row, ...]))
            for alias, array in outputs.items()
        }
        for row in range(count)
    ]
    return orjson.dumps({"predictions": named})


def to_json(alias: str, array: Array) -> bytes:
    """Return an array as nested lists. ServingError: JSON cannot represent its dtype."""
    if array.dtype == np.object_:
        binary = alias.endswith(_BINARY_SUFFIX)
        texts = np.empty(array.size, object)
        texts[:] = [from_bytes(item, binary) for item in array.ravel().tolist()]
        return orjson.dumps(texts.reshape(array.shape).tolist())
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    if array.dtype.name not in (*FLOATS, *INTEGERS, "bool"):
        raise ServingError(
            "UNIMPLEMENTED", "json-type-unwritable", dtype=array.dtype.name, name=alias
        )
    return _numbers(array) if array.size <= _PIECE else b"".join(_pieces(array))


def _pieces(array: Array) -> Iterator[bytes]:
    """Yield the text of a large array in chunks, so that other threads can run in between."""
    shape, inner = array.shape, array.ndim
    while math.prod(shape[inner - 1 :]) <= _PIECE:
        inner -= 1
    outer, step = shape[: inner - 1], max(_PIECE // math.prod(shape[inner:]), 1)
    sizes = [math.prod(outer[axis:]) for axis in range(len(outer))]  # elements per list of the axis
    for number, item in enumerate(array.reshape(-1, *shape[inner - 1 :])):
        begun = 1 + sum(number % size == 0 for size in sizes)
        ended = 1 + sum((number + 1) % size == 0 for size in sizes)
        yield (b"," if number else b"") + b"[" * begun
        for start in range(0, len(item), step):
            yield (b"," if start else b"") + _numbers(item[start : start + step])[1:-1]
        yield b"]" * ended


def _numbers(array: Array) -> bytes:
    """Return a numeric array as nested lists."""
    value = array[()] if not array.ndim else np.ascontiguousarray(array)
    text = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return text
    # orjson writes `null` for numbers that are not finite.
    words = [
        b"NaN" if number != number else b"Infinity" if number > 0 else b"-Infinity"
        for number in array[~np.isfinite(array)].tolist()
    ]
    return b"".join(chain.from_iterable(zip(text.split(b"null"), [*words, b""], strict=True)))


def write_classes(classes: Sequence[Sequence[Class]]) -> bytes:
    """Return the document of (label, score) pairs."""
    scores = np.array([score for example in classes for _, score in example], np.float32)
    texts = iter(orjson.Fragment(to_json("scores", score)) for score in scores)
    return orjson.dumps(
        {"results": [[[label, next(texts)] for label, _ in example] for example in classes]}
    )


def write_values(result: Sequence[float]) -> bytes:
    """Return the document of regression values."""
    values = orjson.Fragment(to_json("outputs", np.array(result, np.float32)))
    return orjson.dumps({"results": values})


def _count(outputs: Mapping[str, Array]) -> int:
    """Return the number of rows. ServingError: outputs differ in it, or one is a scalar."""
    words = f"; ask for columns with '{COLUMNS}' instead of '{ROWS}'"
    sizes: dict[str, int] = {}
    for alias, array in outputs.items():
        if not array.ndim:
            raise refused("json-output-scalar", name=alias, hint=words)
        sizes[alias] = len(array)
        expected = next(iter(sizes.values()))
        if sizes[alias] != expected:
            raise refused(
                "json-output-batch", name=alias, got=sizes[alias], expected=expected, hint=words
            )
    return expected
