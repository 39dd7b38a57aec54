"""TensorProtos are read as TensorFlow's C++ reads them, and written as the real server answers."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploykit.serving.protocol.codec import (
    MAX_FILLED_BYTES,
    MAX_STRINGS,
    decode,
    decode_all,
    encode,
    sent,
)
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.protos import TensorProto
from deploykit.transforms.ir.tensors import type_name, value_field
from tests.support import raises, tf

NUMBERS = [number for number in range(1, 26) if number not in (20, 21)]
TYPES = [str(type_name(number)) for number in NUMBERS]
_BITS = {
    "int_val": st.integers(-(1 << 31), (1 << 31) - 1),
    "half_val": st.integers(-(1 << 31), (1 << 31) - 1),
    "int64_val": st.integers(-(1 << 63), (1 << 63) - 1),
    "uint32_val": st.integers(0, (1 << 32) - 1),
    "uint64_val": st.integers(0, (1 << 64) - 1),
    "bool_val": st.booleans(),
    "string_val": st.binary(max_size=200),
    "float_val": st.floats(width=32),
    "scomplex_val": st.floats(width=32),
    "double_val": st.floats(),
    "dcomplex_val": st.floats(),
}
SHAPES = st.lists(st.integers(0, 4), max_size=4) | st.none()
BAD_SHAPES = st.lists(st.sampled_from([-1, 0, 1, 2, 1 << 33, 1 << 62]), max_size=5)


def tensor(number: int, shape, **fields) -> TensorProto:
    proto = TensorProto(dtype=number, **fields)
    if shape is None:
        proto.tensor_shape.unknown_rank = True
    for size in shape or ():
        proto.tensor_shape.dim.add().size = size
    return proto


def of_unknown_rank(proto: TensorProto) -> TensorProto:
    proto.tensor_shape.unknown_rank = True
    return proto


@st.composite
def tensors(draw, shapes=SHAPES) -> TensorProto:
    """Return a TensorProto of any type, with as many values or bytes as it happens to have."""
    number = draw(st.sampled_from(NUMBERS))
    proto = tensor(number, draw(shapes))
    proto.tensor_shape.unknown_rank |= draw(st.booleans())
    field = value_field(number)
    if draw(st.booleans()):
        size = math.prod(dim.size for dim in proto.tensor_shape.dim)
        width = 1 if field == "string_val" else np.dtype(numpy(number)).itemsize
        exact = min(abs(size * width), 1 << 12)
        lengths = st.integers(exact, exact) | st.integers(0, 70)
        small = st.integers(0, 3) | st.integers(0, 255)
        length = draw(lengths)
        proto.tensor_content = bytes(draw(st.lists(small, min_size=length, max_size=length)))
    elif field == "float8_val":
        proto.float8_val = draw(st.binary(max_size=70))
    else:
        getattr(proto, field).extend(draw(st.lists(_BITS[field], max_size=70)))
    return proto


def numpy(number: int):
    return tf.dtypes.as_dtype(number).as_numpy_dtype


def all_of(protos):
    return decode_all({alias: sent(proto) for alias, proto in protos.items()})


def oracle(proto: TensorProto):
    """Return what the C++ reads, or None where it refuses."""
    try:
        return tf.io.parse_tensor(proto.SerializeToString(), tf.dtypes.as_dtype(proto.dtype))
    except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError):
        return None


def decoded(proto: TensorProto):
    try:
        return decode(proto, "x")
    except ServingError:
        return None


def bits(array: np.ndarray):
    """Return what an array holds, bit by bit, so that NaN equals itself."""
    array = np.asarray(array)
    return array.shape, array.tolist() if array.dtype == object else array.tobytes()


def same(ours, theirs) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    theirs = np.array(theirs.numpy(), object if theirs.dtype == "string" else None)
    return bits(ours) == bits(theirs)


@pytest.mark.sampled
@settings(max_examples=400)
@given(tensors())
def test_it_reads_what_tensorflow_reads(proto):
    assert same(decoded(proto), oracle(proto)), proto


@pytest.mark.sampled
@settings(max_examples=200)
@given(tensors(BAD_SHAPES))
def test_shapes_that_lie_are_refused(proto):
    """The oracle is not asked to fill what is beyond the limit."""
    shape = [dim.size for dim in proto.tensor_shape.dim]
    if max(shape, default=0) < 1 << 33:
        assert same(decoded(proto), oracle(proto)), proto
    else:
        assert decoded(proto) is None


def test_the_oracle_tells_a_wrong_reading():
    proto = tensor(1, [3], float_val=[1, 2])
    assert same(np.array([1, 2, 2], np.float32), oracle(proto))
    assert not same(np.array([1, 2, 0], np.float32), oracle(proto))
    assert not same(None, oracle(proto))
    assert not same(np.zeros(2, np.float32), oracle(tensor(1, [-1])))


@pytest.mark.parametrize(
    ("proto", "value"),
    [
        (tensor(1, [3], float_val=[1, 2]), [1, 2, 2]),
        (tensor(1, [2], float_val=[1, 2, 3]), [1, 2]),
        (tensor(3, [2, 2]), [[0, 0], [0, 0]]),
        (tensor(1, None, float_val=[7, 8]), 7),
        (of_unknown_rank(tensor(1, [2], float_val=[1, 2])), [1, 2]),
        (tensor(1, [2], int_val=[5]), [0, 0]),
        (tensor(4, [2], int_val=[257, -1]), [1, 255]),
        (tensor(7, [2], string_val=[b"a"]), [b"a", b"a"]),
        (tensor(7, [2]), [b"", b""]),
        (tensor(7, [2], tensor_content=b"\x01\x02abc"), [b"a", b"bc"]),
        (tensor(7, [1], tensor_content=b"\x81\x01" + b"a" * 129), [b"a" * 129]),
        (tensor(8, [2], scomplex_val=[1, 2, 3]), [1 + 2j, 1 + 2j]),
        (tensor(1, [0, 3], float_val=[1]), np.zeros((0, 3)).tolist()),
    ],
)
def test_a_reading(proto, value):
    assert decode(proto, "x").tolist() == value


@pytest.mark.parametrize(
    "proto",
    [
        tensor(0, [1], float_val=[1]),
        tensor(101, [1], float_val=[1]),
        tensor(20, [1]),
        tensor(21, [1]),
        tensor(99, [1]),
        tensor(1, [-1], float_val=[1]),
        tensor(1, [2], tensor_content=b"1234567"),
        tensor(10, [1], tensor_content=b"\x02"),
        tensor(7, [2], tensor_content=b"\x01\x02abcd"),
        tensor(7, [2], tensor_content=b"\x01\x02ab"),
        tensor(7, [2], tensor_content=b"\x01\x82"),
        tensor(7, [1], tensor_content=b"\x81\x80\x80\x80\x80\x00a"),
        tensor(1, [1 << 31, 1 << 31, 1 << 31]),
        tensor(1, [0, 1 << 62, 1 << 62]),
        tensor(1, [1] * 65, float_val=[1]),
        tensor(1, [1] * 100_000, float_val=[1]),
    ],
)  # fmt: skip
def test_what_is_no_tensor_is_refused(proto):
    with raises(ServingError, "tensor-not-parsed", name="x") as raised:
        decode(proto, "x")
    assert raised.value.status == "INVALID_ARGUMENT"


@pytest.mark.parametrize("number", [1, 4, 7])
@pytest.mark.parametrize("values", [0, 1, 3])
def test_a_shape_that_asks_for_4_gib_takes_no_memory(number, values):
    """No clock: what is not allocated takes no time."""
    import tracemalloc

    proto = tensor(number, [1 << 10, 1 << 22])
    getattr(proto, value_field(number)).extend([b"" if number == 7 else 1] * values)
    assert len(proto.SerializeToString()) < 51
    tracemalloc.start()
    try:
        with pytest.raises(ServingError):
            decode(proto, "x", max_bytes=1 << 40)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_what_is_filled_in_has_a_limit_of_its_own():
    most = MAX_FILLED_BYTES // 4
    assert decode(tensor(1, [most]), "x").nbytes == MAX_FILLED_BYTES
    with pytest.raises(ServingError):
        decode(tensor(1, [most + 1]), "x")
    sent = tensor(1, [most + 1], tensor_content=bytes(MAX_FILLED_BYTES + 4))
    assert decode(sent, "x").nbytes == MAX_FILLED_BYTES + 4
    with pytest.raises(ServingError):
        decode(sent, "x", max_bytes=MAX_FILLED_BYTES)


@pytest.mark.sampled
def test_the_tensors_of_a_request_share_what_is_filled_in():
    zeros = {f"x{n}": tensor(1, [MAX_FILLED_BYTES // 40]) for n in range(10)}
    assert sum(array.nbytes for array in all_of(zeros).values()) == MAX_FILLED_BYTES // 40 * 40
    with raises(ServingError, "tensor-not-parsed", name="x0"):
        all_of({**zeros, "x10": tensor(1, [])})
    sent = tensor(1, [MAX_FILLED_BYTES], tensor_content=bytes(4 * MAX_FILLED_BYTES))
    assert all_of({"x": sent, "y": sent})["y"].nbytes == 4 * MAX_FILLED_BYTES
    assert all_of({}) == {}


@pytest.mark.sampled
def test_more_strings_than_the_limit_are_refused_before_they_are_decoded():
    count = MAX_STRINGS // 2
    half = tensor(7, [count], tensor_content=bytes(count))
    assert all_of({"x": tensor(7, [9], string_val=[b"a"]), "y": half})["y"].size == count
    for content in ({"tensor_content": bytes(count + 1)}, {"string_val": [b""]}, {}):
        with raises(ServingError, "strings-too-many", count=2 * count + 1, most=MAX_STRINGS):
            all_of({"x": half, "y": tensor(7, [count + 1], **content), "z": tensor(7, [-9])})


def samples(name: str) -> np.ndarray:
    """Return all that a type can hold that is unusual, and zeros of one size."""
    if name == "string":
        return np.array([b"", b"\x00\xff", b"x" * 300, "Käse".encode()], object)
    dtype = decode(tensor(NUMBERS[TYPES.index(name)], []), "x").dtype
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        near = [v for s in range(0, 64, 7) for v in ((1 << s) - 1, 1 << s, -(1 << s))]
        kept = [v for v in [info.min, info.max, *near] if info.min <= v <= info.max]
        return np.array(kept, dtype)
    if dtype.kind == "b":
        return np.array([True, False])
    if dtype.kind == "c":
        return np.array([1 + 2j, complex(math.nan, math.inf), -0.0], dtype)
    return np.array([0.0, -0.0, 1.5, math.nan, -2.0], dtype)


@pytest.mark.sampled
@pytest.mark.parametrize("as_content", [False, True], ids=["field", "content"])
@pytest.mark.parametrize("name", TYPES)
def test_what_is_written_is_read_by_tensorflow_and_by_us(name, as_content):
    values = samples(name)
    for array in (values, values[:1], values[:0], values[0:1].reshape(()), values[::-1]):
        proto = encode(array, name, as_content)
        assert type_name(proto.dtype) == name
        assert bits(decode(proto, "x")) == bits(array)
        assert same(array, oracle(proto))
        if array.size:
            assert bool(proto.tensor_content) == (as_content and name != "string")
            assert len(getattr(proto, value_field(proto.dtype))) == (
                array.size * (2 if array.dtype.kind == "c" else 1)
                if not as_content or name == "string" else 0
            )  # fmt: skip


@pytest.mark.parametrize(
    ("array", "name", "values"),
    [
        (np.array(["a", "é"]), "string", [b"a", "é".encode()]),
        (np.array([b"a", b"bc"]), "string", [b"a", b"bc"]),
        (np.float32(2.5), "float32", 2.5),
        (np.arange(6).reshape(2, 3).T, "int64", [[0, 3], [1, 4], [2, 5]]),
        (np.array([1.5], ml_dtypes.bfloat16), "bfloat16", [1.5]),
        (np.array([[True], [False]]), "bool", [[True], [False]]),
    ],
)
def test_the_type_is_the_arrays_own(array, name, values):
    proto = encode(array)
    assert type_name(proto.dtype) == name
    assert decode(proto, "x").tolist() == values


def test_the_answer_lies_where_official_clients_look():
    assert list(encode(np.array([2.5, 3], np.float32)).float_val) == [2.5, 3]
    assert list(encode(np.array([-1, 1 << 40])).int64_val) == [-1, 1 << 40]
    assert list(encode(np.array([True])).bool_val) == [True]
