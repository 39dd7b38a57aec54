"""A model with its signatures: inputs and outputs by the aliases that clients use."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from deploykit.importers.meta_graphs import (
    chosen_signature,
    inputs_by_alias,
    signature_sides,
    signatures,
)
from deploykit.importers.metadata_file import SignatureNames
from deploykit.importers.model_files import ModelFiles, function_to_load
from deploykit.importers.model_source import Interface, ModelSource
from deploykit.importers.open_model import OpenedModel, open_files, open_model
from deploykit.serving.protocol.signatures import DEFAULT, HIDDEN, PREDICT, Tensor, tensor_of
from deploykit.serving.saved_model.proto import tensors_of
from deploykit.transforms.common.errors import GraphError, naming, nearest
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, normal, producer_name, split
from deploykit.transforms.ir.protos import MetaGraphDef, SignatureDef, TensorInfo
from deploykit.transforms.ir.tensors import DType


@dataclass(frozen=True)
class NamedModel:
    """A frozen graph with one signature, its tensors by alias, and its other signatures."""

    graph: Graph
    signature: str
    method: str
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    others: "Sequence[NamedModel]" = ()


def callee_of_graph(
    graph: Graph, signatures: Mapping[str, SignatureNames], chosen: str | None = None
) -> NamedModel:
    """Return a graph with its known signatures.

    The chosen signature (else the default or the first) also gets the inputs and outputs that no
    signature contains, under their own names. GraphError: the chosen signature does not exist.
    """
    known = dict(signatures)
    if chosen is not None and known and chosen not in known:
        raise GraphError(
            "export-signature-unknown",
            name=chosen,
            hint=nearest(chosen, list(known)),
            known=known,
        )
    name = chosen or (DEFAULT if DEFAULT in known or not known else next(iter(known)))
    first = known.pop(name, SignatureNames({}, {}))
    named = first, *known.values()
    inputs = {t: t for t in graph.inputs if not any(t in s.inputs.values() for s in named)}
    outputs = {t: t for t in graph.outputs if not any(t in s.outputs.values() for s in named)}
    first = replace(first, inputs={**first.inputs, **inputs}, outputs={**first.outputs, **outputs})
    tensors = tensors_of(graph, {*graph.inputs, *graph.outputs})

    def callee(name: str, names: SignatureNames) -> NamedModel:
        sides = [{alias: tensors[t] for alias, t in side.items()}
                 for side in (names.inputs, names.outputs)]  # fmt: skip
        return NamedModel(graph, name, names.method, sides[0], sides[1])

    others = tuple(callee(item, names) for item, names in known.items() if names.outputs)
    return replace(callee(name, first), others=others)


def open_named_model(source: ModelSource) -> tuple[OpenedModel, NamedModel]:
    """Open and freeze a model; signatures of a SavedModel keep names, methods and aliases.

    All signatures are retained if there is a default one and the source specifies no signature,
    inputs or outputs. For a model without signatures, the source names the new one. It raises
    the errors of `open_model`.
    """
    if not isinstance(source.model, str | os.PathLike):
        opened = open_model(source)
        return opened, callee_of_graph(opened.frozen, opened.signatures, source.signature)
    files = ModelFiles(source)
    with naming(source.model):
        names = _all_signatures(files, source)
        opened = open_files(files, _naming_all(files.meta, source, names) if names else source)
    return opened, _callee(opened, source, names)


def _callee(opened: OpenedModel, source: ModelSource, names: Sequence[str]) -> NamedModel:
    """Return the named model of an opened model with one or several signatures."""
    files, frozen, pins = opened.files, opened.frozen, source.pins
    assert files is not None
    if files.kind in ("graph", "keras") or source.graph is not None:
        return callee_of_graph(frozen, opened.signatures, source.signature)
    meta, interface = files.meta, source.interface
    if function_to_load(meta, interface.signature) is not None:
        return callee_of_graph(frozen, opened.signatures, source.signature)
    name = chosen_signature(meta, interface.signature)
    if name is None:
        return callee_of_graph(frozen, {})
    if names:
        tensors = iter(frozen.outputs)
        results = {}
        for item in names:
            fed, fetched = signature_sides(meta, item)
            outputs = dict(zip(fetched, islice(tensors, len(fetched)), strict=True))
            results[item] = _signed(
                frozen, meta, item, inputs_by_alias(frozen, fed), outputs, pins or {}
            )
        chosen = results.pop(name)
        return replace(chosen, others=tuple(results.values()))
    fed, fetched = signature_sides(meta, name)
    outputs = dict(zip(interface.outputs or fetched, frozen.outputs, strict=True))
    if interface.inputs:
        named = {alias: fed.get(alias, alias) for alias in interface.inputs}
        return _signed(frozen, meta, name, inputs_by_alias(frozen, named), outputs, None)
    inputs = inputs_by_alias(frozen, fed)
    guessed = {tensor: tensor for tensor in frozen.inputs if tensor not in inputs.values()}
    return _signed(frozen, meta, name, inputs | guessed, outputs, pins)


def _all_signatures(files: ModelFiles, source: ModelSource) -> list[str]:
    """Return the signatures of a SavedModel if all of them are retained, else []."""
    requested = replace(source.interface, tags=())
    if files.kind != "saved_model" or source.graph is not None or requested != Interface():
        return []
    names = signatures(files.meta)
    return names if len(names) > 1 and DEFAULT in names else []


def _naming_all(meta: MetaGraphDef, source: ModelSource, names: Sequence[str]) -> ModelSource:
    """Return a source with the inputs and outputs of several signatures.

    Boolean inputs are omitted: they may be training switches, which freezing turns off.
    """
    sides = [signature_sides(meta, name) for name in names]
    switches = {
        normal(info.name)
        for name in names
        for info in meta.signature_def[name].inputs.values()
        if tensor_of(info).dtype == "bool"
    }
    fed = [tensor for side, _ in sides for tensor in side.values() if tensor not in switches]
    fetched = [tensor for _, side in sides for tensor in side.values()]
    inputs = [_with_port(item) for item in dict.fromkeys(fed)]
    outputs = [_with_port(item) for item in fetched]
    return replace(source, inputs=inputs, outputs=outputs, signature=DEFAULT)


def _with_port(tensor: str) -> str:
    """Return a tensor's name with its port, a form that no alias has."""
    return "{}:{}".format(*split(tensor))


