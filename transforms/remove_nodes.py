"""Readers of a node that passes its first input on can read that input directly."""

from collections.abc import Mapping

from deploykit.transforms.common.errors import PipelineError
from deploykit.transforms.ir.control_flow import CONTROL_FLOW_OPS
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, producer_name
from deploykit.transforms.ir.ops import FEEDABLE_OPS, input_types, op_defs, output_types
from deploykit.transforms.ir.pattern import check_ops, ports_read

# Every reader of a removed node inherits its control inputs; more than these are not duplicated.
_MAX_INHERITED = 64


def remove_nodes(graph: Graph, *, op: tuple[str, ...], max_inputs: int = 1) -> None:
    """Remove nodes of these ops; their readers read the first input instead.

    Their control inputs move to their readers. Nodes that the graph's inputs, outputs, branches,
    loops or types need are not removed.

    Args:
        op: an op whose nodes are removed, such as Identity or CheckNumerics; may be repeated.
        max_inputs: nodes with more data inputs are kept; all inputs but the first are lost.
    """
    if not op:
        raise PipelineError("op-empty")
    if max_inputs < 1:
        least = "at least 1"
        raise PipelineError("out-of-range", name="max_inputs", expected=least, got=max_inputs)
    check_ops(graph, op)
    if graph.ops.isdisjoint(op):
        return
    ports = ports_read(graph, [node for node in graph if node.op in op])
    fed = [node.name for node in graph if graph.is_input(node.name) or node.op in FEEDABLE_OPS]
    varying = graph.descendants(fed, control=False) if max_inputs > 1 else set()
    sources: dict[str, str] = {}  # removed node -> the tensor that its readers read instead
    waits: dict[str, dict[str, None]] = {}  # removed node -> the control inputs that they inherit
    for name in graph.order():
        node = graph[name]
        if node.op not in op:
            continue
        reason = _reason_as_such(graph, node, max_inputs, ports[name], varying)
        if not reason:
            first = node.data_inputs[0]
            source = sources.get(first, first)
            inherited = {**waits.get(first, {}), **_waits(node, sources, waits)}
            reason = _reason_around(graph, node, source, inherited, ports[name])
        if graph.skip(node, reason):
            continue
        sources[name], waits[name] = source, inherited
    moves: dict[str, list[str]] = {}
    for name, source in sources.items():
        if all(reader.name in sources for reader in graph.consumers(name)):
            continue  # removed nodes need no new inputs
        moves[name] = [source, *waits[name]]
        if -1 in ports[name]:
            moves[f"^{name}"] = [f"^{producer_name(source)}", *waits[name]]
    graph.redirect(moves)
    for name in reversed(sources):
        graph.remove(graph[name])


def _waits(
    node: Node, sources: Mapping[str, str], waits: Mapping[str, dict[str, None]]
) -> dict[str, None]:
    """Return the nodes that a node waits for, with removed nodes replaced by their sources."""
    results: dict[str, None] = {}
    for control_input in node.control_inputs:
        name = control_input[1:]
        if name in sources:
            results[f"^{producer_name(sources[name])}"] = None
            results |= waits[name]
        else:
            results[control_input] = None
    return results


def _reason_as_such(
    graph: Graph, node: Node, max_inputs: int, ports: set[int], varying: set[str]
) -> str:
    """Return a reason in the node itself to keep it, or an empty string."""
    inputs = node.data_inputs
    if graph.is_output(node.name):
        return "it is an output of the graph"
    if graph.is_input(node.name):
        return "it is an input of the graph"
    if node.op in CONTROL_FLOW_OPS:
        return "it steers a branch or a loop"
    if not inputs:
        return "it has no data input that could replace it"
    if len(inputs) > max_inputs:
        return f"it has {len(inputs)} data inputs, more than max_inputs={max_inputs}"
    if max(ports, default=0) > 0:
        return f"its output {max(ports)} is read, which no input can replace"
    before, after = input_types(node), output_types(node)
    if before and after and before[0] != after[0]:
        return f"it returns {after[0]} for {before[0]}"
    fed = [tensor for tensor in inputs if producer_name(tensor) in varying]
    if fed and producer_name(inputs[0]) not in varying:
        return f"its first input is constant, and the one that is fed, '{fed[0]}', would be lost"
    return ""


def _reason_around(
    graph: Graph, node: Node, source: str, inherited: dict[str, None], ports: set[int]
) -> str:
    """Return a reason in the inputs or readers to keep a node, or an empty string."""
    producer = graph.producer(source)
    op_def = op_defs().get(producer.op)
    if op_def is not None and any(arg.is_ref for arg in op_def.output_arg):
        return f"it reads variable '{producer.name}' at a certain time"
    if -1 in ports:
        if producer.op in CONTROL_FLOW_OPS:
            return f"nodes wait for it to know the branch that '{producer.name}' takes"
        if graph.is_input(producer.name) and producer.op not in FEEDABLE_OPS:
            return f"nodes wait for it, and waiting for input '{producer.name}' would compute that"
    if len(inherited) > _MAX_INHERITED:
        return f"its readers would inherit {len(inherited)} control inputs"
    if inherited:
        for reader in graph.consumers(node.name):
            if reader.op in CONTROL_FLOW_OPS:
                return f"its control inputs cannot go to '{reader.name}' ({reader.op})"
    return ""
