"""Version 2 of a TensorArray is the same array; its handle is a string, and it has no flow."""

import numpy as np

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, tensor_name
from deploykit.transforms.ir.ops import op_defs, with_op
from deploykit.transforms.ir.tensors import DType

_MAKING_OPS = {f"TensorArray{kind}V3": f"TensorArray{kind}V2" for kind in ("", "Grad")}
_ACTS = ("Close", "Concat", "Gather", "Read", "Scatter", "Size", "Split", "Write")
_USING_OPS = {f"TensorArray{act}V3": f"TensorArray{act}V2" for act in _ACTS}
_VERSION_2 = _MAKING_OPS | _USING_OPS
# These output their inputs, Switch on two ports; TensorFlow 1 loops consist of them.
_PASSING_OPS = frozenset({"Enter", "Exit", "Identity", "Merge", "NextIteration", "Switch"})


def backport_tensor_array_v3(graph: Graph) -> None:
    """Replace version 3 of the TensorArray ops by version 2, for TensorFlow before 1.0.

    Readers of the flow of a new array read a constant named `<array>/replacement_flow_node`. The
    graph version is then set below version 3, as TensorFlow would not load the graph otherwise.
    GraphError: a handle or a flow has a reader that version 2 does not support, such as a function;
    inline functions first.
    """
    arrays = [node for node in graph if node.op in _MAKING_OPS]
    passing = _passing(graph, arrays)
    conditional = graph.conditional_names() if arrays else set()
    for node in graph:
        if node.op in _VERSION_2:
            graph.replace(node, with_op(node, _VERSION_2[node.op]))
        elif node.name in passing:
            graph.replace(node, node.with_attrs(T=DType("string")))
    moves: dict[str, str] = {}
    for array in arrays:
        flow = tensor_name(array.name, 1)
        if any(flow in reader.inputs for reader in graph.readers(array.name)):
            name = graph.unique_name(f"{array.name}/replacement_flow_node")
            const = Node.constant(name, np.array(1, np.float32), device=array.device)
            # a constant that is not tied to its loop or branch is outside of it
            waits = [f"^{array.name}"] if array.name in conditional else []
            moves[flow] = graph.add(const.with_control_inputs(*waits)).name
    graph.redirect(moves)
    if arrays:
        removed = op_defs()["TensorArrayV2"].deprecation.version
        graph.versions.producer = min(graph.versions.producer, removed - 1)


def _passing(graph: Graph, arrays: list[Node]) -> set[str]:
    """Return the nodes that pass the handles of these arrays on to their users."""
    passing: set[str] = set()
    waiting = [array.name for array in arrays]
    for name in waiting:
        if tensor_name(name, 1) in graph.outputs:
            raise GraphError("tensor-array-flow", name=name)
    while waiting:
        name = waiting.pop()
        handles = {name, tensor_name(name, 1)} if graph[name].op == "Switch" else {name}
        for reader in graph.readers(name):
            is_known = reader.op in _VERSION_2 or reader.name in passing
            if is_known or handles.isdisjoint(reader.inputs):
                continue
            if reader.op not in _PASSING_OPS:
                raise GraphError("tensor-array-reader", node=reader.name, op=reader.op)
            passing.add(reader.name)
            waiting.append(reader.name)
    return passing
