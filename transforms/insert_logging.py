"""A Print passes its input on, and writes values to the standard error of the process."""

from deploykit.transforms.ir.control_flow import CONTROL_FLOW_OPS
from deploykit.transforms.ir.functions import Library
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, tensor_name
from deploykit.transforms.ir.ops import output_types
from deploykit.transforms.ir.pattern import ports_read, select
from deploykit.transforms.ir.tensors import DType

SUFFIX = "__print__"  # freeze_requantization_ranges finds names in a log by it

_WITHOUT_VALUES = frozenset({"resource", "variant"})


def insert_logging(
    graph: Graph,
    *,
    op: tuple[str, ...] = (),
    prefix: tuple[str, ...] = (),
    message: str = "",
    show_name: bool = False,
    show_op: bool = False,
    first_n: int = -1,
    summarize: int = 1024,
) -> None:
    """Print the outputs of nodes to standard error when the graph runs.

    Readers of a node's first output read it through a Print named `<node>__print__`, which shows
    all outputs that have readers. Nodes without readers print nothing. With both `op` and `prefix`,
    a node must match both.

    Args:
        op: an op whose nodes print; may be repeated; default: all ops.
        prefix: prefix of the names of these nodes; may be repeated; default: any name.
        message: text to print before the values.
        show_name: print the name of the Print before the message, as `;<node>__print__;`.
        show_op: print the op before that, as `;<op>;`.
        first_n: number of times that a node prints; -1 for always.
        summarize: number of values to print of each output.
    """
    library = Library(graph)
    selected = select(graph, op, prefix)
    ports = ports_read(graph, selected)
    moves: dict[str, str] = {}
    prints = []
    for node in selected:
        read = sorted(port for port in ports[node.name] if port >= 0)
        types = _types(library, node, read)
        if graph.skip(node, _reason(graph, node, read, types)) or types is None:
            continue
        tensors = [tensor_name(node.name, port) for port in read]
        parts = [f";{node.op};"] if show_op else []
        parts += [f";{node.name}{SUFFIX};"] if show_name else []
        print_node = Node(f"{node.name}{SUFFIX}", "Print", (tensors[0], *tensors))
        print_node = print_node.with_attrs(T=types[0], U=types, message="".join([*parts, message]))
        prints.append(print_node.with_attrs(first_n=first_n, summarize=summarize))
        moves[tensors[0]] = print_node.name
    graph.redirect(moves)
    for print_node in prints:
        graph.add(print_node)


def _types(library: Library, node: Node, ports: list[int]) -> list[DType] | None:
    op_def = library.op_def(node.op)
    types = output_types(node, op_def)
    if op_def is None or types is None or any(port >= len(types) for port in ports):
        return None
    if any(arg.is_ref for arg in op_def.output_arg):
        return [DType(f"{types[port]}_ref") for port in ports]
    return [types[port] for port in ports]


def _reason(graph: Graph, node: Node, ports: list[int], types: list[DType] | None) -> str:
    if not ports:
        return "no node reads it"
    if node.op == "Print" or f"{node.name}{SUFFIX}" in graph:
        return "it prints already"
    if node.op in CONTROL_FLOW_OPS:
        return "it steers a branch or a loop"
    if types is None:
        return "the types of its outputs are not known"
    if any(type_.endswith("_ref") for type_ in types):
        return "its readers need the variable itself"
    without = [type_ for type_ in types if type_ in _WITHOUT_VALUES]
    return f"it passes on a {without[0]}, which has no values to print" if without else ""
