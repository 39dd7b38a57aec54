"""Validation of an untrusted graph, so that TensorFlow cannot crash the process.

TensorFlow is not a safe parser. 238 bytes of a function that calls itself crash the process that
imports them, where no `except` can help; so do 163 bytes of a Const whose type differs from its
tensor's. So nodes are checked one by one, those of a file before the whole file is decoded: a graph
is a stream of nodes and functions, from bytes or a Graph. This module does not start TensorFlow,
recurse, or decode values.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from graphlib import CycleError, TopologicalSorter

from deploykit.transforms.common.errors import GraphError, nearest
from deploykit.transforms.common.messages import escaped
from deploykit.transforms.ir.functions import names_in
from deploykit.transforms.ir.graph import Graph, no_collection
from deploykit.transforms.ir.node import Node, split
from deploykit.transforms.ir.ops import GRAPH_VERSION, MAX_PORTS, op_defs
from deploykit.transforms.ir.protos import FunctionDef, FunctionDefLibrary, NodeDef, VersionDef
from deploykit.transforms.untrusted.edges import Edges, no_such_output
from deploykit.transforms.untrusted.files import release
from deploykit.transforms.untrusted.nodes import NodeRules
from deploykit.transforms.untrusted.wire import Bytes, decoded, field_bytes, fields, without_field

# Real models stay far below these; beyond them TensorFlow takes minutes or all memory.
MAX_CALL_DEPTH = 256
MAX_EXPANDED_NODES = 20_000_000  # of the graph with all calls inlined


@dataclass
class Calls:
    """The number of nodes of a function or a graph, and its callees, once per call."""

    nodes: int
    names: list[str]


@dataclass(frozen=True)
class Expansion:
    """The size of a graph with all calls inlined."""

    nodes: int
    depth: int
    """Maximum nesting depth of calls."""


def called(node: Node, functions: Mapping[str, object]) -> Iterator[str]:
    """Yield the functions that a node calls or names."""
    for name in (node.op, *names_in(node.attrs.values())):
        if name in functions:
            yield name


def expansion(graph: Calls, functions: Mapping[str, Calls]) -> Expansion:
    """Return the expanded size. GraphError: a function calls itself, or the size is too large."""
    sizes = dict.fromkeys(functions, 0)
    depths = dict.fromkeys(functions, 0)
    for name in _callees_first({name: calls.names for name, calls in functions.items()}):
        names = functions[name].names
        sizes[name] = functions[name].nodes + sum(sizes[c] for c in names)
        depths[name] = 1 + max((depths[c] for c in names), default=0)
        if sizes[name] > MAX_EXPANDED_NODES or depths[name] > MAX_CALL_DEPTH:
            raise GraphError(
                "function-too-large",
                name=name,
                size=sizes[name],
                depth=depths[name],
                most=MAX_EXPANDED_NODES,
                most_depth=MAX_CALL_DEPTH,
            )
    total = sum(sizes[c] for c in graph.names)
    if total > MAX_EXPANDED_NODES:
        raise GraphError(
            "too-many",
            what="the graph",
            count=total,
            unit="nodes with its calls",
            most=MAX_EXPANDED_NODES,
        )
    return Expansion(graph.nodes + total, max((depths[c] for c in graph.names), default=0))


def _callees_first(calls: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the functions, each after its callees. GraphError: one calls itself."""
    try:
        unique = {name: dict.fromkeys(names) for name, names in calls.items()}
        return list(TopologicalSorter(unique).static_order())
    except CycleError as error:
        *cycle, name = reversed(error.args[1])  # each calls the next one, the last one the first
        shown = " -> ".join([*cycle[:8], name])
        raise GraphError("function-recursive", name=name, calls=shown) from None


MAX_FUNCTIONS = 100_000  # real models have far fewer, and each takes at least 1000 bytes

_LONG_NODE = 1 << 20  # bytes; the inputs of shorter nodes need not be counted
_NODE, _LIBRARY, _VERSIONS = 1, 2, 4  # the fields of a GraphDef
_FUNCTION, _BODY = 1, 3  # of a FunctionDefLibrary, and of a FunctionDef
_INPUT = 3  # of a NodeDef


