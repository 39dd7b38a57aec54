"""How a model is called: its inputs and outputs by the names that its callers know."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploykit.freezing import freeze, parse_meta_graph
from deploykit.interface import Interface
from deploykit.location import locate
from deploykit.meta_graphs import chosen_signature, signature_sides, signatures
from deploykit.saved_models import is_function
from serving.protos import MetaGraphDef, SignatureDef, TensorInfo
from serving.saved_model import tensors_of
from serving.signatures import DEFAULT, PREDICT, Tensor, tensor_of
from transforms.core.graph import Graph
from transforms.core.node import Node, normal, producer_name
from transforms.core.tensors import DType

logger = logging.getLogger("deploykit")


@dataclass(frozen=True)
class Callee:
    """A frozen graph and one signature of it: its name, its method, its tensors by alias."""

    graph: Graph
    signature: str
    method: str
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]


def callee_of_graph(graph: Graph, signature: str | None = None) -> Callee:
    """Return a graph with a signature that calls its tensors by their own names."""
    names = {name: name for name in (*graph.inputs, *graph.outputs)}
    found = tensors_of(graph, names)
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
    """Read a model, frozen; a SavedModel's signature keeps its name, its method and its aliases.

    Arguments and errors are those of `freeze`; of a model without signatures, the interface says
    what its own is called.
    """
    frozen = freeze(
        model,
        graph=graph,
        inputs=interface.inputs,
        outputs=interface.outputs,
        tags=interface.tags,
        signature=interface.signature,
        pins=pins,
    )
    location = locate(model)
    if location.kind in ("graph", "keras") or graph is not None:
        return callee_of_graph(frozen, interface.signature)
    meta = parse_meta_graph(location, interface.tags)
    if is_function(meta, interface.signature):
        return callee_of_graph(frozen, interface.signature)
    name = chosen_signature(meta, interface.signature)
    if name is None:
        return callee_of_graph(frozen)
    if left := [each for each in signatures(meta) if each != name]:
        logger.info("of its signatures, %s is taken, and not: %s (--signature)",
                    name, ", ".join(left))  # fmt: skip
    return _as_signed(frozen, meta, name, interface, pins or {})


def _as_signed(
    graph: Graph, meta: MetaGraphDef, name: str, interface: Interface, pins: Mapping[str, str]
) -> Callee:
    """Return a graph with the signature that it was frozen by."""
    signed: SignatureDef = meta.signature_def[name]
    fed, fetched = signature_sides(meta, name)
    inputs = _inputs(graph, fed, interface.inputs)
    if not interface.inputs:
        for alias, info in sorted(signed.inputs.items()):
            if alias not in inputs and _is_open(info, pins):
                inputs[alias] = _add_idle(graph, tensor_of(info))
    outputs = dict(zip(interface.outputs or fetched, graph.outputs, strict=True))
    found = tensors_of(graph, {*inputs.values(), *outputs.values()})
    return Callee(
        graph,
        name,
        signed.method_name or PREDICT,
        {alias: _refined(found[t], signed.inputs, alias) for alias, t in sorted(inputs.items())},
        {alias: _refined(found[t], signed.outputs, alias) for alias, t in sorted(outputs.items())},
    )


def _inputs(graph: Graph, fed: Mapping[str, str], wanted: Sequence[str]) -> dict[str, str]:
    """Return the graph's inputs by alias; freezing gave some the name of their alias."""
    found = {}
    for alias in wanted or fed:
        tensor = normal(fed.get(alias, alias))
        if tensor in graph.inputs:
            found[alias] = tensor
        elif alias in graph.inputs:
            found[alias] = alias
    rest = [tensor for tensor in graph.inputs if tensor not in found.values()]
    return found | {tensor: tensor for tensor in rest}


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
