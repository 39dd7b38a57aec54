"""Messages and tensors of the Open Inference Protocol (KServe v2)."""

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deploykit.serving.protocol.codec import MAX_STRINGS, check_strings, varint, varints
from deploykit.serving.protocol.errors import ServingError, refused
from deploykit.serving.protocol.infer_parameters import (
    check_tensor,
    class_count,
    plain_parameters,
    requested_signature,
)
from deploykit.serving.protocol.protos import methods_of
from deploykit.serving.protocol.signatures import Tensor
from deploykit.serving.protocol.versions import check_name, check_names
from deploykit.transforms.ir.tensors import (
    MAX_DECLARED_BYTES,
    MAX_RANK,
    STRING_BYTES,
    Array,
    numpy_type,
    type_of,
)
from deploykit.transforms.untrusted.wire import fields

TYPES = {
    "BOOL": "bool", "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64",
    "INT8": "int8", "INT16": "int16", "INT32": "int32", "INT64": "int64", "FP16": "float16",
    "BF16": "bfloat16", "FP32": "float32", "FP64": "float64", "BYTES": "string",
}  # fmt: skip
"""The TensorFlow type of each datatype."""
_DATATYPES = {type_: datatype for datatype, type_ in TYPES.items()}
_LENGTH = struct.Struct("<I")  # precedes each element of BYTES


def datatype_of(type_: str) -> str:
    """Return the datatype of a TensorFlow type, or the type itself if the protocol has none."""
    return _DATATYPES.get(type_, type_)


def output_datatype(name: str, array: Array) -> str:
    """Return the datatype of an output. ServingError: the protocol has none."""
    type_ = type_of(array)
    if type_ not in _DATATYPES:
        raise ServingError("UNIMPLEMENTED", "output-without-datatype", name=name, type=type_)
    return _DATATYPES[type_]


def shape_of(tensor: Tensor) -> list[int]:
    """Return a shape for model metadata: -1 for an unknown size, [-1] for an unknown rank."""
    return [-1] if tensor.shape is None else [max(size, -1) for size in tensor.shape]


def value_count(name: str, datatype: str, shape: Sequence[int]) -> int:
    """Return the number of values of an input. ServingError: it is invalid or far too large."""
    check_name("the name of an input", name)
    if datatype not in TYPES:
        raise refused("infer-datatype-unknown", name=name, got=datatype[:40], known=TYPES)
    if len(shape) > MAX_RANK or min(shape, default=0) < 0:
        raise refused("infer-shape-invalid", name=name, shape=list(shape[:MAX_RANK]), most=MAX_RANK)
    itemsize = STRING_BYTES if datatype == "BYTES" else numpy_type(TYPES[datatype]).itemsize
    if math.prod([size or 1 for size in shape]) > MAX_DECLARED_BYTES // itemsize:
        raise refused(
            "infer-input-too-large",
            name=name,
            datatype=datatype,
            shape=shape,
            most=MAX_DECLARED_BYTES >> 30,
        )
    return math.prod(shape)


def from_raw(name: str, datatype: str, shape: Sequence[int], content: memoryview) -> Array:
    """Return an array from raw contents: row-major, little-endian; strings with length prefixes.

    The array is a view of `content`, except that strings are an object array of bytes.
    ServingError: the contents do not match datatype and shape.
    """
    count = value_count(name, datatype, shape)
    if datatype == "BYTES":
        return _strings(name, shape, count, content)
    dtype = numpy_type(TYPES[datatype])
    if len(content) != count * dtype.itemsize:
        raise refused(
            "infer-contents-size",
            name=name,
            datatype=datatype,
            shape=shape,
            count=len(content),
            what="bytes of raw contents",
            expected=count * dtype.itemsize,
        )
    array = np.frombuffer(content, dtype)
    if dtype.kind == "b" and count and array.view(np.uint8).max() > 1:
        raise refused("infer-bool-invalid", name=name)
    return array.reshape(shape)


def from_values(name: str, datatype: str, shape: Sequence[int], values: Sequence[Any]) -> Array:
    """Return an array from values in row-major order. ServingError: they do not match."""
    count = value_count(name, datatype, shape)
    if len(values) != count:
        raise refused(
            "infer-contents-size",
            name=name,
            datatype=datatype,
            shape=shape,
            count=len(values),
            what="values",
            expected=count,
        )
    dtype = numpy_type(TYPES[datatype])
    if datatype == "BYTES":
        array = np.empty(count, object)
        array[:] = values
        return array.reshape(shape)
    try:  # int8 and int16 arrive as int32
        wide = np.array(values, {"i": np.int64, "u": np.uint64}.get(dtype.kind, dtype))
        fits = dtype.kind not in "iu" or bool((wide == wide.astype(dtype)).all())
    except OverflowError:
        fits = False
    if not fits:
        limits = np.iinfo(dtype)
        raise refused(
            "infer-value-range", name=name, datatype=datatype, min=limits.min, max=limits.max
        )
    return wide.astype(dtype, copy=False).reshape(shape)


