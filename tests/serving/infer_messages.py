"""ModelInferRequest made, and ModelInferResponse read, with protobuf's own classes."""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from deploykit.transforms.ir.protos import private_messages

_Request: Any = private_messages("inference", ["ModelInferRequest"])["ModelInferRequest"]
FIELDS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents",
    "INT32": "int_contents", "INT64": "int64_contents", "UINT8": "uint_contents",
    "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip


def infer(*tensors: Any, model: str = "m", raw: Sequence[bytes] = (), **fields: str) -> Any:
    """Return a request with these tensors."""
    return _Request(model_name=model, inputs=tensors, raw_input_contents=raw, **fields)


def tensor_of(name: str, datatype: str, shape: Sequence[int], **contents: Sequence[Any]) -> Any:
    """Return a tensor with typed contents, right or wrong."""
    made = _Request.InferInputTensor(name=name, datatype=datatype, shape=shape)
    for field, values in contents.items():
        getattr(made.contents, field).extend(values)
    return made


def raw_of(array: np.ndarray) -> bytes:
    """Return the raw contents of an array."""
    if array.dtype != object:
        return array.tobytes()
    return b"".join(struct.pack("<I", len(each)) + each for each in array.reshape(-1).tolist())


def with_tensor(request: Any, name: str, datatype: str, array: np.ndarray, raw: bool) -> None:
    """Put an array into a request."""
    if raw:
        request.inputs.append(tensor_of(name, datatype, array.shape))
        request.raw_input_contents.append(raw_of(array))
    else:
        values = {FIELDS[datatype]: array.reshape(-1).tolist()}
        request.inputs.append(tensor_of(name, datatype, array.shape, **values))


def values_of(output: Any) -> list[Any]:
    """Return the typed contents of an output; others must be empty."""
    [(field, values)] = output.contents.ListFields() or [(None, [])]
    assert field is None or field.name == FIELDS[output.datatype]
    return list(values)
