"""How a model is called: its inputs and outputs by the names that its callers know."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from deploykit.freezing.freeze import freeze_as, parse_meta_graph
from deploykit.freezing.interface import Interface
from deploykit.freezing.meta_graphs import chosen_signature, signature_sides, signatures
from deploykit.freezing.model_path import Location, locate
from deploykit.freezing.saved_models import function_to_load
from deploykit.serving.protocol.protos import MetaGraphDef, SignatureDef, TensorInfo
from deploykit.serving.protocol.signatures import DEFAULT, PREDICT, Tensor, tensor_of
from deploykit.serving.saved_model.proto import tensors_of
from deploykit.storage.files import naming
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.node import Node, normal, producer_name, split
from deploykit.transforms.core.ops import FEEDABLE_OPS
from deploykit.transforms.core.tensors import DType


@dataclass(frozen=True)
class Callee:
    """A frozen graph and how it is called: one signature with its tensors by alias, and others."""

    graph: Graph
    signature: str
    method: str
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    others: "Sequence[Callee]" = ()


def callee_of_graph(graph: Graph, signature: str | None = None) -> Callee:
    """Return a graph with a signature that calls its tensors by their own names."""
    found = tensors_of(graph, (*graph.inputs, *graph.outputs))
    inputs = {name: found[name] for name in graph.inputs}
    outputs = {name: found[name] for name in graph.outputs}
    return Callee(graph, signature or DEFAULT, PREDICT, inputs, outputs)


def read_callee(
    model: str | Path,
    interface: Interface,
    *,
    graph: str | Path | None = None,
    pins: Mapping[str, str] | None = None,
) -> Callee:
    """Read a model, frozen; the signatures of a SavedModel keep names, methods and aliases.

    All of them stay where there is a default one and the interface names neither a signature nor
    inputs nor outputs. Arguments and errors are those of `freeze`; of a model without signatures,
    the interface says what its own is called.
    """
    location = locate(model)
    with naming(model):
        names = _all_signatures(location, interface)
        asked = _naming_all(location, interface, names) if names else interface
    frozen = freeze_as(model, asked, graph=graph, pins=pins)
    if location.kind in ("graph", "keras") or graph is not None:
        return callee_of_graph(frozen, interface.signature)
    meta = parse_meta_graph(location, interface.tags)
    if function_to_load(meta, interface.signature) is not None:
        return callee_of_graph(frozen, interface.signature)
    name = chosen_signature(meta, interface.signature)
    if name is None:
        return callee_of_graph(frozen)
    if names:
        tensors = iter(frozen.outputs)
        found = {}
        for each in names:
            fed, fetched = signature_sides(meta, each)
            outputs = dict(zip(fetched, islice(tensors, len(fetched)), strict=True))
            found[each] = _signed(frozen, meta, each, _inputs(frozen, fed), outputs, pins or {})
        chosen = found.pop(name)
        return replace(chosen, others=tuple(found.values()))
    fed, fetched = signature_sides(meta, name)
    outputs = dict(zip(interface.outputs or fetched, frozen.outputs, strict=True))
    if interface.inputs:
        named = {alias: fed.get(alias, alias) for alias in interface.inputs}
        return _signed(frozen, meta, name, _inputs(frozen, named), outputs, None)
    inputs = _inputs(frozen, fed)
    guessed = {tensor: tensor for tensor in frozen.inputs if tensor not in inputs.values()}
    return _signed(frozen, meta, name, inputs | guessed, outputs, pins or {})


def _all_signatures(location: Location, interface: Interface) -> list[str]:
    """Return the signatures of a SavedModel where all of them are to be kept, or none."""
    if location.kind != "saved_model" or replace(interface, tags=()) != Interface():
        return []
    names = signatures(parse_meta_graph(location, interface.tags))
    return names if len(names) > 1 and DEFAULT in names else []


def _naming_all(location: Location, interface: Interface, names: Sequence[str]) -> Interface:
    """Return an interface that names the inputs and outputs of several signatures.

    A switch is not named: it may be one for training, which freezing turns off.
    """
    meta = parse_meta_graph(location, interface.tags)
    sides = [signature_sides(meta, name) for name in names]
    switches = {
        normal(info.name)
        for name in names
        for info in meta.signature_def[name].inputs.values()
        if tensor_of(info).dtype == "bool"
    }
    fed = [tensor for side, _ in sides for tensor in side.values() if tensor not in switches]
    fetched = [tensor for _, side in sides for tensor in side.values()]
    inputs = [_with_port(each) for each in dict.fromkeys(fed)]
    outputs = [_with_port(each) for each in fetched]
    return Interface(inputs, outputs, interface.tags, DEFAULT)


def _with_port(tensor: str) -> str:
    """Return a tensor's name in the form that no alias has."""
    return "{}:{}".format(*split(tensor))


def _signed(
    graph: Graph,
    meta: MetaGraphDef,
    name: str,
    inputs: dict[str, str],
    outputs: Mapping[str, str],
    pins: Mapping[str, str] | None,
) -> Callee:
    """Return a graph with a signature of the model; without `pins`, inputs may be missing."""
    signed: SignatureDef = meta.signature_def[name]
    for alias, info in sorted(signed.inputs.items()):
        if pins is not None and alias not in inputs and _is_open(info, pins):
            inputs[alias] = _add_idle(graph, tensor_of(info))
    found = tensors_of(graph, {*inputs.values(), *outputs.values()})
    return Callee(
        graph,
        name,
        signed.method_name or PREDICT,
        {alias: _refined(found[t], signed.inputs, alias) for alias, t in sorted(inputs.items())},
        {alias: _refined(found[t], signed.outputs, alias) for alias, t in sorted(outputs.items())},
    )


def _inputs(graph: Graph, fed: Mapping[str, str]) -> dict[str, str]:
    """Return the graph's inputs by alias; freezing gave some the name of their alias."""
    found = {}
    for alias, tensor in fed.items():
        places = [each for each in (normal(tensor), alias) if _is_fed(graph, each)]
        if places:
            found[alias] = places[0]
    return found


def _is_fed(graph: Graph, tensor: str) -> bool:
    """Say whether a tensor is an input, or a placeholder that was not named as one."""
    name = producer_name(tensor)
    return tensor in graph.inputs or (name in graph and graph[name].op in FEEDABLE_OPS)


def _is_open(info: TensorInfo, pins: Mapping[str, str]) -> bool:
    """Say whether an input that the graph lacks is one that nothing reads: no switch was pinned."""
    is_dense = info.WhichOneof("encoding") == "name"
    return is_dense and tensor_of(info).dtype != "bool" and producer_name(info.name) not in pins


def _add_idle(graph: Graph, tensor: Tensor) -> str:
    """Add an input that nothing reads, as callers send it."""
    name = graph.unique_name(producer_name(tensor.name))
    placeholder = Node(name, "Placeholder").with_attrs(dtype=DType(tensor.dtype))
    if tensor.shape is not None:
        placeholder = placeholder.with_attrs(shape=tensor.shape)
    graph.add(placeholder)
    graph.inputs = (*graph.inputs, name)
    return name


def _refined(tensor: Tensor, infos: Mapping[str, TensorInfo], alias: str) -> Tensor:
    """Return a tensor with the shape that the signature says, where it says one."""
    if alias not in infos or infos[alias].WhichOneof("encoding") != "name":
        return tensor
    said = tensor_of(infos[alias])
    return tensor if said.shape is None else Tensor(tensor.name, tensor.dtype, said.shape)
