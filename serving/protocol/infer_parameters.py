"""Parameters of Open Inference Protocol requests: some apply, some are refused, others are ignored.

A parameter is refused if it changes what a response means and the server does not support it.
Names and values are those of Triton's extensions. Values are plain Python: None is unset.
https://github.com/triton-inference-server/server/tree/main/docs/protocol
"""

from collections.abc import Mapping
from typing import Any

from deploykit.serving.protocol.errors import refused, shown

SIGNATURE_NAME = "signature_name"
"""The parameter of a request that selects a signature."""
CLASSIFICATION = "classification"
"""The parameter of an output with the number of best classes to return instead of the tensor."""
_SEQUENCE, _MEMORY = "sequences", "shared memory"
_UNSUPPORTED = {"sequence_id": _SEQUENCE, "sequence_start": _SEQUENCE, "sequence_end": _SEQUENCE}
_UNSUPPORTED_OF_TENSORS = {"shared_memory_region": _MEMORY}
_UNUSED = (None, 0, "")  # false is 0
_MOST_CLASSES = (1 << 31) - 1

Parameters = Mapping[str, Any]


def plain_parameters(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `parameters` of a gRPC message as plain values."""
    kinds = ((name, value, value.WhichOneof("parameter_choice")) for name, value in message.items())
    return {name: getattr(value, kind) if kind else None for name, value, kind in kinds}


def requested_signature(parameters: Parameters) -> str:
    """Return the signature named by a request's parameters, or an empty name.

    ServingError: it is not a string, or the request is part of a sequence.
    """
    _check(parameters, _UNSUPPORTED, "the request")
    signature = parameters.get(SIGNATURE_NAME, "")
    if type(signature) is not str:
        raise refused("infer-parameter-not-string", name=SIGNATURE_NAME)
    return signature


def check_tensor(parameters: Parameters, where: str) -> None:
    """Raise ServingError if a tensor is in shared memory."""
    _check(parameters, _UNSUPPORTED_OF_TENSORS, where)


def class_count(parameters: Parameters, where: str) -> int:
    """Return the number of best classes requested of an output; 0 for the tensor itself.

    ServingError: it is not a number of classes, or the output belongs in shared memory.
    """
    check_tensor(parameters, where)
    count = parameters.get(CLASSIFICATION)
    if count is None:
        return 0
    if type(count) is not int or not 0 <= count <= _MOST_CLASSES:
        raise refused(
            "infer-field-type",
            what=f"the parameter '{CLASSIFICATION}'",
            got=shown(count),
            expected=f"a whole number from 0 to {_MOST_CLASSES}",
        ).within(where)
    return count


def _check(parameters: Parameters, unsupported: Mapping[str, str], where: str) -> None:
    for name, feature in unsupported.items():
        if (value := parameters.get(name)) not in _UNUSED:
            raise refused(
                "infer-parameter-unsupported", name=name, got=shown(value), feature=feature
            ).within(where)
