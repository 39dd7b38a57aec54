"""Shapes that contradict each other: every number may be right by itself."""

import numpy as np

from deploykit.transforms.ir.protos import NodeDef
from tests.hostile.case import ODD, UNPROVED, Case, Statuses, statuses
from tests.hostile.graphs import (
    FLOAT,
    INT32,
    INT64,
    Shape,
    Type,
    constant,
    floats,
    graph,
    net,
    node,
    placeholder,
    written_graph,
)  # fmt: skip

KIND = "shapes"
LATE = statuses(2, 5, check=(0, 2), inspect=(0, 2), diff=(0, 2), export=(0, 2), transform=(0, 2))
"""TensorFlow itself sees it only when it runs."""
BAD = statuses(2, inspect=(0, 2), diff=(0, 2))
"""It takes TensorFlow's own rules to see it, which a command that only reads need not ask."""


def case(name: str, *nodes: NodeDef, right: Statuses = BAD) -> Case:
    """Return a case of a net whose node `odd` cannot be computed."""
    huge = right is UNPROVED  # what it would take, it may take for a while
    return Case(
        KIND, name, written_graph(graph(*nodes)), right=right, culprit=("'odd'",), heavy=huge
    )


def const(name: str, *sizes: int) -> NodeDef:
    """Return a constant of ones."""
    return constant(name, np.ones(sizes, np.float32))


def conv(op: str = "Conv2D", **attrs) -> NodeDef:
    """Return a convolution of x by w."""
    given = {"strides": [1, 1, 1, 1], "padding": "SAME", **attrs}
    return floats("odd", op, "x", "w", **given)


IMAGE = placeholder("x", (1, 8, 8, 3))
NONE = placeholder("x", None)
MATMUL = {"transpose_a": False, "transpose_b": False}
EDGES = {"T": Type(FLOAT), "Tpaddings": Type(INT32)}

CASES = (
    case("MatMul of 2x3 by 4x5", placeholder(), const("w", 4, 5),
         floats("odd", "MatMul", "x", "w", **MATMUL)),
    case("MatMul of 2x3 by 3x5, transposed", placeholder(), const("w", 3, 5),
         floats("odd", "MatMul", "x", "w", transpose_a=True, transpose_b=False)),
    case("MatMul of a vector", placeholder("x", (3,)), const("w", 3, 5),
         floats("odd", "MatMul", "x", "w", **MATMUL)),
    case("BatchMatMulV2 of 7x2x3 by 5x3x2", placeholder("x", (7, 2, 3)), const("w", 5, 3, 2),
         floats("odd", "BatchMatMulV2", "x", "w", adj_x=False, adj_y=False)),
    case("convolution of 3 channels by 4", IMAGE, const("w", 3, 3, 4, 8), conv()),
    case("convolution of a filter of rank 3", IMAGE, const("w", 3, 3, 3), conv()),
    case("convolution of a filter without rows", IMAGE, const("w", 0, 3, 3, 8), conv(),
         right=UNPROVED),  # kernels with and without oneDNN differ
    case("convolution without channels", placeholder("x", (1, 8, 8, 0)), const("w", 3, 3, 0, 8),
         conv(), right=ODD),
    case("convolution, valid, of a filter larger than the image", IMAGE, const("w", 9, 9, 3, 8),
         conv(padding="VALID")),
    case("convolution of a constant by another, folded", const("x", 1, 8, 8, 3),
         const("w", 3, 3, 4, 8), conv()),
    case("depthwise convolution of 3 channels by 4", IMAGE, const("w", 3, 3, 4, 1),
         conv("DepthwiseConv2dNative")),
    case("bias of another length", IMAGE, const("b", 7), floats("odd", "BiasAdd", "x", "b")),
    case("batch norm of another length", IMAGE, const("s", 7),
         node("odd", "FusedBatchNormV3", "x", "s", "s", "s", "s", T=Type(FLOAT), U=Type(FLOAT),
              epsilon=0.001, is_training=False)),
    case("sum of 2x3 and 4x5", placeholder(), const("w", 4, 5), floats("odd", "AddV2", "x", "w")),
    case("Reshape of 6 into 7", placeholder(), constant("s", np.array([7], np.int32)),
         node("odd", "Reshape", "x", "s", T=Type(FLOAT), Tshape=Type(INT32))),
    case("Reshape with two minus ones", placeholder(), constant("s", np.array([-1, -1], np.int32)),
         node("odd", "Reshape", "x", "s", T=Type(FLOAT), Tshape=Type(INT32)),
         right=LATE),
    case("Reshape into minus five", placeholder(), constant("s", np.array([-5], np.int32)),
         node("odd", "Reshape", "x", "s", T=Type(FLOAT), Tshape=Type(INT32))),
    case("Reshape into 2^62 x 2^62", NONE, constant("s", np.array([1 << 62] * 2, np.int64)),
         node("odd", "Reshape", "x", "s", T=Type(FLOAT), Tshape=Type(INT64)),
         right=UNPROVED),
    case("Fill of 2^40, folded", constant("s", np.array([1 << 40], np.int64)), constant("v", 1.0),
         node("odd", "Fill", "s", "v", T=Type(FLOAT), index_type=Type(INT64)),
         placeholder("x", (1,)), floats("out", "AddV2", "odd", "x"), right=UNPROVED),
    case("Range of 10^12, folded", constant("a", 0), constant("b", 2**31 - 1), constant("c", 1),
         node("odd", "Range", "a", "b", "c", Tidx=Type(INT32)), right=UNPROVED),
    case("Tile by 2^31, folded", const("w", 2), constant("m", np.array([1 << 31], np.int64)),
         node("odd", "Tile", "w", "m", T=Type(FLOAT), Tmultiples=Type(INT64)), right=UNPROVED),
    case("Concat of 2x3 and 4x5", placeholder(), const("w", 4, 5), constant("axis", 0),
         node("odd", "ConcatV2", "x", "w", "axis", N=2, T=Type(FLOAT), Tidx=Type(INT32))),
    case("Concat along axis 9", placeholder(), const("w", 2, 3), constant("axis", 9),
         node("odd", "ConcatV2", "x", "w", "axis", N=2, T=Type(FLOAT), Tidx=Type(INT32))),
    case("Transpose by a permutation with a number twice", placeholder(),
         constant("p", np.array([0, 0], np.int32)),
         node("odd", "Transpose", "x", "p", T=Type(FLOAT), Tperm=Type(INT32)),
         right=LATE),
    case("Pad by a list of the wrong length", placeholder(),
         constant("p", np.zeros((3, 2), np.int32)), node("odd", "Pad", "x", "p", **EDGES)),
    case("Pad by a negative number", placeholder(),
         constant("p", np.array([[-5, 0], [0, 0]], np.int32)), node("odd", "Pad", "x", "p",
                  **EDGES)),
    case("Split of 3 into 2", placeholder(), constant("axis", 1),
         floats("odd", "Split", "axis", "x", num_split=2)),
    case("Squeeze of a size of 3", placeholder(), floats("odd", "Squeeze", "x", squeeze_dims=[1])),
    case("Mean over axis 7", placeholder(), constant("axis", np.array([7], np.int32)),
         node("odd", "Mean", "x", "axis", T=Type(FLOAT), Tidx=Type(INT32), keep_dims=False)),
    case("StridedSlice by steps of zero", placeholder(), constant("b", np.array([0], np.int32)),
         node("odd", "StridedSlice", "x", "b", "b", "b", T=Type(FLOAT), Index=Type(INT32),
              begin_mask=0, end_mask=0, ellipsis_mask=0, new_axis_mask=0, shrink_axis_mask=0)),
    case("SpaceToDepth of 8 by 3", IMAGE, floats("odd", "SpaceToDepth", "x", block_size=3)),
    case("pool larger than the image", IMAGE,
         floats("odd", "MaxPool", "x", ksize=[1, 99, 99, 1], strides=[1, 1, 1, 1],
                padding="VALID")),
    case("EnsureShape of another one", placeholder(),
         floats("odd", "EnsureShape", "x", shape=Shape((9, 9)))),
    case("ResizeBilinear to minus one", IMAGE, constant("s", np.array([-1, -1], np.int32)),
         floats("odd", "ResizeBilinear", "x", "s"),
         right=LATE),
    case("ResizeBilinear to 2^30 x 2^30", IMAGE, constant("s", np.array([1 << 30] * 2, np.int32)),
         floats("odd", "ResizeBilinear", "x", "s"), right=UNPROVED),
    case("Bincount of 2^31", constant("a", np.array([1], np.int32)), constant("n", 2**31 - 1),
         constant("w", np.ones(0, np.float32)), floats("odd", "Bincount", "a", "n", "w"),
         right=UNPROVED),
)  # fmt: skip