def to_raw(array: Array) -> bytes | memoryview:
    """Return the raw contents of an array, which may be a view of it."""
    if array.dtype.kind != "O":
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    return b"".join(part for item in strings(array) for part in (_LENGTH.pack(len(item)), item))


def strings(array: Array) -> list[bytes]:
    """Return the elements of a string array in row-major order."""
    items = array.reshape(-1).tolist()
    return [item if isinstance(item, bytes) else str(item).encode() for item in items]


def _strings(name: str, shape: Sequence[int], count: int, content: memoryview) -> Array:
    results: list[bytes] = []
    place, stop = 0, len(content)
    whole = bytes(content)  # slicing bytes takes a quarter of the time of slicing a view
    if count * _LENGTH.size <= stop:  # each has a length prefix
        while place + _LENGTH.size <= stop and len(results) < count:
            (length,) = _LENGTH.unpack_from(whole, place)
            place += _LENGTH.size
            if length > stop - place:
                break
            results.append(whole[place : place + length])
            place += length
    if len(results) != count or place != stop:
        raise refused("infer-strings-invalid", name=name, shape=shape, size=stop, count=count)
    array = np.empty(count, object)
    array[:] = results
    return array.reshape(shape)


INFERENCE_SERVICE = "inference.GRPCInferenceService"
SERVER_NAME, PLATFORM = "deploykit", "tensorflow_savedmodel"
BINARY = "binary_tensor_data"
"""The extension for binary data over HTTP."""
EXTENSIONS = (BINARY, "classification", "parameters")
HEADER_LENGTH = "Inference-Header-Content-Length"
"""The header with the length of a JSON document that binary data follows."""

METHODS = methods_of(INFERENCE_SERVICE)
_messages: dict[str, Any] = {
    message.DESCRIPTOR.name: message for messages in METHODS.values() for message in messages
}
ModelInferRequest: Any = _messages["ModelInferRequest"]
ModelInferResponse: Any = _messages["ModelInferResponse"]

RAW_INPUT, RAW_OUTPUT = 7, 6
"""The field numbers of raw contents in ModelInferRequest and ModelInferResponse."""
MAX_NUMBER_BYTES = 16 << 20
"""Limit for integers in the typed contents of a request."""
_MAX_FIELDS = 4096  # per request: inputs, outputs and raw contents
_INPUTS, _CONTENTS_FIELD, _PLAIN_FIELDS = 5, 5, (6, 7, 8)  # fp32, fp64 and bytes_contents
_CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents",
    "INT32": "int_contents", "INT64": "int64_contents", "UINT8": "uint_contents",
    "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip
"""The typed field of each datatype; FP16 and BF16 have none."""


def message(name: str) -> Any:
    """Return the class of a message, such as `ServerLiveResponse`."""
    return _messages[name]


@dataclass(frozen=True)
class InferRequest:
    """A request over gRPC or HTTP."""

    model: str
    version: str = ""
    """Empty: the server chooses."""
    signature: str = ""
    """Empty: the default one."""
    id: str = ""
    inputs: Mapping[str, Array] = field(default_factory=dict)
    outputs: Sequence[str] = ()
    """Empty: all."""
    classes: Mapping[str, int] = field(default_factory=dict)
    """For some outputs, the number of best classes to return instead."""


@dataclass(frozen=True)
class InferResponse:
    """A response over gRPC or HTTP."""

    model: str
    version: str
    id: str
    outputs: Mapping[str, Array]


def split_request(content: bytes, raw_field: int = RAW_INPUT) -> tuple[bytes, list[memoryview]]:
    """Return a ModelInferRequest without its raw contents, and these. GraphError: it is damaged.

    With RAW_OUTPUT, it is a ModelInferResponse.
    """
    view = memoryview(content)
    head: list[bytes | memoryview] = []
    raw: list[memoryview] = []
    place = 0
    for start, begin, end in fields(content, raw_field, most=_MAX_FIELDS):
        head.append(view[place:start])
        raw.append(view[begin:end])
        place = end
    return b"".join([*head, view[place:]]), raw


