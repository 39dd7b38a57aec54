"""Every kernel in NumPy gives what TensorFlow's own kernel gives: floats within 4 ulp."""

import functools
import inspect

import numpy as np
import pytest

from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.ops import op_defs
from deploykit.transforms.ir.tensors import numpy_type
from deploykit.transforms.runtime.constants import TENSORFLOW_OPS, compute
from deploykit.transforms.runtime.numpy_kernels import KERNELS, MAX_BYTES
from tests.support import tf

MAX_ULP = 4
FLOATS = ("float32", "float64", "float16", "bfloat16")
INTS = ("int32", "int64", "int8", "uint8")
SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, np.inf, -np.inf, np.nan]


def values(dtype, *shape, seed=0, low=-8.0, high=8.0):
    """Random values of a type; floats hold zeros, infinities and NaN as well."""
    random = np.random.default_rng([seed, *shape])
    dtype = numpy_type(dtype)
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        result = random.integers(max(bounds.min, -9), 10, shape).astype(dtype)
        if result.size > 4:
            result.flat[0], result.flat[1] = bounds.min, bounds.max
        return result
    result = random.uniform(low, high, shape).astype(dtype)
    if result.size > 20:
        result.flat[: len(SPECIAL)] = np.roll(np.array(SPECIAL), seed).astype(dtype)
    return result


def ints(*items, dtype=np.int32):
    return np.array(items, dtype)


CASES = []


def case(op, *inputs, **attrs):
    CASES.append((op, inputs, attrs))


def pairs(dtype):
    """Arrays of one type that meet in the usual ways; the second holds no integer zero."""
    for a, b in (((4, 9), (4, 9)), ((4, 9), (9,)), ((3, 1, 9), (4, 1)), ((), (5,)), ((), ())):
        x, y = values(dtype, *a, seed=1), values(dtype, *b, seed=2)
        yield x, np.where(y == 0, 3, y).astype(y.dtype) if y.dtype.kind in "iu" else y


for dtype in (*FLOATS, *INTS):
    for x, y in pairs(dtype):
        for op in (
            *("Add", "AddV2", "Sub", "Mul", "FloorDiv", "FloorMod", "Maximum", "Minimum"),
            *("Less", "LessEqual", "Greater", "GreaterEqual", "Equal", "NotEqual"),
        ):
            case(op, x, y)
        if dtype in FLOATS:
            case("RealDiv", x, y)
        else:
            case("TruncateDiv", x, y)
        if dtype not in ("int8", "uint8"):
            case("SquaredDifference", x, y)
    x = values(dtype, 4, 9)
    for op in ("Identity", "Snapshot", "StopGradient", "OnesLike", "ZerosLike"):
        case(op, x)
        case(op, x[0, 4])
    if dtype != "uint8":
        case("Abs", x)
        case("Neg", x)
        case("Square", x)
    for to in (*FLOATS, *INTS, "bool"):
        case("Cast", values(dtype, 4, 4, seed=3, low=0.0, high=100.0), DstT=to, Truncate=False)
        if to not in ("uint8",):
            case("Cast", values(dtype, 2, 4, seed=4)[1], DstT=to, Truncate=False)
    for axes in (ints(0), ints(0, -1), np.int32(1), np.zeros(0, np.int32)):
        for keep in (False, True):
            case("Max", values(dtype, 3, 4, 5), axes, keep_dims=keep)
            case("Min", values(dtype, 3, 4, 5), axes, keep_dims=keep)
            if dtype in INTS:
                case("Sum", values(dtype, 3, 4, 5), axes, keep_dims=keep)
                case("Prod", values(dtype, 3, 4, 5), axes, keep_dims=keep)

for dtype in FLOATS:
    positive = values(dtype, 4, 9, low=1e-3, high=1e3)
    for op in ("Floor", "Sqrt", "Rsqrt", "Reciprocal"):
        case(op, positive)
        case(op, positive[2, 3])

for shapes in (((4, 9), (4, 9)), ((4, 9), (9,)), ((), (3,))):
    x, y = values("bool", *shapes[0], seed=5), values("bool", *shapes[1], seed=6)
    for op in ("LogicalAnd", "LogicalOr", "Equal", "NotEqual"):
        case(op, x, y)
