"""The tolerance of a comparison, the tensors to compare, and choices such as top-k.

Slight noise in the inputs of a choice may select other boxes, so noise is evaluated before it.
What follows a choice is compared on the reference's values before it. That includes the inputs of
a later choice, such as that of the second stage of a Faster R-CNN.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from deploykit.transforms.ir.control_flow import conditional_depths
from deploykit.transforms.ir.functions import Library, names_in, reachable
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import ENTER_OPS, SWITCH_OPS, Node, normal, producer_name
from deploykit.transforms.ir.node_index import reached
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
class ChoiceStage:
    """Choices with no layer between them, such as those for the proposals of a detector."""

    edges: Mapping[tuple[str, int], str]
    """Tensors read, by node and input index."""
    nodes: frozenset[str]
    """Nodes after one of these choices, including it."""

    @property
    def tensors(self) -> list[str]:
        """The distinct tensors before the choices."""
        return list(dict.fromkeys(self.edges.values()))


def choices(graph: Graph) -> tuple[ChoiceStage, ...]:
    """Return the choices of a graph in stages; each is after layers that follow the one before.

    Noise is evaluated at the tensors before the choices instead of the outputs after them. The
    stages end before one that reads a tensor inside a loop or branch.
    """
    live = graph.ancestors(map(producer_name, graph.outputs))
    computed = live & graph.descendants(map(producer_name, graph.inputs), control=False)
    depths = conditional_depths(graph)
    roots, stages = set(_roots(graph, computed, depths)), list[ChoiceStage]()
    while roots:
        behind = graph.descendants(roots, control=False) & live
        edges = _edges_into(graph, behind, computed, depths)
        if not edges or not any(producer_name(output) in behind for output in graph.outputs):
            break
        stages.append(ChoiceStage(edges, frozenset(behind)))
        layers = [name for name in behind if graph[name].op in LAYER_OPS]
        roots &= graph.descendants(layers, control=False)
    return tuple(stages)


def _edges_into(
    graph: Graph, behind: set[str], computed: Collection[str], depths: Mapping[str, int]
) -> dict[tuple[str, int], str]:
    """Return the edges into these nodes, to which it adds the producers of handles.

    There are none if one starts inside a loop or branch, where no tensor can be fetched.
    """
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
                return {}
            edges[name, place] = normal(tensor)
    return edges


def _paired_stages(
    reference: Graph, result: Graph
) -> list[tuple[ChoiceStage, list[tuple[str, str]]]]:
    """Return stages of the reference, and the pairs of tensors before the choices of each.

    They end before a stage whose choices the result does not make with the same nodes.
    """
    stages = []
    for stage in choices(reference):
        pairs: dict[str, str] = {}
        for (name, place), tensor in stage.edges.items():
            if name in result and result[name].op == reference[name].op:
                other = normal(result[name].data_inputs[place])
                if _type(result, other) == _type(reference, tensor):
                    pairs.setdefault(tensor, other)
        if set(pairs) != set(stage.tensors):
            break
        stages.append((stage, list(pairs.items())))
    return stages


def _type(graph: Graph, tensor: str) -> str | None:
    return type_and_shape(graph, tensor)[0]


def _roots(graph: Graph, computed: Collection[str], depths: Mapping[str, int]) -> Iterator[str]:
    """Yield the choosing nodes; for one in a loop or branch, the nodes that enter it."""
    library = Library(graph)
    functions = library.reaching(lambda node: node.op in CHOOSING_OPS)
    before_layers = graph.ancestors(node.name for node in graph if node.op in LAYER_OPS)
    inside = list[str]()
    for name in computed:
        node = graph[name]
        called = {node.op, *names_in(node.attrs.values())} if functions else set()
        if _chooses(node, name in before_layers) or called & functions:
            if depths[name]:
                inside.append(name)
            else:
                yield name

    def beside(name: str) -> list[str]:
        """Return the neighbours of a node in the same outermost loop or branch."""
        producers = map(producer_name, graph[name].inputs)
        readers = (reader.name for reader in graph.readers(name))
        return [other for other in (*producers, *readers) if depths[other]]

    begins = ENTER_OPS | SWITCH_OPS
    for name in reached(inside, beside):
        if depths[name] == 1 and name in computed and graph[name].op in begins:
            yield name


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


class PairedStage(NamedTuple):
    """Choices that both graphs make."""

    in_front: Sequence[tuple[str, str]]
    """The pairs that the choices read."""
    behind: frozenset[str]
    """Compared tensors of the reference after them."""


class Pairing(NamedTuple):
    """The tensors of a reference that are compared with those of a result."""

    pairs: Sequence[tuple[str, str]]
    """The outputs, the tensors before choices such as a non-maximum suppression, and the inputs of
    final Softmaxes."""
    stages: Sequence[PairedStage] = ()

    @property
    def behind(self) -> frozenset[str]:
        """Compared tensors of the reference after any choice."""
        return self.stages[0].behind if self.stages else frozenset()


def paired_outputs(reference: Graph, result: Graph) -> Pairing:
    """Return the tensors of two graphs to compare."""
    names, others = reference.outputs, result.outputs  # paired by name, or else by index
    pairs = list(zip(names, names if set(names) <= set(others) else others, strict=True))
    stages = _paired_stages(reference, result)
    for _, in_front in stages:
        pairs += in_front
    for a, b in tuple(pairs):
        before = (before_softmax(reference, a), before_softmax(result, b))
        if before[0] is not None and before[1] is not None:
            pairs.append((before[0], before[1]))
    return Pairing(
        list(dict.fromkeys(pairs)),
        [
            PairedStage(in_front, frozenset(a for a, _ in pairs if producer_name(a) in stage.nodes))
            for stage, in_front in stages
        ],
    )


def compared_tensors(reference: Graph) -> list[str]:
    """Return the tensors of a reference to compare with any result."""
    results = [*reference.outputs, *(t for stage in choices(reference) for t in stage.tensors)]
    results += [before for a in results if (before := before_softmax(reference, a)) is not None]
    return list(dict.fromkeys(results))


def compared_outputs(reference: Graph, paired: Pairing) -> set[str]:
    """Return the tensors of the reference whose noise is evaluated.

    A Softmax is excluded if its input is compared.
    """
    compared = {a for a, _ in paired.pairs}
    return {a for a in compared if before_softmax(reference, a) not in compared}


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