@dataclass(frozen=True)
class FunctionParts:
    """A function of the library."""

    head: FunctionDef
    """The function without its nodes, or with them."""
    nodes: Callable[[], Iterator[Node]]

    @property
    def name(self) -> str:
        """The name that calls use."""
        return str(self.head.signature.name)


@dataclass(frozen=True)
class GraphParts:
    """The nodes of a graph, its functions, and the versions that it was created for."""

    nodes: Callable[[], Iterator[Node]]
    functions: Sequence[FunctionParts]
    versions: VersionDef
    library: Callable[[], FunctionDefLibrary]
    """The functions with their nodes, all decoded."""

    @classmethod
    def of(cls, graph: Graph) -> "GraphParts":
        """Return the parts of a graph."""
        functions = [
            FunctionParts(function, partial(map, Node.from_proto, function.node_def))
            for function in graph.library.function
        ]
        return cls(lambda: iter(graph), functions, graph.versions, lambda: graph.library)

    @classmethod
    def read(cls, content: Bytes) -> "GraphParts":
        """Return the parts of a serialized GraphDef; from an mmap, nodes can be read only once.

        GraphError: it is damaged.
        """
        library = field_bytes(content, _LIBRARY)
        count = sum(1 for _ in fields(library, _FUNCTION))
        if count > MAX_FUNCTIONS:
            raise GraphError(
                "too-many",
                what="the library of the graph",
                count=count,
                unit="functions",
                most=MAX_FUNCTIONS,
            )
        contents = (library[begin:end] for _, begin, end in fields(library, _FUNCTION))
        functions = [
            FunctionParts(
                decoded(without_field(content_, _BODY), FunctionDef),
                partial(_nodes, content_, _BODY),
            )
            for content_ in contents
        ]
        versions = decoded(field_bytes(content, _VERSIONS), VersionDef)
        return cls(
            lambda: _nodes(content, _NODE),
            functions,
            versions,
            lambda: decoded(library, FunctionDefLibrary),
        )


def _nodes(content: Bytes, expected: int) -> Iterator[Node]:
    """Yield the nodes in a field of a message. GraphError: one is damaged or too long."""
    for _, begin, end in fields(content, expected):
        proto = content[begin:end]
        if end - begin > _LONG_NODE:
            count = sum(1 for _ in fields(proto, _INPUT))
            if count > MAX_PORTS:
                raise GraphError(
                    "too-many", what="a node", count=count, unit="inputs", most=MAX_PORTS
                )
            release(content, begin, end)
        yield Node.from_proto(decoded(proto, NodeDef))


# Called for each valid node: the function it is in or "", the node, and whether its op is known.
See = Callable[[str, Node, bool], None]

_LONGEST = 300  # characters of a name from a file in a message


def validate(graph: Graph) -> None:
    """Check a graph. GraphError: a node is invalid; the message names it.

    Every node has a legal name, a known op and the op's number of data inputs; its inputs exist and
    have the right types; its attributes have valid values. Tensors fit their shapes and types.
    Functions exist, do not call themselves, and do not expand beyond the limits.
    """
    with printable():
        _check(GraphParts.of(graph), None)
        _check_ends(graph)


def read_graph(content: Bytes) -> Graph:
    """Return the graph of a serialized GraphDef. GraphError: as in `validate`, for its bytes.

    For an mmap, the memory of long nodes is released after reading them: see `read_released`. Nodes
    whose ops TensorFlow lacks are read like any other.
    """
    nodes: list[Node] = []

    def noted() -> Iterator[Node]:
        for node in parts.nodes():
            nodes.append(node)
            yield node

    with printable(), no_collection():
        parts = GraphParts.read(content)
        _check(replace(parts, nodes=noted), lambda *_: None)
        return Graph(nodes, versions=parts.versions, library=parts.library())


def survey(parts: GraphParts, see: See = lambda *_: None) -> Expansion:
    """Check the parts of a GraphDef, and call `see` with all its nodes; custom ops are accepted.

    Inputs and outputs of a custom op are unknown. GraphError: any other error of `validate`.
    """
    with printable(), no_collection():
        return _check(parts, see)