def _signed(
    graph: Graph,
    meta: MetaGraphDef,
    name: str,
    inputs: dict[str, str],
    outputs: Mapping[str, str],
    pins: Mapping[str, str] | None,
) -> NamedModel:
    """Return a named model for a signature; inputs may be missing if `pins` is None."""
    signed: SignatureDef = meta.signature_def[name]
    for alias, info in sorted(signed.inputs.items()):
        if pins is not None and alias not in inputs and _is_open(info, pins):
            inputs[alias] = _add_idle(graph, tensor_of(info))
    tensors = tensors_of(graph, {*inputs.values(), *outputs.values()})
    return NamedModel(
        graph,
        name,
        signed.method_name or PREDICT,
        {alias: _refined(tensors[t], signed.inputs, alias) for alias, t in sorted(inputs.items())},
        {
            alias: _refined(tensors[t], signed.outputs, alias)
            for alias, t in sorted(outputs.items())
        },
    )


def _is_open(info: TensorInfo, pins: Mapping[str, str]) -> bool:
    """Return whether an input that the graph lacks is unused, not a pinned switch."""
    is_dense = info.WhichOneof("encoding") == "name"
    return is_dense and tensor_of(info).dtype != "bool" and producer_name(info.name) not in pins


def _add_idle(graph: Graph, tensor: Tensor) -> str:
    """Add an unused input, because clients send it."""
    name = graph.unique_name(producer_name(tensor.name))
    placeholder = Node(name, "Placeholder").with_attrs(dtype=DType(tensor.dtype))
    if tensor.shape is not None:
        placeholder = placeholder.with_attrs(shape=tensor.shape)
    graph.add(placeholder)
    graph.inputs = (*graph.inputs, name)
    return name


def _refined(tensor: Tensor, infos: Mapping[str, TensorInfo], alias: str) -> Tensor:
    """Return a tensor with the shape of the signature, if the signature has one."""
    if alias not in infos or infos[alias].WhichOneof("encoding") != "name":
        return tensor
    declared = tensor_of(infos[alias])
    return tensor if declared.shape is None else Tensor(tensor.name, tensor.dtype, declared.shape)


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


def with_copied_inputs(callee: NamedModel) -> NamedModel:
    """Return a model in which an output that is an input is a copy of it, in all signatures.

    TensorFlow refuses a request that feeds and fetches the same tensor.
    """
    graph = callee.graph.copy()
    chosen, *others = (_with_copies(graph, each) for each in (callee, *callee.others))
    return replace(chosen, others=tuple(others))


def _with_copies(graph: Graph, callee: NamedModel) -> NamedModel:
    fed = {normal(tensor.name) for tensor in callee.inputs.values()}
    outputs = dict(callee.outputs)
    for alias, tensor in outputs.items():
        if (name := normal(tensor.name)) in fed:
            copy = Node(graph.unique_name(f"{producer_name(name)}/output"), "Identity", (name,))
            graph.add(copy.with_attrs(T=DType(tensor.dtype)))
            outputs[alias] = replace(tensor, name=f"{copy.name}:0")
    return replace(callee, graph=graph, outputs=outputs)


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