for axes in (ints(0), ints(-1, 0), np.zeros(0, np.int32)):
    for op in ("All", "Any"):
        case(op, values("bool", 3, 4), axes, keep_dims=False)
        case(op, values("bool", 0, 4), axes, keep_dims=True)
case("LogicalNot", values("bool", 7))
for dtype in ("float32", "float16", "int64"):
    case("Cast", values("bool", 4, 4), DstT=dtype, Truncate=False)

for dtype in ("float32", "int32", "float64", "bool", "float16"):
    x, y = values(dtype, 3, 4, seed=7), values(dtype, 3, 4, seed=8)
    condition = values("bool", 3, 4, seed=9)
    case("Select", condition, x, y)
    case("Select", condition[:, 0], x, y)
    case("Select", np.bool_(True), x, y)
    case("SelectV2", condition, x, y)
    case("SelectV2", condition[0], x, y[0])
    case("SelectV2", np.bool_(False), x[0, 0], y)
    case("Concat", np.int32(1), [x, y[:, :2], x])
    case("ConcatV2", [x, y], np.int32(0))
    case("ConcatV2", [x, y[:, :1]], np.int64(-1))
    for axis in (0, 1, -1):
        case("Pack", [x, y], axis=axis)
        case("ExpandDims", x, np.int32(axis))
    case("Pack", [x[0, 0], y[0, 1]], axis=0)
    case("ExpandDims", x, ints(2))
    case("Reshape", x, ints(2, -1))
    case("Reshape", x[0, 0], ints(1, 1))
    case("Reshape", x[:1, :1], np.zeros(0, np.int64))
    case("Transpose", values(dtype, 2, 3, 4), ints(2, 0, 1))
    case("Tile", x, ints(2, 3))
    case("Tile", x, ints(0, 3, dtype=np.int64))
    case("Tile", x[0, 0], np.zeros(0, np.int32))
    case("Fill", ints(2, 3), x[0, 0])
    case("Fill", np.zeros(0, np.int32), x[0, 0])
    case("BroadcastTo", x[:, :1], ints(2, 3, 5))
    case("GatherV2", x, ints(2, 0, 2), np.int32(0), batch_dims=0)
    case("GatherV2", x, np.array([[3, 1]]), np.int32(-1), batch_dims=0)
    case("GatherV2", x, np.int32(1), np.int64(1), batch_dims=0)
    case("Slice", x, ints(1, 0), ints(-1, 2))
    case("Slice", x, ints(3, 0), ints(0, 4))
    case("Squeeze", values(dtype, 1, 3, 1, 2))
    case("Squeeze", values(dtype, 1, 3, 1, 2), axis=[2])
    case("Squeeze", values(dtype, 1, 3, 1, 2), axis=[-2, 0])
    for out in ("int32", "int64"):
        case("Shape", x, out_type=out)
        case("Size", x, out_type=out)
    case("Shape", x[0, 0])
    case("Rank", x)
    case("Rank", x[0, 0])

for dtype in ("int32", "int64"):
    for start, limit, step in ((0, 5, 1), (3, 18, 4), (5, -5, -3), (2, 2, 1), (-3, 4, 7)):
        case("Range", *np.array([start, limit, step], dtype))

CUBE = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
for begin, end, strides, masks in (
    ((0, 1, 2), (2, 3, 4), (1, 1, 1), {}),
    ((-1, -3, 0), (-4, 9, 99), (-1, 2, 3), {}),
    ((-99, 99, 1), (99, -99, 1), (1, -2, 1), {}),
    ((0, 1), (0, 3), (1, 1), {"begin_mask": 1, "end_mask": 1}),
    ((2, 2), (0, 0), (-1, -1), {"begin_mask": 3, "end_mask": 3}),
    ((1, -2), (0, 0), (1, 1), {"shrink_axis_mask": 3}),
    ((1, 2, -1), (0, 0, 0), (1, 1, 1), {"shrink_axis_mask": 7, "begin_mask": 7, "end_mask": 7}),
    ((0, 0, 1), (0, 0, 2), (1, 1, 1), {"ellipsis_mask": 1, "new_axis_mask": 2}),
    ((0, 9, 1), (1, 9, 2), (1, 1, 1), {"ellipsis_mask": 2, "shrink_axis_mask": 1}),
    ((1,), (2,), (1,), {"new_axis_mask": 1, "shrink_axis_mask": 1}),
):
    for kind in (np.int32, np.int64):
        case("StridedSlice", CUBE, *(np.array(v, kind) for v in (begin, end, strides)), **masks)
