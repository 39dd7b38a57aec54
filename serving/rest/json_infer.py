"""JSON documents of the Open Inference Protocol: parses requests and writes responses.

The binary data extension appends tensor contents to the document, in the order of its inputs or
outputs. `binary_data_size` is the number of bytes of each.
https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_rest.md
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from deploykit.serving.protocol.codec import check_strings
from deploykit.serving.protocol.errors import ServingError, refused, shown
from deploykit.serving.protocol.infer_parameters import (
    check_tensor,
    class_count,
    requested_signature,
)
from deploykit.serving.protocol.open_inference import (
    HEADER_LENGTH,
    TYPES,
    InferResponse,
    from_raw,
    output_datatype,
    strings,
    to_raw,
    value_count,
)
from deploykit.serving.protocol.versions import check_name
from deploykit.serving.rest.http_requests import Buffer
from deploykit.serving.rest.json_outputs import to_json
from deploykit.serving.rest.json_tensors import to_array
from deploykit.transforms.ir.tensors import Array

_JSON, _BINARY = "application/json", "application/octet-stream"


@dataclass(frozen=True)
class BinaryInput:
    """An input whose contents follow the document."""

    datatype: str
    shape: tuple[int, ...]
    size: int
    """Bytes."""


@dataclass(frozen=True)
class InferDocument:
    """The fields of a request besides the signature and the inputs in JSON."""

    id: str = ""
    binary_inputs: Mapping[str, BinaryInput] = field(default_factory=dict)
    outputs: Mapping[str, bool] = field(default_factory=dict)
    """The requested outputs, and whether each is binary data; empty: all."""
    classes: Mapping[str, int] = field(default_factory=dict)
    """For some outputs, the number of best classes to return instead."""
    is_binary: bool = False
    """Whether outputs are binary data by default."""


def split_body(body: Buffer, headers: Mapping[str, str]) -> tuple[Buffer | None, memoryview]:
    """Return the document and the binary data after it.

    If the stated length of the document is 0, there is None: the body is the data of one input.
    ServingError: the body is too short.
    """
    text = headers.get(HEADER_LENGTH.lower())
    if text is None:
        return body, memoryview(b"")
    length = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
    if not 0 <= length <= len(body):
        raise refused("infer-header-length", header=HEADER_LENGTH, got=text[:40], size=len(body))
    view = memoryview(body)
    return view[:length] if length else None, view[length:]


def read_infer(document: Mapping[str, Any]) -> tuple[str, dict[str, Array], InferDocument]:
    """Return the signature, the inputs in the document, and the other fields.

    ServingError: it does not follow the protocol, or an input does not match its datatype.
    """
    parameters = _parameters(document, "the request")
    inputs: dict[str, Array] = {}
    binary: dict[str, BinaryInput] = {}
    strings = 0
    for number, tensor in enumerate(_objects(document, "inputs")):
        name, datatype = (_text(tensor, key, f"inputs[{number}]") for key in ("name", "datatype"))
        if name in inputs or name in binary:
            raise refused("infer-twice", what="input", name=name)
        sizes = tensor.get("shape")
        if type(sizes) is not list or not set(map(type, sizes)) <= {int}:
            raise refused("infer-shape-type", name=name, got=shown(sizes))
        shape = tuple(sizes)
        count = value_count(name, datatype, shape)
        strings += count if datatype == "BYTES" else 0
        check_strings(strings)
        about = _parameters(tensor, f"input '{name}'")
        check_tensor(about, f"input '{name}'")
        size = about.get("binary_data_size")
        if size is None:
            inputs[name] = _array(name, datatype, shape, count, tensor)
        elif type(size) is not int or size < 0 or "data" in tensor:
            raise refused("infer-binary-size-type", name=name, got=shown(size))
        else:
            binary[name] = BinaryInput(datatype, shape, size)
    if document.get("inputs") is None:
        raise refused("infer-without-inputs")
    default = _flag(parameters, "binary_data_output", False)
    outputs: dict[str, bool] = {}
    classes: dict[str, int] = {}
    for number, output in enumerate(_objects(document, "outputs")):
        name = _text(output, "name", f"outputs[{number}]")
        check_name("the name of an output", name)
        if name in outputs:
            raise refused("infer-twice", what="output", name=name)
        about = _parameters(output, f"output '{name}'")
        outputs[name] = _flag(about, "binary_data", default)
        if count := class_count(about, f"output '{name}'"):
            classes[name] = count
    signature = requested_signature(parameters)
    request_id = document.get("id")
    request_id = "" if request_id is None else request_id
    if type(request_id) is not str:
        raise _mistyped("the id of the request", request_id, "a string")
    check_name("the id of the request", request_id)
    return signature, inputs, InferDocument(request_id, binary, outputs, classes, default)


def binary_arrays(inputs: Mapping[str, BinaryInput], content: memoryview) -> dict[str, Array]:
    """Return the inputs after a document. ServingError: their sizes do not match it."""
    expected = sum(input_.size for input_ in inputs.values())
    if expected != len(content):
        raise refused("infer-binary-size", size=len(content), expected=expected)
    arrays, place = {}, 0
    for name, item in inputs.items():
        part = content[place : place + item.size]
        arrays[name] = from_raw(name, item.datatype, item.shape, part)
        place += item.size
    return arrays


def write_infer(
    response: InferResponse, requested: InferDocument
) -> tuple[bytes, str, Sequence[tuple[str, str]]]:
    """Return the body of a response, its content type, and its headers.

    ServingError: the protocol or JSON cannot represent an output.
    """
    outputs: list[dict[str, Any]] = []
    contents: list[bytes | memoryview] = []
    for name, array in response.outputs.items():
        datatype = output_datatype(name, array)
        tensor: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(array.shape)}
        if requested.outputs.get(name, requested.is_binary):
            contents.append(to_raw(array))
            tensor["parameters"] = {"binary_data_size": len(contents[-1])}
        elif datatype == "BYTES":
            tensor["data"] = _texts(name, array)
        else:
            tensor["data"] = orjson.Fragment(to_json(name, array.reshape(-1)))
        outputs.append(tensor)
    document: dict[str, Any] = {"model_name": response.model, "model_version": response.version}
    if response.id:
        document["id"] = response.id
    text = orjson.dumps({**document, "outputs": outputs})
    if not contents:
        return text, _JSON, ()
    return b"".join([text, *contents]), _BINARY, ((HEADER_LENGTH, str(len(text))),)


def _array(
    name: str, datatype: str, shape: tuple[int, ...], count: int, tensor: Mapping[str, Any]
) -> Array:
    """Return an array from nested lists, or from a flat list in row-major order."""
    if "data" not in tensor:
        raise refused("infer-input-without-data", name=name)
    array = to_array(name, tensor["data"], TYPES[datatype])
    if array.shape != shape and not (array.ndim == 1 and array.size == count):
        raise refused("infer-data-shape", name=name, got=array.shape, expected=shape, count=count)
    return array.reshape(shape)


def _objects(document: Mapping[str, Any], key: str) -> Sequence[Mapping[str, Any]]:
    value = document.get(key)
    if value is None:
        return []
    if type(value) is not list or not set(map(type, value)) <= {dict}:
        raise _mistyped(f"'{key}'", value, "a list of objects")
    return value


def _text(tensor: Mapping[str, Any], key: str, where: str) -> str:
    value = tensor.get(key)
    if type(value) is not str:
        raise _mistyped(f"its {key}", value, "a string").within(where)
    return value


def _parameters(tensor: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    value = tensor.get("parameters")
    if value is None:
        return {}
    if type(value) is not dict:
        raise _mistyped("the value of parameters", value, "an object").within(where)
    return value


def _flag(parameters: Mapping[str, Any], name: str, default: bool) -> bool:
    value = parameters.get(name, default)
    if type(value) is not bool:
        raise _mistyped(f"the parameter '{name}'", value, "true or false")
    return value


def _mistyped(what: str, got: Any, expected: str) -> ServingError:
    return refused("infer-field-type", what=what, got=shown(got), expected=expected)


def _texts(name: str, array: Array) -> list[str]:
    try:
        return [item.decode() for item in strings(array)]
    except UnicodeDecodeError:
        raise refused("output-not-utf8", name=name) from None
