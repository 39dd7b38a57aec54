"""Writes requests and reads responses of the Open Inference Protocol, for clients.

Requests over gRPC have raw contents. The server chooses the format of the response: raw or typed
contents over gRPC, binary data or JSON over HTTP.
"""

import json
from collections.abc import Sequence
from itertools import chain
from typing import Any

from deploykit.serving.protocol.errors import ServingError, refused
from deploykit.serving.protocol.infer_parameters import SIGNATURE_NAME
from deploykit.serving.protocol.open_inference import (
    HEADER_LENGTH,
    RAW_INPUT,
    RAW_OUTPUT,
    TYPES,
    InferRequest,
    ModelInferRequest,
    ModelInferResponse,
    datatype_of,
    from_raw,
    from_values,
    split_request,
    strings,
    tensor_array,
    to_raw,
    with_raw,
)
from deploykit.serving.protocol.signatures import Signature, Tensor
from deploykit.transforms.common.errors import Error, GraphError
from deploykit.transforms.ir.protos import SignatureDef
from deploykit.transforms.ir.tensors import Array, type_of
from deploykit.transforms.untrusted.wire import decoded


def signature_of(metadata: Any) -> Signature:
    """Return the inputs and outputs of a ModelMetadataResponse.

    Its tensors have no names in a graph. A shape of [-1] may also mean any shape.
    """
    inputs, outputs = (
        {
            tensor.name: Tensor(
                "", TYPES.get(tensor.datatype, tensor.datatype), tuple(tensor.shape)
            )
            for tensor in tensors
        }
        for tensors in (metadata.inputs, metadata.outputs)
    )
    return Signature("", inputs, outputs, SignatureDef())


def write_request(requested: InferRequest) -> bytes:
    """Return the bytes of a ModelInferRequest."""
    head = ModelInferRequest(
        model_name=requested.model, model_version=requested.version, id=requested.id
    )
    if requested.signature:
        head.parameters[SIGNATURE_NAME].string_param = requested.signature
    for name, array in requested.inputs.items():
        head.inputs.add(name=name, datatype=datatype_of(type_of(array)), shape=array.shape)
    for name in requested.outputs:
        head.outputs.add(name=name)
    return with_raw(head, RAW_INPUT, map(_without_width, requested.inputs.values()))


def read_response(content: bytes) -> dict[str, Array]:
    """Return the outputs of a ModelInferResponse. ServingError: contents and datatypes differ."""
    try:
        head, raw = split_request(content, RAW_OUTPUT)
        response = decoded(head, ModelInferResponse)
    except GraphError as error:
        raise refused("not-a", what="a ModelInferResponse", reason=error) from None
    if raw and len(raw) != len(response.outputs):
        raise refused("infer-raw-outputs-count", count=len(response.outputs), raw_count=len(raw))
    return {
        tensor.name: tensor_array(tensor, raw[number] if raw else None)
        for number, tensor in enumerate(response.outputs)
    }


def write_document(requested: InferRequest, is_binary: bool) -> tuple[bytes, dict[str, str]]:
    """Return the body and headers of an HTTP request.

    Error: without binary data, an input contains bytes that are not UTF-8.
    """
    inputs, contents = [], list[bytes | memoryview]()
    for name, array in requested.inputs.items():
        datatype = datatype_of(type_of(array))
        tensor: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(array.shape)}
        if is_binary:
            contents.append(to_raw(_without_width(array)))
            tensor["parameters"] = {"binary_data_size": len(contents[-1])}
        else:
            tensor["data"] = _values(name, array)
        inputs.append(tensor)
    document: dict[str, Any] = {"id": requested.id} if requested.id else {}
    parameters: dict[str, Any] = {"binary_data_output": True} if is_binary else {}
    if requested.signature:
        parameters[SIGNATURE_NAME] = requested.signature
    if parameters:
        document["parameters"] = parameters
    document["inputs"] = inputs
    if requested.outputs:
        how = {"parameters": {"binary_data": True}} if is_binary else {}
        document["outputs"] = [{"name": name, **how} for name in requested.outputs]
    text = json.dumps(document).encode()
    if not is_binary:
        return text, {"Content-Type": "application/json"}
    headers = {"Content-Type": "application/octet-stream", HEADER_LENGTH: str(len(text))}
    return b"".join([text, *contents]), headers


def read_document(body: bytes, length: str | None) -> dict[str, Array]:
    """Return the outputs of an HTTP response. ServingError: the body does not follow the protocol.

    Args:
        body: a JSON document, followed by the binary data of outputs.
        length: length of the document, from the header HEADER_LENGTH; None: all of the body.
    """
    content = memoryview(body)
    arrays: dict[str, Array] = {}
    try:
        end = len(body) if length is None else int(length)
        if not 0 <= end <= len(body):
            raise ValueError(f"{HEADER_LENGTH} is {length}, and the body has {len(body)} bytes")
        content, rest = content[:end], content[end:]
        for tensor in json.loads(bytes(content))["outputs"]:
            size = (tensor.get("parameters") or {}).get("binary_data_size")
            about = tensor["name"], tensor["datatype"], tensor["shape"]
            if size is None:
                arrays[about[0]] = from_values(*about, _flat(tensor["data"], about[1]))
            else:
                arrays[about[0]] = from_raw(*about, rest[:size])
                rest = rest[size:]
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        kind = type(error).__name__
        raise refused("infer-response-damaged", kind=kind, reason=error) from None
    if len(rest):
        raise refused("infer-binary-left", size=len(rest))
    return arrays


def of_outputs(error: ServingError) -> str:
    """Return an error's text with 'output' for the 'input' of the tensor checks."""
    return str(error).replace("input '", "output '")


def _values(name: str, array: Array) -> list[Any]:
    """Return values in row-major order for JSON."""
    if array.dtype.kind in "fV":
        return array.astype("float64").reshape(-1).tolist()
    if array.dtype.kind not in "OSU":
        return array.reshape(-1).tolist()
    try:
        return [string.decode() for string in strings(array)]
    except UnicodeDecodeError:
        raise Error("input-not-utf8", name=name) from None


def _flat(data: Any, datatype: str) -> Sequence[Any]:
    """Return the values of lists that may be nested."""
    values = data if type(data) is list else [data]
    while values and type(values[0]) is list:
        values = list(chain.from_iterable(values))
    return [value.encode() for value in values] if datatype == "BYTES" else values


def _without_width(array: Array) -> Array:
    """Return an array with strings as objects, which raw contents need."""
    return array.astype(object) if array.dtype.kind in "SU" else array
