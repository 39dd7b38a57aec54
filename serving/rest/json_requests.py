"""Converts JSON documents of requests into arrays or tf.Examples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from deploykit.serving.execution.classify_regress import with_context
from deploykit.serving.protocol.codec import check_strings
from deploykit.serving.protocol.errors import ServingError, refused, shortened, shown
from deploykit.serving.protocol.protos import Example
from deploykit.serving.protocol.signatures import DEFAULT, Tensor
from deploykit.serving.rest.json_documents import (
    is_binary,
    kind,
    narrowed,
    parse,
    signature_name,
    to_bytes,
)
from deploykit.serving.rest.json_infer import InferDocument, binary_arrays, read_infer
from deploykit.serving.rest.json_tensors import read_inputs
from deploykit.transforms.ir.tensors import Array

EXAMPLES, CONTEXT = "examples", "context"


def read_examples(document: dict[str, Any]) -> list[bytes]:
    """Return serialized tf.Examples, each with the shared context.

    ServingError: an example is not an object, a feature has an invalid value, or the context is
    too large for the number of examples.
    """
    context = _example(document[CONTEXT], CONTEXT) if CONTEXT in document else b""
    if EXAMPLES not in document:
        raise refused("json-examples-missing", key=EXAMPLES)
    examples = document[EXAMPLES]
    if type(examples) is not list:
        raise refused("json-not-an-array", key=EXAMPLES)
    if not examples:
        raise refused("json-examples-empty", key=EXAMPLES)
    return with_context(
        context, [_example(item, f"example {n}") for n, item in enumerate(examples)]
    )


def _example(value: Any, where: str) -> bytes:
    if type(value) is not dict:
        raise refused("json-example-not-object", source=where, got=kind(value))
    example = Example()
    for name, content in value.items():
        try:
            feature = example.features.feature[name]
        except ValueError:  # a lone surrogate
            raise refused("json-feature-name", source=where, name=shown(name)) from None
        _fill(feature, name, content if type(content) is list else [content], where)
    return bytes(example.SerializeToString())


def _fill(feature: Any, name: str, values: list[Any], where: str) -> None:
    """Set a feature to values of one type; without values it stays empty."""
    name = shortened(name)
    words = f"{where}: Feature: {name}"
    kinds = set(map(type, values))
    for value in values:
        if value is None or type(value) is list or (type(value) is dict and not is_binary(value)):
            raise refused("json-feature-type", what=words, got=kind(value))
    if kinds <= {int, bool}:
        integers = np.array([int(value) for value in values], object)
        if any(not -(1 << 63) <= value < 1 << 63 for value in integers):
            raise refused("json-feature-not-int64", what=words)
        if values:
            feature.int64_list.value.extend(integers)
    elif kinds == {float}:
        floats = narrowed(values, np.float32)
        if floats is None:
            raise refused("json-feature-not-float32", what=words)
        feature.float_list.value.extend(floats)
    elif kinds <= {str, dict}:
        feature.bytes_list.value.extend(to_bytes(value) for value in values)
    else:
        results = sorted({_LISTS[item] for item in kinds})
        raise refused("json-feature-mixed", source=words, name=name, got=results)


_LISTS = {int: "int64", bool: "int64", float: "float", str: "bytes", dict: "bytes"}


Inputs = Mapping[str, Mapping[str, Tensor]]
"""The inputs of a model by signature name."""


@dataclass(frozen=True)
class Document:
    """The content of a request body."""

    signature: str
    """Empty if not given."""
    inputs: Mapping[str, Array] = field(default_factory=dict)
    rows: bool = False
    """Whether the inputs were in row format (`instances`)."""
    examples: Sequence[bytes] = ()
    infer: InferDocument = field(default_factory=InferDocument)
    """The other fields of an Open Inference Protocol request."""


def read(
    method: str, body: bytes | bytearray | memoryview, declared: Inputs | ServingError
) -> Document:
    """Return the content of a request body for a method, given the model's inputs.

    ServingError: the document is invalid; or `declared`, if that is an error.
    """
    document = parse(body, last_feature=method in ("classify", "regress"))
    if method == "infer":
        name, arrays, infer = read_infer(document)
        return Document(name, arrays, infer=infer)
    signature = signature_name(document)
    if method != "predict":
        return Document(signature, examples=read_examples(document))
    if isinstance(declared, ServingError):
        raise declared
    name = signature or DEFAULT
    if name not in declared:
        raise refused("json-signature-missing", name=name)
    inputs, rows = read_inputs(document, declared[name])
    check_strings(sum(array.size for array in inputs.values() if array.dtype == object))
    return Document(signature, inputs, rows)


def with_content(document: Document, content: memoryview) -> Document:
    """Return a document with the binary inputs that follow it. ServingError: wrong sizes."""
    result = binary_arrays(document.infer.binary_inputs, content)
    return replace(document, inputs={**document.inputs, **result}) if result else document