EDGE_KIND = "types"


def edge(name: str, *nodes: NodeDef, culprit: str = "'odd'", right: Statuses = BAD) -> Case:
    """Return a case of tensors that reach an op of another type."""
    return Case(EDGE_KIND, name, written_graph(net(*nodes, end=None)), right=right,
                culprit=(culprit,))  # fmt: skip


CASES += (
    edge("a float read as int", node("odd", "Relu", "x", T=Type(INT32))),
    edge("an int read as float", constant("i", 1), floats("odd", "Relu", "i")),
    edge("a text read as float", constant("t", np.array(b"a", object)), floats("odd", "Relu", "t")),
    edge("a sum of float and int", constant("i", 1), floats("odd", "AddV2", "x", "i")),
    edge("a float as indices", constant("axis", 0),
         node("odd", "GatherV2", "weights", "x", "axis", Tparams=Type(FLOAT), Tindices=Type(INT32),
              Taxis=Type(INT32))),
    edge("a float as predicate", floats("odd", "Switch", "x", "x")),
    edge("a float as resource", node("odd", "ReadVariableOp", "x", dtype=Type(FLOAT))),
    edge("a float as variant", node("odd", "TensorListStack", "x", "x", element_dtype=Type(FLOAT),
                                    num_elements=-1)),
    edge("a float as a reference", node("odd", "Assign", "x", "x", T=Type(FLOAT))),
    edge("a Cast from int that reads float",
         node("odd", "Cast", "x", SrcT=Type(INT32), DstT=Type(FLOAT))),
    edge("a ConcatV2 of float and int", constant("i", 1), constant("axis", 0),
         node("odd", "ConcatV2", "x", "i", "axis", N=2, T=Type(FLOAT), Tidx=Type(INT32))),
    edge("an IdentityN of float as int", node("odd", "IdentityN", "x", T=[Type(INT32)])),
    edge("a file name that is a float", node("odd", "ReadFile", "x"),
         right=statuses(2, 3, inspect=(0, 2), diff=(0, 2))),
)  # fmt: skip
