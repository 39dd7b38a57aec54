"""What is in a graph: inputs, outputs, parameters, ops, functions, batch norms."""

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

from deploykit.report import Report, size
from transforms.core.affine import BATCH_NORM_OPS
from transforms.core.graph import Graph
from transforms.core.layers import LAYER_OPS
from transforms.core.node import split
from transforms.core.ops import op_defs, output_types


def inspect_graph(graph: Graph) -> dict[str, Any]:
    """Return the facts of a graph as plain values."""
    nodes = list(graph)
    elements = [math.prod(n.shape) for n in _constants(nodes)]
    return {
        "input_tensors": [_tensor(graph, name) for name in graph.inputs],
        "output_tensors": [_tensor(graph, name) for name in graph.outputs],
        "parameters": sum(elements),
        "layers": sum(node.op in LAYER_OPS for node in nodes),
        "batch_norms": sum(node.op in (*BATCH_NORM_OPS, "Rsqrt") for node in nodes),
        "control_edges": sum(len(node.control_inputs) for node in nodes),
        "devices": dict(Counter(node.device for node in nodes if node.device)),
        "functions": sorted(f.signature.name for f in graph.library.function),
        "producer": graph.versions.producer,
        "ops": dict(Counter(node.op for node in nodes).most_common()),
    }


def _constants(nodes: list[Any]) -> list[Any]:
    return [node for node in nodes if node.op == "Const" and "value" in node.attrs]


def _tensor(graph: Graph, name: str) -> dict[str, Any]:
    node, port = graph.producer(name), split(name)[1]
    types = output_types(node) if node.op in op_defs() else None
    shape = node.attr("shape")
    return {
        "name": name,
        "op": node.op,
        "type": types[port] if types and port < len(types) else None,
        "shape": list(shape) if shape is not None else None,
    }


def lines(report: Report) -> Iterator[str]:
    """Yield the facts as text."""
    facts = report.more
    yield f"{report.input_file}: {size(report.bytes_in)}, {report.nodes_in} nodes"
    for role in ("input", "output"):
        for tensor in facts[f"{role}_tensors"]:
            shape = "" if tensor["shape"] is None else str(tensor["shape"]).replace("-1", "?")
            described = f"{tensor['name']} ({tensor['op']}) {tensor['type']} {shape}"
            yield f"{role + ':':12}{described}".rstrip()
    yield f"parameters: {facts['parameters']:,} in constants"
    yield f"layers:     {facts['layers']}"
    if facts["batch_norms"]:
        yield f"batch norms: {facts['batch_norms']} (fold them: deploykit optimize)"
    for device, count in facts["devices"].items():
        yield f"device:     {device} ({count} nodes)"
    if facts["functions"]:
        yield f"functions:  {len(facts['functions'])}: {', '.join(facts['functions'])}"
    yield f"control edges: {facts['control_edges']}"
    yield "ops:        " + ", ".join(f"{count} {op}" for op, count in facts["ops"].items())
    yield from facts.get("structure", ())
