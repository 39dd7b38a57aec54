"""How far a rewrite may move a graph's answers: roundings of the type that the graph computes in.

A fold rounds the constants anew, and each layer rounds what it gives. Measured on chains, residual
nets, MobileNets and dense nets with random constants, whose batch norms were folded: the largest
error relative to the largest value, in units in the last place (ulp) of the type.

    layers                  1      5     10     20     50
    float16, bfloat16       1.0    2.7   3.0    4.8    9.4
    float32                 3.0    4.2   9.8    6.6    30
    float64                 4.0    5.5   9.2    32     101

The bars are about three times as high in the coarse types, and more in the others. In float16, an
error in one layer of up to ten (a lost bias, two swapped channels, a batch norm without its epsilon
where a variance is small) moves answers by 20 to 400 ulp. In bfloat16 an ulp is eight times as
large, so from five layers on such an error of one channel among many may lie below the bar: give a
smaller `--tolerance`, or compare the same net in float32.
"""

from deploykit.transforms.core.functions import Library, reachable
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.layers.layers import LAYER_OPS
from deploykit.transforms.core.node import Node, producer_name
from deploykit.transforms.core.ops import FEEDABLE_OPS, op_defs, output_types

# A float type, the coarsest first: the gap between 1 and the next number.
_ULPS = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}
_AS = {"complex64": "float32", "complex128": "float64"}

# What gives on values as they are: their type matters where they are computed.
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
    """Return the largest error, relative to the largest value, that a right rewrite may show.

    By the coarsest float type in which a node between input and output computes: float32:
    1e-6 * (5 + layers), at most 1e-4; float64: as many units in the last place; float16 and
    bfloat16: 4 + layers / 2 units in the last place, at most 16, where a unit is 2^-10 and 2^-7.
    """
    layers = sum(node.op in LAYER_OPS for node in graph)
    type_ = computing_type(graph)
    if type_ in ("float16", "bfloat16"):
        return min(16.0, 4 + layers / 2) * _ULPS[type_]
    return min(1e-4, 1e-6 * (5 + layers)) * _ULPS[type_] / _ULPS["float32"]


def computing_type(graph: Graph) -> str:
    """Return the coarsest float type in which a node between input and output computes.

    Weights that are stored in another type, and cast before they are used, do not count; values
    that are cast do, as the cast rounds them. Where nothing computes in floats: float32.
    """
    ends = graph.outputs or [node.name for node in graph]
    live = graph.ancestors(map(producer_name, ends))
    fed = graph.descendants(map(producer_name, graph.inputs), control=False)
    nodes = [node for node in graph if node.name in live and (not fed or node.name in fed)]
    found = {type_ for node in nodes for type_ in _types(node)}
    library = Library(graph)
    for name in reachable(graph):
        for proto in library.functions[name].node_def:
            if proto.op != "Cast":  # of weights too, which are handed in
                found.update(_types(Node.from_proto(proto)))
    return next((type_ for type_ in _ULPS if type_ in found), "float32")


def _types(node: Node) -> list[str]:
    """Return the float types that a node computes in."""
    if node.op in _EXACT or node.op not in op_defs():
        return []
    return [_AS.get(type_, type_) for type_ in output_types(node) or ()]
