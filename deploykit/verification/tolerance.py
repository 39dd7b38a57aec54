"""The tolerance of a comparison, the tensors to compare, and choices such as top-k.

Slight noise in the inputs of a choice may select other boxes, so noise is evaluated before it.
Outputs after a choice are compared on the reference's values before it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from deploykit.transforms.ir.control_flow import conditional_depths
from deploykit.transforms.ir.functions import Library, names_in, reachable
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import ENTER_OPS, SWITCH_OPS, Node, normal, producer_name
from deploykit.transforms.ir.ops import FEEDABLE_OPS, op_defs, output_types
from deploykit.transforms.layers.layers import FLOATS, LAYER_OPS
from deploykit.transforms.runtime.differences import QualityBar
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


# Machine epsilon by float type, the coarsest first.
_ULPS = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}
_AS = {"complex64": "float32", "complex128": "float64"}

# Ops that do not compute: the dtype of their values matters only in the op that computes them.
_MOVING = """
    BatchToSpace BatchToSpaceND BroadcastTo Concat ConcatV2 Const DepthToSpace DynamicStitch
    Enter Exit ExpandDims Fill Gather GatherNd GatherV2 Identity IdentityN Merge MirrorPad
    NextIteration OneHot OnesLike Pack Pad PadV2 ReadVariableOp RefEnter RefExit RefIdentity
    RefMerge RefNextIteration RefSwitch Reshape ResourceGather ResourceGatherNd Reverse
    ReverseV2 Select SelectV2 Shape Slice Snapshot SpaceToBatch SpaceToBatchND SpaceToDepth
    Split SplitV Squeeze StopGradient StridedSlice Switch Tile Transpose Unpack VarHandleOp
    Variable VariableV2 ZerosLike
"""
_EXACT = FEEDABLE_OPS | {*_MOVING.split()}


def default_tolerance(graph: Graph) -> float:
    """Return the largest error of a correct rewrite, relative to the largest value.

    It depends on the coarsest float type that a node between input and output computes in.
    float32: 1e-6 * (5 + layers), at most 1e-4; float64: as many units in the last place. float16
    and bfloat16: 4 + layers / 2 units in the last place (2^-10 and 2^-7), at most 16.
    """
    layers = sum(node.op in LAYER_OPS for node in graph)
    type_ = computing_type(graph)
    if type_ in ("float16", "bfloat16"):
        return min(16.0, 4 + layers / 2) * _ULPS[type_]
    return min(1e-4, 1e-6 * (5 + layers)) * _ULPS[type_] / _ULPS["float32"]


def computing_type(graph: Graph) -> str:
    """Return the coarsest float type that a node between input and output computes in.

    Weights that are cast before use do not count. Values that are cast do, as the cast rounds
    them. The default is float32.
    """
    ends = graph.outputs or [node.name for node in graph]
    live = graph.ancestors(map(producer_name, ends))
    fed = graph.descendants(map(producer_name, graph.inputs), control=False)
    nodes = [node for node in graph if node.name in live and (not fed or node.name in fed)]
    types = {type_ for node in nodes for type_ in _types(node)}
    library = Library(graph)
    for name in reachable(graph):
        for proto in library.functions[name].node_def:
            if proto.op != "Cast":  # it may cast weights that are passed in
                types.update(_types(Node.from_proto(proto)))
    return next((type_ for type_ in _ULPS if type_ in types), "float32")


def _types(node: Node) -> list[str]:
    """Return the float types that a node computes in."""
    if node.op in _EXACT or node.op not in op_defs():
        return []
    return [_AS.get(type_, type_) for type_ in output_types(node) or ()]


QUANTIZED_BAR_DB = 15.0  # below this a quantized graph's outputs are noise (int8.md, rule 10)


def bar_between(
    reference: Graph, result: Graph, tolerance: float | None, min_sqnr: float | None
) -> QualityBar:
    """Return the given threshold, or else the default for this pair of graphs."""
    if tolerance is not None:
        return QualityBar(tolerance)
    if min_sqnr is not None:
        return QualityBar(None, min_sqnr)
    if _is_quantized(result) and not _is_quantized(reference):
        return QualityBar(None, QUANTIZED_BAR_DB)
    return QualityBar(default_tolerance(reference))


def _is_quantized(graph: Graph) -> bool:
    return any("Quantize" in node.op or node.op == "Dequantize" for node in graph)


class Pairing(NamedTuple):
    """The tensors of a reference that are compared with those of a result."""

    pairs: Sequence[tuple[str, str]]
    """The outputs, the tensors before a choice such as a non-maximum suppression, and the inputs of
    final Softmaxes."""
    in_front: Sequence[tuple[str, str]] = ()
    """The pairs that a choice reads."""
    behind: frozenset[str] = frozenset()
    """Outputs of the reference after a choice."""


def paired_outputs(reference: Graph, result: Graph) -> Pairing:
    """Return the tensors of two graphs to compare."""
    names, others = reference.outputs, result.outputs  # paired by name, or else by index
    pairs = list(zip(names, names if set(names) <= set(others) else others, strict=True))
    in_front, behind = paired_choices(reference, result)
    pairs += in_front
    for a, b in tuple(pairs):
        before = (before_softmax(reference, a), before_softmax(result, b))
        if before[0] is not None and before[1] is not None:
            pairs.append((before[0], before[1]))
    return Pairing(list(dict.fromkeys(pairs)), in_front, behind)


def compared_tensors(reference: Graph) -> list[str]:
    """Return the tensors of a reference to compare with any result."""
    results = [*reference.outputs, *choices(reference).tensors]
    results += [before for a in results if (before := before_softmax(reference, a)) is not None]
    return list(dict.fromkeys(results))


def compared_outputs(reference: Graph, paired: Pairing) -> set[str]:
    """Return the tensors of the reference whose noise is evaluated.

    A Softmax and the tensors after a choice are excluded if their inputs are compared.
    """
    compared = {a for a, _ in paired.pairs}
    return {a for a in compared - paired.behind if before_softmax(reference, a) not in compared}


def before_softmax(graph: Graph, tensor: str) -> str | None:
    """Return the input of the Softmax that computes a tensor, or None if none does."""
    node = maker(graph, tensor)
    return node.inputs[0] if node.op == "Softmax" else None


def maker(graph: Graph, tensor: str) -> Node:
    """Return the node that computes a tensor, skipping nodes that only pass it on."""
    node = graph.producer(tensor)
    while node.op in ("Identity", "Reshape", "Squeeze") and node.inputs:
        node = graph.producer(node.inputs[0])
    return node
