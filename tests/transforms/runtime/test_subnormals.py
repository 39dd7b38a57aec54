"""What is folded is what TensorFlow computes, also of numbers that it takes for 0."""

import inspect
import itertools

import ml_dtypes
import numpy as np
import pytest

from deploykit.transforms.ir.tensors import numpy_type
from deploykit.transforms.runtime import constants
from deploykit.transforms.runtime.numpy_kernels import KERNELS, MOVING_OPS, has_subnormals
from tests import pairwise
from tests.support import build, call_here, run, tf, transform

FLOATS = ("float32", "float64", "bfloat16", "float16")
FLUSHED = FLOATS[:3]
WITHOUT_FLOATS = {"All", "Any", "LogicalAnd", "LogicalNot", "LogicalOr", "Range", "TruncateDiv"}
COMPUTING = sorted(set(KERNELS) - MOVING_OPS - WITHOUT_FLOATS)


def edges(dtype: str) -> np.ndarray:
    """Return numbers on both sides of where a type becomes imprecise, and what flushes later."""
    facts = ml_dtypes.finfo(numpy_type(dtype))
    tiny, normal = float(facts.smallest_subnormal), float(facts.smallest_normal)
    low = [tiny, normal / 2, normal * (1 - float(facts.eps)), normal, normal * 1.5]
    return np.array([0.0, 0.5, 1.0, 3.0, -0.0, *low, *(-x for x in low)], numpy_type(dtype))


def calls(op: str, dtype: str, step: int):
    """Yield an op on every step-th pair of numbers, and on all at once, in each way it takes."""
    function, x = getattr(tf.raw_ops, op), edges(dtype)
    names = list(inspect.signature(function).parameters)
    if op == "Cast":
        # a float64 that is normal may be too small for a float32
        more = np.array([1e-39, -1e-41, 1e-46, 1.0], np.float64).astype(x.dtype)
        for to, value in itertools.product((*FLOATS, "int32", "bool"), (*x, *more, x)):
            yield function(x=value, DstT=to)
    elif "axis" in names:
        for a, b in itertools.islice(itertools.product(x, x), 0, None, step):
            yield function(input=np.array([a, b]), axis=0)
        yield function(input=np.stack([x, x[::-1]]), axis=[1])
    elif names[:2] == ["x", "y"]:
        for a, b in itertools.islice(itertools.product(x, x), 0, None, step):
            yield function(x=a, y=b)
        for shift in range(x.size):
            yield function(x=x, y=np.roll(x, shift))
    else:
        assert names[0] == "x", f"{op} is called in a way that is not known here"
        for value in (*x, x):
            yield function(x=value)


@pytest.fixture
def in_process(monkeypatch):
    monkeypatch.setattr(constants, "call", call_here)


def differ(found: np.ndarray, expected: np.ndarray, signs: bool) -> np.ndarray:
    """Say where numbers differ: in a bit, or by more than 4 ulp where both are normal."""
    if found.dtype.kind not in "fV":
        return found != expected
    facts = ml_dtypes.finfo(found.dtype)
    a, b = found.astype(np.longdouble), expected.astype(np.longdouble)
    with np.errstate(all="ignore"):
        near = np.abs(a - b) <= 4 * float(facts.eps) * np.abs(b)
    same = (a == b) & ((np.signbit(a) == np.signbit(b)) | (not signs))
    is_normal = np.abs(b) >= float(facts.smallest_normal)
    return ~(same | (np.isnan(a) & np.isnan(b)) | (near & is_normal))


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "op", pairwise.drawn("what_is_folded_is_what_tensorflow_computes", COMPUTING, 6, quick=9)
)
@pytest.mark.parametrize(
    "step",
    [31, pytest.param(3, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.full)],
)
def test_what_is_folded_is_what_tensorflow_computes(in_process, op, dtype, step):
    def body():
        for number, value in enumerate(calls(op, dtype, step)):
            tf.raw_ops.Identity(input=value, name=f"out{number}")

    try:
        graph = build(body)
    except TypeError as error:
        pytest.skip(f"{op} takes no {dtype}: {error}")
    graph.outputs = tuple(node.name for node in graph if node.name.startswith("out"))
    folded = transform(graph, "fold_constants")
    assert {node.op for node in folded} == {"Const"}
    for output, found, expected in zip(graph.outputs, run(folded, {}), run(graph, {}), strict=True):
        assert found.dtype == expected.dtype
        wrong = differ(found, expected, signs=op[:3] not in ("Max", "Min"))  # of 0 and -0: either
        assert not wrong.any(), (output, found[wrong], expected[wrong])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(), (1,), (4, 5), (70_001,)])
def test_subnormals_are_found_wherever_they_are(dtype, shape):
    facts = ml_dtypes.finfo(numpy_type(dtype))
    values = np.ones(shape, numpy_type(dtype))
    values[...] = np.resize([1, -0.0, 0, np.inf, -np.inf, np.nan, facts.smallest_normal], shape)
    low, high = float(facts.smallest_subnormal), float(facts.smallest_normal)
    for view in (values, values.T, values[::-1] if shape else values):
        assert not has_subnormals(view)
    for number in (low, -low, high / 2, -high / 2, high - low, low - high):
        for place in {0, values.size // 2, values.size - 1}:
            changed = values.copy()
            changed.flat[place] = number
            for view in (changed, changed.T, np.broadcast_to(changed, (2, *shape))):
                assert has_subnormals(view) == (dtype in FLUSHED)


def test_other_types_and_no_numbers():
    assert has_subnormals(np.array([1 + 1e-40j], np.complex64))
    assert has_subnormals(np.array([1e-40], np.complex64))
    assert not has_subnormals(np.array([1 + 1j], np.complex64))
    for dtype in ("int32", "bool", "float8_e5m2", "float32", "object"):
        assert not has_subnormals(np.zeros((0, 3), dtype if "8" not in dtype else "int8"))
        assert not has_subnormals(np.array([1, 2]).astype(dtype if "8" not in dtype else "int8"))


def test_what_only_moves_is_left_to_numpy(monkeypatch):
    """TensorFlow keeps such numbers there, and need not be started."""

    def call(*arguments):
        raise AssertionError("TensorFlow was started")

    monkeypatch.setattr(constants, "call", call)

    def body():
        x = tf.constant(np.array([[1e-40, -1e-40], [0, 1]], np.float32))
        moved = tf.tile(tf.transpose(tf.reshape(tf.concat([x, x], 0), [4, 2])), [2, 1])
        tf.identity(
            tf.stack([moved, moved])[0, 1:] + 0 * tf.compat.v1.placeholder("float32"), "out"
        )

    folded = transform(build(body, outputs=["out"]), "fold_constants")
    assert any(has_subnormals(node.value) for node in folded if node.op == "Const")
    assert "Transpose" not in {node.op for node in folded}
