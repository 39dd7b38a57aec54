"""A graph one node at a time, out of a file's bytes or out of a Graph: what the checks look at.

Of bytes no more than a node is decoded at once, so that a bad file is refused before it is read.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from deploykit.transforms.core.checks.wire import Bytes, decoded, field_bytes, fields, without_field
from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.files.reading import release
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.node import Node
from deploykit.transforms.core.ops import MAX_PORTS
from deploykit.transforms.core.protos import FunctionDef, FunctionDefLibrary, NodeDef, VersionDef

MAX_FUNCTIONS = 100_000  # nothing honest comes near, and each takes 1000 bytes and more

_LONG_NODE = 1 << 20  # bytes; of a shorter node the inputs need not be counted
_NODE, _LIBRARY, _VERSIONS = 1, 2, 4  # the fields of a GraphDef
_FUNCTION, _BODY = 1, 3  # of a FunctionDefLibrary, and of a FunctionDef
_INPUT = 3  # of a NodeDef


@dataclass(frozen=True)
class FunctionParts:
    """A function of the library."""

    head: FunctionDef
    """What it says beside its nodes; these may be in it or not."""
    nodes: Callable[[], Iterator[Node]]

    @property
    def name(self) -> str:
        """What calls name it."""
        return str(self.head.signature.name)


@dataclass(frozen=True)
class GraphParts:
    """The nodes of a graph, its functions, and the versions that it is made for."""

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
        """Return the parts of a serialised GraphDef, whose nodes are read once if it is an mmap.

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
    """Return a function whose head is decoded, and whose nodes are not yet."""
    head = decoded(without_field(content, _BODY), FunctionDef)
    return FunctionParts(head, lambda: _nodes(content, _BODY))


def _nodes(content: Bytes, wanted: int) -> Iterator[Node]:
    """Yield the nodes that are a field of a message. GraphError: one is damaged or too long."""
    for _, begin, end in fields(content, wanted):
        proto = content[begin:end]
        if end - begin > _LONG_NODE:
            count = sum(1 for _ in fields(proto, _INPUT))
            if count > MAX_PORTS:
                raise GraphError(
                    "too-many", what="a node", count=count, unit="inputs", most=MAX_PORTS
                )
            release(content, begin, end)
        yield Node.from_proto(decoded(proto, NodeDef))
