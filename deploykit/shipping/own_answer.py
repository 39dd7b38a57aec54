"""What a graph itself answers, for an answer of a server to be held against."""

from collections.abc import Mapping, Sequence

from deploykit.transforms.core.engines.engines import TENSORFLOW
from deploykit.transforms.core.engines.session import session_in
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.running.child import call
from deploykit.transforms.core.tensors import Array


def own_answer(
    graph: Graph, feeds: Mapping[str, Array], fetches: Sequence[str], engine: str = TENSORFLOW
) -> list[Array]:
    """Return the values of tensors of a graph, computed by an engine in a child process.

    GraphError: the graph cannot be run on these arrays.
    """
    content = b"".join(graph.serialized())
    found: list[Array] = call(
        "deploykit.shipping.own_answer:run", engine, content, dict(feeds), list(fetches)
    )
    return found


def run(engine: str, content: bytes, feeds: dict[str, Array], fetches: list[str]) -> list[Array]:
    """Run a graph; this is called in a child process."""
    return session_in(engine, content).run(fetches, feeds)
