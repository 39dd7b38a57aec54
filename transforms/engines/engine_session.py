"""A graph in the requested engine: with TensorFlow's `Session`, the one way to run a graph.

Also a signature split into the graph before its model, the model, and the graph after it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.engines.engines import OPENVINO, check_engine
from deploykit.transforms.engines.openvino_model import DEFAULT, Compiling, OpenVinoModel
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, normal, producer_name, split
from deploykit.transforms.ir.node_index import reached
from deploykit.transforms.ir.protos import GraphDef
from deploykit.transforms.ir.tensors import Array, DType
from deploykit.transforms.runtime.session import Session


def session_in(
    engine: str, graph_def: bytes, compiling: Compiling = DEFAULT
) -> "Session | OpenVinoSession":
    """Return a session that runs a graph. Call it in a child process.

    `compiling` applies to OpenVINO.

    GraphError: the engine is not available here. LoadError: it refuses the graph.
    """
    check_engine(engine)
    return OpenVinoSession(graph_def, compiling) if engine == OPENVINO else Session(graph_def)


def run_once(
    engine: str, graph_def: bytes, fetches: Sequence[str], feeds: Mapping[str, Array]
) -> list[Array]:
    """Return the values of tensors of a graph. Call it in a child process.

    It raises the errors of `session_in` and of the session's `run`.
    """
    return session_in(engine, graph_def).run(list(fetches), feeds)


class OpenVinoSession:
    """A graph that OpenVINO compiles once for each set of fed and fetched tensors."""

    def __init__(self, graph_def: bytes, compiling: Compiling = DEFAULT) -> None:
        """Store the graph; `run` compiles it, and raises LoadError if OpenVINO refuses it."""
        self._graph_def = GraphDef.FromString(graph_def)
        self._compiling = compiling
        self._compiled: dict[tuple[object, ...], OpenVinoModel] = {}

    def run(self, fetches: Sequence[str], feeds: Mapping[str, Array] | None = None) -> list[Array]:
        """Return the values of tensors. GraphError: OpenVINO refuses the graph or the arrays."""
        fed = {normal(name): array for name, array in (feeds or {}).items()}
        kinds = {name: (array.dtype.name, array.ndim) for name, array in fed.items()}
        key = (*fetches, None, *sorted(kinds.items()))
        if key not in self._compiled:
            self._compiled[key] = compiled_for(self._graph_def, fed, fetches, self._compiling)
        return self._compiled[key].run(fed)


def compiled_for(
    graph_def: GraphDef,
    feeds: Mapping[str, Array],
    fetches: Sequence[str],
    compiling: Compiling = DEFAULT,
) -> OpenVinoModel:
    """Return the part of a graph that the fetched tensors need, compiled for arrays like these.

    `feeds` are named as in `normal`; their types and numbers of dimensions matter. GraphError: a
    tensor does not exist. LoadError: OpenVINO refuses the graph.
    """
    kinds = {name: (array.dtype.name, array.ndim) for name, array in feeds.items()}
    return OpenVinoModel(*cut(graph_def, kinds, fetches), fetches, compiling)


def cut(
    graph_def: GraphDef, fed: Mapping[str, tuple[str, int]], fetches: Sequence[str]
) -> tuple[bytes, dict[str, str]]:
    """Return the part of a graph that fetched tensors need, and the Placeholder of each fed tensor.

    `fed` are the type and number of dimensions of each fed tensor. GraphError: a tensor does not
    exist.
    """
    graph = Graph.from_graph_def(graph_def, fed, fetches)
    names, moves = dict[str, str](), dict[str, str]()
    for tensor, (dtype, rank) in fed.items():
        node, port = graph.producer(tensor), split(tensor)[1]
        if node.op == "Placeholder" and node.attr("shape") is not None:
            names[tensor] = node.name
            continue
        name = node.name if node.op == "Placeholder" else graph.unique_name(f"{node.name}_{port}")
        free = Node(name, "Placeholder").with_attrs(dtype=DType(dtype), shape=(-1,) * rank)
        names[tensor] = name
        if name == node.name:
            graph.replace(node, free)
        else:
            graph.add(free)
            moves[tensor] = name
    graph.redirect(moves)
    graph.inputs = tuple(names.values())
    graph.prune()
    return b"".join(graph.serialized()), names


MODEL = "deploykit.model"
"""Name of the model in an engine's manifest if no signature has exactly its outputs."""


def is_cut(
    graph: Graph,
    fed: Iterable[str],
    fetched: Iterable[str],
    inputs: Iterable[str],
    outputs: Iterable[str],
) -> bool:
    """Return whether a signature consists of preprocessing, a model, and postprocessing.

    `fed` and `fetched` are the tensors of the signature, `inputs` and `outputs` those of the model.
    """
    inputs, outputs, fed = ([normal(item) for item in side] for side in (inputs, outputs, fed))
    try:
        before, used = _above(graph, inputs, fed)
        after, given = _above(graph, fetched, outputs)
    except GraphError:
        return False
    ends = {producer_name(input_) for input_ in inputs} | {producer_name(item) for item in fed}
    return (
        bool(used and given)
        and not after & ends
        and not before & {producer_name(output) for output in outputs}
        and not any(graph[name].op == "Placeholder" for name in before | after)
    )


def _above(
    graph: Graph, tensors: Iterable[str], ends: Collection[str]
) -> tuple[set[str], set[str]]:
    """Return the nodes that tensors depend on up to some ends, and the ends that were reached.

    GraphError: a tensor does not exist.
    """
    nodes = set[str]()

    def inputs(tensor: str) -> Iterable[str]:
        node = graph.producer(tensor) if tensor not in ends else None
        if node is None or node.name in nodes:
            return ()
        nodes.add(node.name)
        return map(normal, node.inputs)

    return nodes, reached(map(normal, tensors), inputs) & set(ends)
