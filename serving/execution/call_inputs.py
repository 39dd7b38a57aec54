"""The aliases of a call against those of a signature, refused in TensorFlow Serving's words."""

from collections.abc import Iterable, Mapping, Sequence

from deploykit.serving.protocol.codec import decode
from deploykit.serving.protocol.errors import refused
from deploykit.serving.protocol.signatures import Signature
from deploykit.transforms.core.tensors import Array


def with_defaults(signature: Signature, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return all inputs of a signature. ServingError: one is missing or not known."""
    defaults = signature.proto.defaults
    sent = {alias for alias in inputs if alias not in signature.inputs}
    missing = {a for a in signature.inputs if a not in inputs and a not in defaults}
    if len(inputs) != len(signature.inputs) and (sent or missing) and not defaults:
        raise refused(
            "signature-inputs-differ",
            count=len(inputs),
            expected_count=len(signature.inputs),
            names=as_set(inputs),
            expected=as_set(signature.inputs),
            extra=as_set(sent),
            missing=as_set(missing),
        )
    for alias in sorted(missing):
        raise refused(
            "signature-input-missing",
            alias=alias,
            name=signature.inputs[alias].name,
            expected=as_set(signature.inputs),
        )
    if sent:
        raise refused("signature-inputs-extra", extra=as_set(sent))
    given = {a: decode(defaults[a], a) for a in signature.inputs if a not in inputs}
    return {**inputs, **given}


def requested(signature: Signature, outputs: Sequence[str]) -> list[str]:
    """Return the aliases that are fetched. ServingError: one is not known, or twice there."""
    for number, alias in enumerate(outputs):
        if alias not in signature.outputs:
            raise refused("signature-output-missing", alias=alias, known=as_set(signature.outputs))
        if alias in outputs[:number]:
            raise refused("signature-output-twice", alias=alias)
    return list(outputs or signature.outputs)


def as_set(aliases: Iterable[str]) -> str:
    """Return aliases as TensorFlow Serving writes a set."""
    return f"{{{','.join(sorted(aliases))}}}"
