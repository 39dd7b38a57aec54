"""Choices in a graph: non-maximum suppression, top-k, thresholds.

Slight noise in the inputs of a choice may select other boxes, so noise is evaluated before it.
Outputs after a choice are compared on the reference's values before it.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from deploykit.transforms.ir.control_flow import conditional_depths
from deploykit.transforms.ir.functions import Library, names_in
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import ENTER_OPS, SWITCH_OPS, Node, normal, producer_name
from deploykit.transforms.layers.layers import FLOATS, LAYER_OPS
from deploykit.verification.synthetic.sample_inputs import type_and_shape

CHOOSING_OPS = frozenset(
    {
        "ApproxTopK", "ArgMax", "ArgMin", "Bucketize", "CTCBeamSearchDecoder", "CTCGreedyDecoder",
        "CombinedNonMaxSuppression", "GenerateBoundingBoxProposals", "InTopK", "InTopKV2",
        "LowerBound", "NonMaxSuppression", "NonMaxSuppressionV2", "NonMaxSuppressionV3",
        "NonMaxSuppressionV4", "NonMaxSuppressionV5", "NonMaxSuppressionWithOverlaps", "NthElement",
        "TopK", "TopKV2", "Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2",
        "UpperBound", "Where",
    }
)  # fmt: skip
# These are choices only if no layer follows, because some activations use them.
_THRESHOLD_OPS = frozenset(
    {
        "Ceil", "Equal", "Floor", "Greater", "GreaterEqual", "Less", "LessEqual", "NotEqual",
        "Rint", "Round", "Sign",
    }
)  # fmt: skip
_HANDLE_OPS = ("TensorArray", "TensorList", "TensorMap", "EmptyTensorList")


@dataclass(frozen=True)
class Choices:
    """The edges into the nodes after choices, and the outputs after choices."""

    edges: Mapping[tuple[str, int], str]
    """Tensors read, by node and input index."""
    outputs: frozenset[str]
    nodes: frozenset[str] = frozenset()
    """Nodes after a choice, including it."""

    @property
    def tensors(self) -> list[str]:
        """The distinct tensors before the choices."""
        return list(dict.fromkeys(self.edges.values()))


def choices(graph: Graph) -> Choices:
    """Return the tensors at which noise is evaluated instead of the outputs after choices.

    There are none if one of these tensors is inside a loop or branch.
    """
    none = Choices({}, frozenset())
    live = graph.ancestors(map(producer_name, graph.outputs))
    computed = live & graph.descendants(map(producer_name, graph.inputs), control=False)
    depths = conditional_depths(graph)
    behind = graph.descendants(_roots(graph, computed, depths), control=False) & live
    outputs = frozenset(output for output in graph.outputs if producer_name(output) in behind)
    fed = {normal(tensor) for tensor in graph.inputs}
    edges: dict[tuple[str, int], str] = {}
    waiting = list(behind)
    while waiting:
        name = waiting.pop()
        for place, tensor in enumerate(graph[name].data_inputs):
            producer = producer_name(tensor)
            if producer not in computed or producer in behind or normal(tensor) in fed:
                continue
            if graph[producer].op.startswith(_HANDLE_OPS):  # its value is a handle, not an array
                behind.add(producer)
                waiting.append(producer)
                continue
            if depths[producer]:
                return none
            edges[name, place] = normal(tensor)
    return Choices(edges, outputs, frozenset(behind)) if edges and outputs else none


def paired_choices(reference: Graph, result: Graph) -> tuple[list[tuple[str, str]], frozenset[str]]:
    """Return the pairs of tensors before choices, and the reference's outputs after them.

    Both are empty if the result does not make its choices with the same nodes.
    """
    value = choices(reference)
    pairs: dict[str, str] = {}
    for (name, place), tensor in value.edges.items():
        if name in result and result[name].op == reference[name].op:
            other = normal(result[name].data_inputs[place])
            if _type(result, other) == _type(reference, tensor):
                pairs.setdefault(tensor, other)
    if set(pairs) != set(value.tensors):
        return [], frozenset()
    return list(pairs.items()), value.outputs


def _type(graph: Graph, tensor: str) -> str | None:
    return type_and_shape(graph, tensor)[0]


def _roots(graph: Graph, computed: Collection[str], depths: Mapping[str, int]) -> Iterator[str]:
    """Yield the choosing nodes; for those in a loop or branch, the nodes that enter it."""
    library = Library(graph)
    functions = library.reaching(lambda node: node.op in CHOOSING_OPS)
    before_layers = graph.ancestors(node.name for node in graph if node.op in LAYER_OPS)
    begins = ENTER_OPS | SWITCH_OPS
    inside = False
    for name in computed:
        node = graph[name]
        called = {node.op, *names_in(node.attrs.values())} if functions else set()
        if _chooses(node, name in before_layers) or called & functions:
            inside |= depths[name] > 0
            if not depths[name]:
                yield name
    if inside:
        yield from (name for name in computed if graph[name].op in begins)


def _chooses(node: Node, is_before_layers: bool) -> bool:
    if node.op in CHOOSING_OPS or is_before_layers:
        return node.op in CHOOSING_OPS
    if node.op == "Cast":
        return node.attr("SrcT") in FLOATS and node.attr("DstT") not in FLOATS
    return node.op in _THRESHOLD_OPS and node.attr("T") in FLOATS