case("StridedSlice", ints(7, 8, 9), ints(-1), ints(0), ints(1), shrink_axis_mask=1)


# What TensorFlow computes and NumPy leaves alone, or what nobody computes.
DECLINED = {
    "division by an integer zero": ("FloorDiv", [ints(1), ints(0)], {"T": "int32"}),
    "remainder of an integer zero": ("FloorMod", [ints(1), ints(0)], {"T": "int32"}),
    "truncating division": ("TruncateDiv", [ints(1), ints(0)], {"T": "int32"}),
    "negative float to unsigned": ("Cast", [np.float32(-2)], {"SrcT": "float32", "DstT": "uint8"}),
    "NaN to integer": ("Cast", [np.float32("nan")], {"SrcT": "float32", "DstT": "int32"}),
    "2^31 to int32": ("Cast", [np.float32(2**31)], {"SrcT": "float32", "DstT": "int32"}),
    "shapes that do not meet": ("AddV2", [ints(1, 2), ints(1, 2, 3)], {"T": "int32"}),
    "sum of floats": ("Sum", [np.ones(3, np.float32), ints(0)], {"T": "float32"}),
    "range of floats": ("Range", list(np.array([0, 1, 0.1], np.float32)), {"Tidx": "float32"}),
    "range in the wrong direction": ("Range", [ints(5)[0], ints(0)[0], ints(1)[0]], {}),
    "range without step": ("Range", [ints(5)[0], ints(0)[0], ints(0)[0]], {}),
    "gather of a negative index": ("GatherV2", [ints(1, 2), ints(-1), np.int32(0)], {}),
    "gather beyond the end": ("GatherV2", [ints(1, 2), ints(2), np.int32(0)], {}),
    "gather of an empty axis": ("GatherV2", [ints(), ints(0), np.int32(0)], {}),
    "slice beyond the end": ("Slice", [ints(1, 2), ints(1), ints(2)], {}),
    "shrinking beyond the end": (
        "StridedSlice",
        [ints(1, 2), ints(2), ints(3), ints(1)],
        {"shrink_axis_mask": 1},
    ),
    "stride 0": ("StridedSlice", [ints(1, 2), ints(0), ints(2), ints(0)], {}),
    "reshape to another size": ("Reshape", [ints(1, 2), ints(3)], {}),
    "reshape to a negative size": ("Reshape", [ints(1, 2), ints(-2)], {}),
    "square root of integers": ("Sqrt", [ints(4)], {"T": "int32"}),
    "zeros like text": ("ZerosLike", [np.array([b"a"], object)], {"T": "string"}),
    "maximum of nothing": ("Max", [ints(), ints(0)], {"T": "int32"}),
    "too large a sum": (
        "AddV2",
        [np.zeros((1 << 16, 1), np.int32), np.zeros(1 << 16, np.int32)],
        {},
    ),
    "too large a tile": ("Tile", [ints(1), ints(1 << 30)], {}),
    "too large a range": ("Range", [ints(0)[0], ints((1 << 31) - 1)[0], ints(1)[0]], {}),
    "too large a gather": (
        "GatherV2",
        [np.zeros((2, 1 << 20)), np.zeros(1 << 14, int), ints(0)],
        {},
    ),
    "too large a pack": ("Pack", [np.zeros(1 << 20)] * 200, {}),
    "too large a concatenation": ("ConcatV2", [np.zeros(1 << 20)] * 200 + [np.int32(0)], {}),
    "too large a cast": ("Cast", [np.broadcast_to(np.float64(0), 1 << 30)], {"DstT": "int8"}),
}


@functools.cache
def by_tensorflow():
    """The node and TensorFlow's own result of each case, from one graph in one session."""
    from deploykit.transforms.ir.graph import Graph
    from deploykit.transforms.runtime.session import Session

    with tf.Graph().as_default() as graph:
        operations = []
        for op, inputs, attrs in CASES:
            raw_op = getattr(tf.raw_ops, op)
            made = [
                [tf.constant(a) for a in i] if isinstance(i, list) else tf.constant(i)
                for i in inputs
            ]
            types = {
                k: tf.as_dtype(v) if k in ("DstT", "out_type") else v for k, v in attrs.items()
            }
            result = raw_op(
                **dict(zip(inspect.signature(raw_op).parameters, made, strict=False)), **types
            )
            operations.append(result.op.name)
    graph_def = graph.as_graph_def()
    nodes = Graph.from_graph_def(graph_def)
    results = Session(graph_def.SerializeToString()).run(operations)
    return [(nodes[name], result) for name, result in zip(operations, results, strict=True)]