def check_ends(graph: Graph) -> None:
    """Raise GraphError for an input or output that is not a tensor of the graph."""
    with printable():
        _check_ends(graph)


@contextlib.contextmanager
def printable() -> Iterator[None]:
    """Limit a GraphError to one line, as names from a file may have any content and length."""
    try:
        yield
    except GraphError as error:
        error.fields = {
            name: escaped(value[:_LONGEST]) if isinstance(value, str) else value
            for name, value in error.fields.items()
        }
        raise


def _check(parts: GraphParts, see: See | None) -> Expansion:
    _check_versions(parts.versions)
    functions = {function.name: function for function in parts.functions}
    rules = NodeRules({name: function.head for name, function in functions.items()})
    nodes, graph = Edges(), Calls(0, [])
    for node in parts.nodes():
        _add(node, nodes, graph, rules, "", see)
    nodes.close()
    if not graph.nodes:
        raise GraphError("graph-empty")
    if len(functions) < len(parts.functions):
        raise GraphError("functions-same-name")
    calls = {}
    for name, function in functions.items():
        if name in op_defs():
            raise GraphError("function-named-as-op", name=name)
        try:
            calls[name] = _check_body(function, rules, see)
        except GraphError as error:
            raise error.within(f"function '{name}'") from None
    return expansion(graph, calls)


def _add(
    node: Node, nodes: Edges, calls: Calls, rules: NodeRules, function: str, see: See | None
) -> None:
    """Check a node by itself and against earlier nodes."""
    is_known = see is None or rules.knows(node.op)
    if is_known:
        rules.check(node, bool(function))
    else:
        rules.check_name(node)
    # In a function, ports depend on the attributes that its caller gives.
    nodes.add(node, None if function or not is_known else rules.ports(node))
    calls.nodes += 1
    if rules.functions:
        calls.names += called(node, rules.functions)
    if see is not None:
        see(function, node, is_known)


def _check_body(function: FunctionParts, rules: NodeRules, see: See | None) -> Calls:
    """Check a function's nodes, and that their inputs exist without cycles."""
    nodes, calls = Edges(colocated=False), Calls(0, [])
    for argument in function.head.signature.input_arg:
        nodes.add(Node(argument.name, "_Arg"), None)
    for node in function.nodes():
        inputs = (i if i[:1] == "^" else i.partition(":")[0] for i in node.inputs)
        _add(replace(node, inputs=tuple(inputs)), nodes, calls, rules, function.name, see)
    nodes.close()
    head = function.head
    for tensor in (*head.ret.values(), *head.control_ret.values()):
        _check_there(tensor.partition(":")[0], nodes, "output")
    return calls


def _check_ends(graph: Graph) -> None:
    rules = NodeRules({f.signature.name: f for f in graph.library.function})
    for role, tensors in (("input", graph.inputs), ("output", graph.outputs)):
        for tensor in tensors:
            name, port = split(tensor)
            _check_there(name, graph, role)
            node = graph[name]
            if port > 0 and rules.knows(node.op):  # a node without outputs may be run
                count = rules.ports(node)[1].count
                if port >= count:
                    who = f"'{tensor}' is named as {role}"
                    raise no_such_output(who, f"node '{name}' ({node.op})", count)


def _check_there(name: str, nodes: Edges | Graph, role: str) -> None:
    if name not in nodes:
        known = nodes.names if isinstance(nodes, Edges) else (node.name for node in nodes)
        hint = nearest(name, tuple(known))
        raise GraphError("graph-node-missing", name=name, role=role, hint=hint)


def _check_versions(versions: VersionDef) -> None:
    if versions.min_consumer > GRAPH_VERSION or GRAPH_VERSION in versions.bad_consumers:
        raise GraphError("graph-version-needed", own=GRAPH_VERSION, needed=versions.min_consumer)
    if versions.producer < 0:
        raise GraphError("graph-version-invalid", producer=versions.producer)
