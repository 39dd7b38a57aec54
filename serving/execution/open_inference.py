"""Model metadata and checks of the Open Inference Protocol: versions, signatures and datatypes.

Like the data plane it knows arrays and names, and neither gRPC nor HTTP.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from deploykit.serving.protocol.errors import refused
from deploykit.serving.protocol.open_inference import PLATFORM, datatype_of, shape_of
from deploykit.serving.protocol.signatures import DEFAULT, Signature, Tensor
from deploykit.serving.protocol.versions import AVAILABLE, VersionStatus
from deploykit.transforms.ir.tensors import Array, type_of


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
