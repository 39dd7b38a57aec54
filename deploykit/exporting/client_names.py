"""Names that existing clients use for a model's signature, inputs and outputs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from deploykit.exporting.named_model import NamedModel
from deploykit.serving.protocol.signatures import DEFAULT, HIDDEN, Tensor
from deploykit.transforms.common.errors import GraphError, nearest
from deploykit.transforms.ir.node import normal
from deploykit.transforms.ir.protos import SignatureDef

_RESERVED = HIDDEN.rstrip("_")


def with_aliases(
    callee: NamedModel, inputs: Mapping[str, str], outputs: Mapping[str, str]
) -> NamedModel:
    """Return a model with renamed aliases of inputs and outputs.

    Args:
        callee: the model; its other signatures keep their aliases.
        inputs: tensor names or current aliases, by new alias.
        outputs: the same for outputs. Tensors that are not listed keep their alias.

    GraphError: an input or output does not exist, or an alias would be ambiguous.
    """
    return replace(
        callee,
        inputs=_renamed("input", callee.inputs, inputs),
        outputs=_renamed("output", callee.outputs, outputs),
    )


def signature_names(given: str | Sequence[str] | None) -> list[str]:
    """Return the names of a signature as a validated list.

    GraphError: a name is empty, duplicated, or reserved by TensorFlow.
    """
    if given is None:
        return []
    names = [given] if isinstance(given, str) else list(given)
    if not names:
        raise GraphError("signature-name-empty")
    for name in names:
        _check_name("--signature-name", name)
        if name.startswith(_RESERVED):
            raise GraphError("signature-name-reserved", prefix=_RESERVED, name=name)
        if names.count(name) > 1:
            raise GraphError("signature-name-twice", name=name)
    return names


def with_names(
    signatures: Mapping[str, SignatureDef], names: Sequence[str], chosen: str
) -> tuple[dict[str, SignatureDef], dict[str, str]]:
    """Return signatures with the default one renamed to `names`.

    The signature `chosen` is also removed if it equals the default one. The second value maps each
    removed name to the first new name.
    GraphError: another signature already has one of the names.
    """
    if not names:
        return dict(signatures), {}
    given = signatures[DEFAULT]
    gone = {DEFAULT, *(n for n, item in signatures.items() if n == chosen and item == given)}
    retained = {name: item for name, item in signatures.items() if name not in gone}
    for name in names:
        if name in retained:
            raise GraphError("signature-name-taken", name=name, taken=retained)
    return retained | dict.fromkeys(names, given), dict.fromkeys(gone, names[0])


def _renamed(
    side: str, tensors: Mapping[str, Tensor], given: Mapping[str, str]
) -> dict[str, Tensor]:
    option = f"--{side}-alias"
    by_tensor = {normal(tensor.name): alias for alias, tensor in tensors.items()}
    new: dict[str, str] = {}
    for alias, name in given.items():
        _check_name(option, alias)
        old = name if name in tensors else by_tensor.get(normal(name))
        if old is None:
            known = [*tensors, *by_tensor]
            raise GraphError(
                "alias-unknown-name",
                option=option,
                alias=alias,
                name=name,
                side=side,
                hint=nearest(name, known),
                known=tensors,
            )
        if old in new:
            raise GraphError(
                "alias-twice", option=option, alias=alias, name=name, side=side, existing=new[old]
            )
        new[old] = alias
    result: dict[str, Tensor] = {}
    for old, tensor in tensors.items():
        alias = new.get(old, old)
        if alias in result:
            raise GraphError(
                "alias-ambiguous", source=option, alias=alias, side=side, known=tensors
            )
        result[alias] = tensor
    return result


def _check_name(option: str, name: str) -> None:
    if not name or not name.isprintable() or name != name.strip():
        raise GraphError("name-not-printable", source=option, name=name)
