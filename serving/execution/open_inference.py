"""Model metadata and checks of the Open Inference Protocol: versions, signatures and datatypes.

Like the data plane it knows arrays and names, and neither gRPC nor HTTP.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from deploykit.serving.protocol.codec import check_strings
from deploykit.serving.protocol.errors import refused
from deploykit.serving.protocol.open_inference import (
    HEADER_LENGTH,
    PLATFORM,
    TYPES,
    datatype_of,
    from_raw,
    shape_of,
)
from deploykit.serving.protocol.signatures import DEFAULT, Signature, Tensor
from deploykit.serving.protocol.versions import AVAILABLE, VersionStatus
from deploykit.transforms.ir.tensors import Array, numpy_type, type_of

_NUMBERS = set(TYPES.values()) - {"bool", "string"}


def chosen_signature(model: str, named: str, signatures: Mapping[str, Signature]) -> str:
    """Return the signature of a request: the named one, the default, or the only one.

    ServingError: it does not exist, or there are several without a default.
    """
    name = named or (DEFAULT if DEFAULT in signatures else "")
    if not name and len(signatures) == 1:
        name = next(iter(signatures))
    if name in signatures:
        return name
    if named:
        raise refused("infer-signature-missing", model=model, name=name, known=signatures)
    raise refused("infer-signature-not-named", model=model, name=DEFAULT, known=signatures)


def check_inputs(signature: Signature, inputs: Mapping[str, Array]) -> None:
    """Raise ServingError if inputs have other names or datatypes than the signature."""
    for name, array in inputs.items():
        if name not in signature.inputs:
            raise refused("infer-input-unexpected", name=name, expected=_listed(signature.inputs))
        requested, got = signature.inputs[name].dtype, type_of(array)
        if requested != got:
            raise refused(
                "infer-input-datatype",
                name=name,
                got=datatype_of(got),
                expected=datatype_of(requested),
            )
    for name in signature.inputs:
        if name not in inputs and name not in signature.proto.defaults:
            raise refused("infer-input-missing", name=name, expected=_listed(signature.inputs))


def check_outputs(signature: Signature, outputs: Sequence[str]) -> None:
    """Raise ServingError for outputs that the signature does not have."""
    for name in outputs:
        if name not in signature.outputs:
            raise refused("infer-output-unknown", name=name, expected=_listed(signature.outputs))


def only_input(model: str, signature: Signature, content: memoryview) -> dict[str, Array]:
    """Return the only input of a model from its raw contents, without a shape or length prefixes.

    Strings are one string. One unknown size follows from the number of bytes.
    ServingError: there are other inputs, several unknown sizes, or the bytes do not fit.
    """
    if len(signature.inputs) != 1:
        raise refused("infer-raw-body-inputs", model=model, expected=_listed(signature.inputs))
    [(name, tensor)] = signature.inputs.items()
    shape = shape_of(tensor)
    unknown = [number for number, size in enumerate(shape) if size < 0]
    known = math.prod(size for size in shape if size >= 0)
    is_text = tensor.dtype == "string"
    if (known != 1) if is_text else len(unknown) > 1:
        raise refused(
            "infer-raw-body-shape",
            expected=_listed(signature.inputs),
            header=HEADER_LENGTH,
        )
    if is_text:
        return {name: np.array([bytes(content)], object).reshape([1] * len(shape))}
    row = known * numpy_type(tensor.dtype).itemsize
    for number in unknown:
        if len(content) % row if row else len(content):
            raise refused("infer-raw-body-size", name=name, size=len(content), row=row)
        shape[number] = len(content) // row if row else 0
    return {name: from_raw(name, datatype_of(tensor.dtype), shape, content)}


def check_classes(signature: Signature, classes: Mapping[str, int]) -> None:
    """Raise ServingError if the best classes of an output are requested that has no numbers."""
    for name in classes:
        if (dtype := signature.outputs[name].dtype) not in _NUMBERS:
            raise refused("infer-classes-datatype", name=name, got=datatype_of(dtype))


def with_classes(
    signature: Signature,
    outputs: Mapping[str, Array],
    classes: Mapping[str, int],
    labels: Sequence[str],
) -> dict[str, Array]:
    """Return outputs with some replaced by their best classes, as strings `value:index[:label]`.

    The first axis is the batch if its size is unknown in the signature. Labels apply to outputs
    with as many values as there are labels. ServingError: there are too many strings.
    """
    results = dict(outputs)
    for name, most in classes.items():
        array, declared = outputs[name], signature.outputs[name].shape
        is_batch = array.ndim > 0 and (declared is None or declared[:1] == (-1,))
        rows = len(array) if is_batch else 1
        values = array.reshape(rows, math.prod(array.shape[int(is_batch) :]))
        count = min(most, values.shape[1])
        check_strings(rows * count)
        best = _best_classes(values, count, labels if len(labels) == values.shape[1] else ())
        results[name] = best if is_batch else best[0]
    return results


def _best_classes(values: Array, count: int, labels: Sequence[str]) -> Array:
    """Return the best classes of each row, best first, ties in class order and NaN last."""
    if values.dtype.kind not in "iu":
        values = values.astype(np.float64)
    ranked = np.where(values == values, values, -np.inf) if values.dtype.kind == "f" else values
    order = np.argsort(ranked[:, ::-1], axis=1, kind="stable")[:, ::-1][:, :count]
    indices = values.shape[1] - 1 - order
    form = "%f:%d" if values.dtype.kind == "f" else "%d:%d"
    best = np.take_along_axis(values, indices, axis=1).ravel().tolist()
    result = np.empty(indices.size, object)
    for number, pair in enumerate(zip(best, indices.ravel().tolist(), strict=True)):
        text = form % pair
        result[number] = (f"{text}:{labels[pair[1]]}" if labels else text).encode()
    return result.reshape(indices.shape)


@dataclass(frozen=True)
class TensorMetadata:
    """A tensor of a model as in a ModelMetadataResponse."""

    name: str
    datatype: str
    shape: Sequence[int]
    """-1 for an unknown size."""

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> "list[TensorMetadata]":
        """Return the metadata of a signature's inputs or outputs."""
        return [
            cls(name, datatype_of(tensor.dtype), shape_of(tensor))
            for name, tensor in tensors.items()
        ]


@dataclass(frozen=True)
class ModelMetadata:
    """A model: its available versions, and the tensors of a signature."""

    name: str
    versions: Sequence[str]
    platform: str
    inputs: Sequence[TensorMetadata]
    outputs: Sequence[TensorMetadata]


def is_available(statuses: Iterable[VersionStatus]) -> bool:
    """Return whether one of these versions is available."""
    return any(status.state == AVAILABLE for status in statuses)


def model_metadata(
    name: str, signatures: Mapping[str, Signature], statuses: Iterable[VersionStatus]
) -> ModelMetadata:
    """Return the metadata of a model. ServingError: it has several signatures and no default."""
    signature = signatures[chosen_signature(name, "", signatures)]
    versions = [str(status.version) for status in statuses if status.state == AVAILABLE]
    inputs, outputs = map(TensorMetadata.of, (signature.inputs, signature.outputs))
    return ModelMetadata(name, versions, PLATFORM, inputs, outputs)


def _listed(tensors: Mapping[str, Tensor]) -> list[str]:
    return [f"'{item.name}' ({item.datatype} {list(item.shape)})"
            for item in TensorMetadata.of(tensors)]  # fmt: skip