def arrays(inputs):
    """The inputs as they come to a kernel: lists unpacked."""
    return [np.asarray(a) for item in inputs for a in (item if isinstance(item, list) else [item])]


def ulps(expected, found):
    """The distance of two float arrays in representable numbers; NaN is NaN, and -0.0 is 0.0."""
    integer = f"i{expected.dtype.itemsize}"
    kept = ~(np.isnan(expected.astype(float)) & np.isnan(found.astype(float)))
    ordered = []
    for array in (np.asarray(expected), np.asarray(found)):
        bits = np.ascontiguousarray(array).view(integer).reshape(array.shape)[kept].astype(object)
        ordered.append(np.where(bits < 0, -(1 << 8 * expected.dtype.itemsize - 1) - bits, bits))
    return max(abs(ordered[0] - ordered[1]), default=0)


def faults(kernel=compute):
    """What is wrong with each result of a kernel."""
    found = []
    for (op, inputs, _), (node, expected) in zip(CASES, by_tensorflow(), strict=True):
        expected, result = np.asarray(expected), kernel(node, arrays(inputs))
        label = f"{op} {[(a.dtype.name, a.shape) for a in arrays(inputs)]} {node}"
        if result is None:
            found.append(f"{label}: not computed")
        elif (result.dtype, result.shape) != (expected.dtype, expected.shape):
            found.append(f"{label}: {result.dtype}{result.shape} {expected.dtype}{expected.shape}")
        elif expected.dtype.kind in "biu" and not np.array_equal(expected, result):
            found.append(f"{label}: {result} instead of {expected}")
        elif expected.dtype.kind not in "biu" and ulps(expected, result) > MAX_ULP:
            found.append(f"{label}: {ulps(expected, result)} ulp: {result} {expected}")
    return found


@pytest.mark.sampled
def test_every_kernel_is_as_tensorflows_own():
    assert faults() == []


def test_every_kernel_has_a_case():
    assert {op for op, _, _ in CASES} == set(KERNELS)


@pytest.mark.parametrize("op", ["Rsqrt", "Cast", "FloorMod", "StridedSlice", "Max"])
def test_a_wrong_kernel_is_caught(op):
    def wrong(node, inputs):
        result = compute(node, inputs)
        if node.op != op or result is None or not result.size:
            return result
        if result.dtype.kind in "biu":
            return (result ^ np.ones((), result.dtype)).astype(result.dtype)
        return result * np.asarray(1.01, result.dtype)

    assert any(fault.startswith(f"{op} ") for fault in faults(wrong))


@pytest.mark.parametrize(("op", "inputs", "attrs"), DECLINED.values(), ids=DECLINED)
def test_what_numpy_declines(op, inputs, attrs):
    from deploykit.transforms.ir.tensors import DType

    typed = {k: DType(v) if isinstance(v, str) else v for k, v in attrs.items()}
    assert compute(Node("n", op).with_attrs(**typed), [np.asarray(a) for a in inputs]) is None


def test_a_view_of_any_size_costs_nothing():
    node = Node("n", "Fill")
    filled = compute(node, [ints(1 << 30, 1 << 20), np.asarray(np.float32(1))])
    assert filled.shape == (1 << 30, 1 << 20)
    assert filled.strides == (0, 0)
    assert compute(Node("n", "Shape"), [filled]).tolist() == [1 << 30, 1 << 20]
    assert filled.size > MAX_BYTES
    assert compute(Node("n", "Neg"), [filled]) is None


def test_pure_ops_are_ops_without_state():
    defs = op_defs()
    assert {op for op in TENSORFLOW_OPS | set(KERNELS) if op not in defs} == set()
    assert {op for op in TENSORFLOW_OPS | set(KERNELS) if defs[op].is_stateful} == set()
    assert not TENSORFLOW_OPS & set(KERNELS)
    assert "Dequantize" not in TENSORFLOW_OPS
