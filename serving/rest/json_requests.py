"""JSON documents of requests as arrays or as tf.Examples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from deploykit.serving.execution.classify_regress import with_context
from deploykit.serving.protocol.errors import ServingError, refused, shortened
from deploykit.serving.protocol.protos import Example
from deploykit.serving.protocol.signatures import DEFAULT, Tensor
from deploykit.serving.rest.json_documents import (
    is_binary,
    kind,
    narrowed,
    parse,
    shown,
    signature_name,
    to_bytes,
)
from deploykit.serving.rest.json_infer import InferDocument, binary_arrays, read_infer
from deploykit.serving.rest.json_tensors import read_inputs
from deploykit.transforms.ir.tensors import Array

EXAMPLES, CONTEXT = "examples", "context"


def read_examples(document: dict[str, Any]) -> list[bytes]:
    """Return serialized tf.Examples, each with the context that is common to all.

    ServingError: an example is no object, a feature holds what no feature can, or the context is
    too large for so many.
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
        except ValueError:  # half a character
            raise refused("json-feature-name", source=where, name=shown(name)) from None
        _fill(feature, name, content if type(content) is list else [content], where)
    return bytes(example.SerializeToString())


def _fill(feature: Any, name: str, values: list[Any], where: str) -> None:
    """Set a feature to values of one type; none at all leave it empty."""
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
"""What each signature of a model takes, by its name."""


@dataclass(frozen=True)
class Document:
    """What a call asks."""

    signature: str
    """Empty: it names none."""
    inputs: Mapping[str, Array] = field(default_factory=dict)
    rows: bool = False
    """Whether the inputs came in rows."""
    examples: Sequence[bytes] = ()
    infer: InferDocument = field(default_factory=InferDocument)
    """What a document of the Open Inference Protocol asks beside its inputs."""


def read(
    method: str, body: bytes | bytearray | memoryview, declared: Inputs | ServingError
) -> Document:
    """Return what the body of a call of a method asks, of a model whose signatures take this.

    ServingError: it is no such document; or the one that stands in the model's place.
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
    return Document(signature, inputs, rows)


def with_content(document: Document, content: memoryview) -> Document:
    """Return a document with the inputs whose binary data follows it. ServingError: wrong sizes."""
    result = binary_arrays(document.infer.binary_inputs, content)
    return replace(document, inputs={**document.inputs, **result}) if result else document
