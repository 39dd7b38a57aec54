"""Contents of a graph: inputs, outputs, parameters, ops, functions, batch norms, and costs."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NotRequired, TypedDict

from deploykit.benchmarking.profiling.execution import flops, memory
from deploykit.importers.signature import is_handle
from deploykit.rendering.templates import size
from deploykit.transforms.fold_batch_norms import foldable
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, split
from deploykit.transforms.ir.ops import VARIABLE_OPS, op_defs, output_types
from deploykit.transforms.ir.tensors import numpy_type
from deploykit.transforms.layers.affine import BATCH_NORM_OPS
from deploykit.transforms.layers.layers import LAYER_OPS
from deploykit.transforms.shapes.static_shapes import Shapes, variable_shape
from deploykit.transforms.untrusted.side_effects import effect_of

_NO_OUTPUT_OPS = frozenset({"Assign", "Const", "NoOp", "Placeholder"})  # as in summarize_graph
_SHOWN = 10  # names per list in the text; --json has them all


class TensorSummary(TypedDict):
    """A tensor; type or shape is None if the graph does not state it."""

    name: str
    op: str
    type: str | None
    shape: list[int] | None


class InspectionMetadata(TypedDict):
    """Contents of a graph, as `deploykit inspect --json` prints them."""

    input_tensors: list[TensorSummary]
    output_tensors: list[TensorSummary]
    possible_inputs: list[str]
    possible_outputs: list[str]
    parameters: int
    variables: list[dict[str, Any]]
    variable_parameters: int
    layers: int
    batch_norms: int
    other_batch_norms: int
    control_edges: int
    devices: dict[str, int]
    functions: list[str]
    producer: int
    ops: dict[str, int]
    effects: list[dict[str, Any]]
    memory: dict[str, Any]
    flops: dict[str, Any]
    structure: NotRequired[list[str]]


def inspect_graph(graph: Graph, top: int = 10) -> InspectionMetadata:
    """Return the contents of a graph as plain values, with the `top` nodes of most memory."""
    nodes = list(graph)
    bodies = [node for function in graph.library.function for node in function.node_def]
    shapes = Shapes(graph, batch=1)
    variables = [_variable(node) for node in nodes if node.op in VARIABLE_OPS]
    to_fold = foldable(graph)
    folded = {step for steps in to_fold.values() for step in steps}
    norms = [node.name for node in nodes if node.op in BATCH_NORM_OPS]
    return {
        "input_tensors": [tensor_summary(graph, name) for name in graph.inputs],
        "output_tensors": [tensor_summary(graph, name) for name in graph.outputs],
        "possible_inputs": [n.name for n in nodes if n.op == "Placeholder"],
        "possible_outputs": [
            n.name
            for n in nodes
            if n.op not in _NO_OUTPUT_OPS and not graph.consumers(n.name) and not is_handle(n)
        ],
        "parameters": weights_in(nodes)[0],
        "variables": variables,
        "variable_parameters": sum(math.prod(v["shape"]) for v in variables if v["shape"]),
        "layers": sum(node.op in LAYER_OPS for node in nodes),
        "batch_norms": len(to_fold),
        "other_batch_norms": sum(name not in folded for name in norms),
        "control_edges": sum(len(node.control_inputs) for node in nodes),
        "devices": dict(Counter(node.device for node in nodes if node.device)),
        "functions": sorted(f.signature.name for f in graph.library.function),
        "producer": graph.versions.producer,
        "ops": dict(Counter(node.op for node in (*nodes, *bodies)).most_common()),
        "effects": _effects(graph),
        "memory": memory(graph, shapes, top),
        "flops": flops(graph, shapes),
    }


def _effects(graph: Graph) -> list[dict[str, Any]]:
    """Return the effects of nodes beyond the graph; nodes of functions are named `f/node`."""
    places = [(node.name, node.op, node.attrs) for node in graph]
    for function in graph.library.function:
        name = function.signature.name
        places += [(f"{name}/{node.name}", node.op, node.attr) for node in function.node_def]
    result: dict[tuple[str, str], list[str]] = {}
    for name, op, attrs in places:
        if effect := effect_of(op, attrs):
            result.setdefault((op, effect), []).append(name)
    return [
        {"op": op, "effect": effect, "nodes": names}
        for (op, effect), names in sorted(result.items())
    ]


def weights_in(nodes: Iterable[Node]) -> tuple[int, int]:
    """Return the number of values in constants and their bytes in memory, without decoding them.

    A string counts as a pointer.
    """
    results = [node for node in nodes if node.op == "Const" and "value" in node.attrs]
    sizes = [math.prod(node.shape) for node in results]
    types = [numpy_type(node.attr("dtype")) for node in results]
    held = sum(size * type_.itemsize for size, type_ in zip(sizes, types, strict=True))
    return sum(sizes), held


def _variable(node: Node) -> dict[str, Any]:
    shape = variable_shape(node)
    return {
        "name": node.name,
        "op": node.op,
        "type": node.attr("dtype"),
        "shape": None if shape is None else list(shape),
    }


def tensor_summary(graph: Graph, name: str) -> TensorSummary:
    """Return the name, op, type and stated shape of a tensor as plain values."""
    node, port = graph.producer(name), split(name)[1]
    types = output_types(node) if node.op in op_defs() else None
    shape = node.attr("shape")
    return {
        "name": name,
        "op": node.op,
        "type": types[port] if types and port < len(types) else None,
        "shape": list(shape) if shape is not None else None,
    }


def shape_text(shape: list[int] | None) -> str:
    """Return a shape as text, `[?, 4]`; an unknown one is empty."""
    return "" if shape is None else str(shape).replace("-1", "?")


def lines(result: Any) -> Iterator[str]:
    """Yield an inspection as text."""
    facts, model = result.document(), result.model
    yield f"{model.source}: {size(model.bytes)}, {len(model.graph)} nodes"
    for role in ("input", "output"):
        tensors = facts[f"{role}_tensors"]
        for tensor in tensors:
            shape = shape_text(tensor["shape"])
            described = f"{tensor['name']} ({tensor['op']}) {tensor['type']} {shape}"
            yield f"{role + ':':12}{described}".rstrip()
        chosen = {split(tensor["name"])[0] for tensor in tensors}
        others = [name for name in facts[f"possible_{role}s"] if name not in chosen]
        if others:
            yield f"also possible as {role}: {_some(others)}"
    variables = ""
    if facts["variables"]:
        names = [f"{v['name']} {v['type']} {v['shape'] or '?'}" for v in facts["variables"]]
        variables = f", {facts['variable_parameters']:,} in variables"
        yield f"variables:  {len(names)}: {_some(names)}"
    yield f"parameters: {facts['parameters']:,} in constants{variables}"
    yield f"layers:     {facts['layers']}"
    yield from _batch_norm_lines(facts["batch_norms"], facts["other_batch_norms"])
    for device, count in facts["devices"].items():
        yield f"device:     {device} ({count} nodes)"
    if facts["functions"]:
        yield f"functions:  {len(facts['functions'])}: {', '.join(facts['functions'])}"
    yield f"control edges: {facts['control_edges']}"
    yield "ops:        " + ", ".join(f"{count} {op}" for op, count in facts["ops"].items())
    for use in facts["effects"]:
        yield f"effect:     {use['op']} {use['effect']}: {_some(use['nodes'])}"
    yield from _flops_lines(facts["flops"])
    yield from _memory_lines(facts["memory"])
    yield from facts.get("structure", ())


def _some(names: list[str]) -> str:
    """Return names joined by commas, truncated after 10."""
    more = f" and {len(names) - _SHOWN} more (--json has all)" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _batch_norm_lines(to_fold: int, others: int) -> Iterator[str]:
    if to_fold:
        yield f"{to_fold} batch norm{'s' * (to_fold > 1)}: run fold_batch_norms"
    if others:
        yield (
            f"{others} batch norm{'s' * (others > 1)} that cannot be folded: in training mode, or "
            "not after a layer with constant weights"
        )


def _flops_lines(facts: dict[str, Any]) -> Iterator[str]:
    if not (facts["total"] or facts["unknown"]):
        return
    by_op = ", ".join(f"{count:,} {op}" for op, count in facts["by_op"].items())
    line = f"FLOPs:      {facts['total']:,} at batch 1"
    if len(facts["by_op"]) > 1:
        line += f": {by_op}"
    if facts["unknown"]:
        line += f" (layers of unknown shape, not counted: {facts['unknown']})"
    yield line


def _memory_lines(facts: dict[str, Any]) -> Iterator[str]:
    kinds = [
        f"{size(facts[f'{kind}_bytes'])} {kind}"
        for kind in ("constants", "variables", "computed")
        if facts[f"{kind}_bytes"]
    ]
    if kinds:
        yield f"memory:     {', '.join(kinds)} at batch 1; most of it:"
    for node in facts["nodes"]:
        described = f"{node['node']} ({node['op']}) {node['type']} {node['shape']}"
        yield f"  {size(node['bytes']):>8}  {described}"
