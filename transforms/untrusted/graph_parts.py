"""A graph as a stream of nodes and functions, from bytes or a Graph, and its function calls."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.functions import names_in
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.ops import MAX_PORTS
from deploykit.transforms.ir.protos import FunctionDef, FunctionDefLibrary, NodeDef, VersionDef
from deploykit.transforms.untrusted.files import release
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
    users: dict[str, list[str]] = {name: [] for name in calls}
    missing = {name: len(set(names)) for name, names in calls.items()}
    for name, names in calls.items():
        for callee in dict.fromkeys(names):
            users[callee].append(name)
    order = [name for name, count in missing.items() if not count]
    for name in order:  # the list grows in the loop
        for user in users[name]:
            missing[user] -= 1
            if not missing[user]:
                order.append(user)
    left = [name for name, count in missing.items() if count]
    if left:
        name, path = left[0], dict[str, None]()
        while name not in path:  # each remaining function calls another remaining one
            path[name] = None
            name = next(callee for callee in calls[name] if missing[callee])
        cycle = list(path)[list(path).index(name) :]
        shown = " -> ".join([*cycle[:8], name])
        raise GraphError("function-recursive", name=name, calls=shown)
    return order


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
        functions = [_of_function(function) for function in graph.library.function]
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
        functions = [_read_function(library[b:e]) for _, b, e in fields(library, _FUNCTION)]
        versions = decoded(field_bytes(content, _VERSIONS), VersionDef)
        return cls(
            lambda: _nodes(content, _NODE),
            functions,
            versions,
            lambda: decoded(library, FunctionDefLibrary),
        )


def _of_function(function: FunctionDef) -> FunctionParts:
    return FunctionParts(function, lambda: map(Node.from_proto, function.node_def))


def _read_function(content: bytes) -> FunctionParts:
    """Return a function with a decoded head, whose nodes are decoded later."""
    head = decoded(without_field(content, _BODY), FunctionDef)
    return FunctionParts(head, lambda: _nodes(content, _BODY))


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