def check_typed_contents(head: bytes) -> None:
    """Raise ServingError for integers that would need far more memory than they have bytes.

    An integer of one byte takes 8 bytes when parsed. Floats and long strings do not grow.
    `head` is the first value of `split_request`. GraphError: it is damaged.
    """
    if len(head) <= MAX_NUMBER_BYTES:
        return
    plain = 0
    for _, begin, end in fields(head, _INPUTS, most=_MAX_FIELDS):
        tensor = head[begin:end]
        for _, first, last in fields(tensor, _CONTENTS_FIELD, most=_MAX_FIELDS):
            contents = tensor[first:last]
            for number in _PLAIN_FIELDS:
                result = fields(contents, number, most=MAX_STRINGS)
                plain += sum(last - first for _, first, last in result)
    if len(head) - plain > MAX_NUMBER_BYTES:
        raise refused("infer-typed-contents-too-large", most=MAX_NUMBER_BYTES >> 20)


def read_request(request: Any, raw: Sequence[memoryview]) -> InferRequest:
    """Return the contents of a ModelInferRequest. ServingError: an input is invalid."""
    if raw and len(raw) != len(request.inputs):
        raise refused("infer-raw-inputs-count", count=len(request.inputs), raw_count=len(raw))
    check_name("the id of the request", request.id)
    sizes = {number: value_count(one.name, one.datatype, one.shape)
             for number, one in enumerate(request.inputs) if one.datatype == "BYTES"}  # fmt: skip
    check_strings(sum(sizes.values()))
    inputs: dict[str, Array] = {}
    for number, tensor in enumerate(request.inputs):
        if tensor.name in inputs:
            raise refused("infer-twice", what="input", name=tensor.name)
        check_tensor(plain_parameters(tensor.parameters), f"input '{tensor.name}'")
        inputs[tensor.name] = tensor_array(tensor, raw[number] if raw else None)
    outputs = [output.name for output in request.outputs]
    check_names("the name of an output", outputs)
    classes = {
        output.name: count
        for output in request.outputs
        if (count := class_count(plain_parameters(output.parameters), f"output '{output.name}'"))
    }
    return InferRequest(
        request.model_name,
        request.model_version,
        requested_signature(plain_parameters(request.parameters)),
        request.id,
        inputs,
        outputs,
        classes,
    )


def write_response(response: InferResponse, is_raw: bool) -> bytes:
    """Return the bytes of a ModelInferResponse; FP16 and BF16 require raw contents.

    ServingError: the protocol has no datatype for an output.
    """
    datatypes = {name: output_datatype(name, item) for name, item in response.outputs.items()}
    is_raw = is_raw or not set(datatypes.values()) <= _CONTENTS.keys()
    head = ModelInferResponse(
        model_name=response.model, model_version=response.version, id=response.id
    )
    for name, array in response.outputs.items():
        datatype = datatypes[name]
        tensor = head.outputs.add(name=name, datatype=datatype, shape=array.shape)
        if not is_raw:
            _fill(tensor.contents, _CONTENTS[datatype], array)
    return with_raw(head, RAW_OUTPUT, response.outputs.values() if is_raw else ())


def _fill(contents: Any, field: str, array: Array) -> None:
    """Fill a typed field; setting it number by number would take 70 times as long."""
    if array.dtype.kind == "O":
        contents.bytes_contents.extend(strings(array))
        return
    flat = np.ascontiguousarray(array).reshape(-1)
    packed = varints(flat) if flat.dtype.kind in "iu" else flat.tobytes()
    tag = contents.DESCRIPTOR.fields_by_name[field].number << 3 | 2
    contents.MergeFromString(b"".join((varint(tag), varint(len(packed)), packed)))


def with_raw(head: Any, raw_field: int, arrays: Iterable[Array]) -> bytes:
    """Return the bytes of a message followed by the raw contents of arrays."""
    pieces: list[bytes | memoryview] = [head.SerializeToString()]
    for array in arrays:
        content = to_raw(array)
        pieces += (varint(raw_field << 3 | 2) + varint(len(content)), content)
    return b"".join(pieces)


def tensor_array(tensor: Any, raw: memoryview | None) -> Array:
    """Return the array of a message's tensor, from `raw` contents if given.

    ServingError: the contents do not match datatype and shape.
    """
    if raw is not None:
        if tensor.HasField("contents"):
            raise refused("infer-input-two-contents", name=tensor.name)
        return from_raw(tensor.name, tensor.datatype, tensor.shape, raw)
    if tensor.datatype in ("FP16", "BF16"):
        raise refused("infer-input-needs-raw", name=tensor.name, datatype=tensor.datatype)
    right = _CONTENTS.get(tensor.datatype, "bytes_contents")
    fields = {field.name for field, _ in tensor.contents.ListFields()}
    if fields - {right} and tensor.datatype in _CONTENTS:
        raise refused(
            "infer-contents-field",
            name=tensor.name,
            datatype=tensor.datatype,
            got=sorted(fields),
            expected=right,
        )
    values = getattr(tensor.contents, right)
    return from_values(tensor.name, tensor.datatype, tensor.shape, values)
