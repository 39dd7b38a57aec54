"""A signature split into the graph before its model, the model, and the graph after it."""

from collections.abc import Collection, Iterable

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import normal, producer_name

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

    Args:
        graph: graph of the version.
        fed: input tensors of the signature.
        fetched: output tensors of the signature.
        inputs: input tensors of the model.
        outputs: output tensors of the model.
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
    nodes, met, waiting = set[str](), set[str](), [normal(tensor) for tensor in tensors]
    while waiting:
        tensor = waiting.pop()
        if tensor in ends:
            met.add(tensor)
            continue
        node = graph[producer_name(tensor)] if tensor[:1] == "^" else graph.producer(tensor)
        if node.name not in nodes:
            nodes.add(node.name)
            waiting += [input_ if input_[:1] == "^" else normal(input_) for input_ in node.inputs]
    return nodes, met
