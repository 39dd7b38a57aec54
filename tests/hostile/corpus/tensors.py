"""Tensors that say one thing and hold another."""

import numpy as np

from deploykit.transforms.ir.protos import NodeDef, TensorProto
from tests.hostile.case import BAD, HARMLESS, ODD, UNPROVED, Case, Statuses
from tests.hostile.graphs import (
    BOOL,
    DOUBLE,
    FLOAT,
    INT32,
    INT64,
    RESOURCE,
    STRING,
    VARIANT,
    Type,
    constant,
    floats,
    graph,
    net,
    node,
    placeholder,
    written_graph,
)  # fmt: skip
from tests.hostile.wire import block, number

KIND = "tensors"


def held(dtype: int, sizes: tuple[int, ...] = (), **fields) -> TensorProto:
    """Return a tensor with anything in it."""
    made = TensorProto(dtype=dtype, **fields)
    made.tensor_shape.SetInParent()
    for size in sizes:
        made.tensor_shape.dim.add(size=size)
    return made


def case(name: str, value: TensorProto, right: Statuses = BAD, of: int | None = None,
         live: bool = False, heavy: bool = False) -> Case:  # fmt: skip
    """Return a case of a net with one wrong constant."""
    made = net(constant("odd", value, of=of), end="odd" if live else None)
    return Case(KIND, name, written_graph(made), right=right, culprit=("'odd'",), heavy=heavy)


def raw(
    name: str, message: bytes, right: Statuses = BAD, heavy: bool = False, unread: bool = False
) -> Case:
    """Return a case of a net with a tensor of these bytes."""

    def write(folder):
        value = block(1, b"value") + block(2, block(8, message))
        dtype = block(1, b"dtype") + block(2, number(6, FLOAT))
        odd = block(1, b"odd") + block(2, b"Const") + block(5, value) + block(5, dtype)
        path = folder / "model.pb"
        path.write_bytes(net().SerializeToString(deterministic=True) + block(1, odd))
        return path

    named = () if unread else ("'odd'",)  # what cannot be parsed has no names
    return Case(KIND, name, write, right=right, culprit=named, heavy=heavy)


def quantized(value: np.ndarray) -> Case:
    """Return a case of weights that cannot be made 8-bit."""
    weights = constant("odd", value)
    made = graph(placeholder("x", (2, value.shape[0])), weights,
                 floats("out", "MatMul", "x", "odd", transpose_a=False,
                        transpose_b=False))  # fmt: skip
    return Case(KIND, f"weights of {value.flat[0]}", written_graph(made), right=UNPROVED)


FOUR = np.ones(4, np.float32).tobytes()
SHAPE_2_40 = block(2, number(1, 1 << 40))

CASES = (
    case("dtype int, attribute float", held(INT32, (2,), int_val=[1, 2]), of=FLOAT),
    case("dtype float, attribute int", held(FLOAT, (), float_val=[1]), of=INT32),
    case("dtype float, attribute string", held(FLOAT, (), float_val=[1]), of=STRING),
    case("dtype float, attribute resource", held(FLOAT, (), float_val=[1]), of=RESOURCE),
    case("dtype float, attribute double, live", held(FLOAT, (4,), tensor_content=FOUR), of=DOUBLE,
         live=True),
    case("dtype 0", held(0, (), float_val=[1])),
    case("dtype 99", held(99, (), float_val=[1])),
    case("dtype 2^31-1", held(2**31 - 1)),
    case("dtype of a reference", held(101, (), float_val=[1])),
    case("shape 2^40 with one value", held(FLOAT, (1 << 40,), float_val=[1])),
    case("shape 2^40 with one value, live", held(FLOAT, (1 << 40,), float_val=[1]), live=True),
    case("shape 2^31 with one value", held(FLOAT, (1 << 31,), float_val=[1]), heavy=True),
    case("shape 2^28 x 4 with one value", held(FLOAT, (1 << 28, 4), float_val=[1]), heavy=True),
    case("shape 2^28 with no value", held(FLOAT, (1 << 28,)), right=ODD, heavy=True),
    case("shape 2^62 x 2^62 with one value", held(FLOAT, (1 << 62, 1 << 62), float_val=[1])),
    case("shape 2^32 x 2^32 with one value", held(FLOAT, (1 << 32, 1 << 32), float_val=[1])),
    case("shape of 254 sizes of two", held(FLOAT, (2,) * 254, float_val=[1])),
    case("shape of 255 sizes of one", held(FLOAT, (1,) * 255, float_val=[1])),
    case("shape of 100,000 sizes of one", held(FLOAT, (1,) * 100_000, float_val=[1])),
    case("shape with a size of minus one", held(FLOAT, (-1,), float_val=[1])),
    case("shape with a size of minus 2^63", held(FLOAT, (-(1 << 63),), float_val=[1])),
    case("shape of minus one times minus one", held(FLOAT, (-1, -1), float_val=[1])),
    case("shape of zero times 2^62 times 2^62", held(FLOAT, (0, 1 << 62, 1 << 62)), right=BAD),
    case("shape of zero times 2^40", held(FLOAT, (0, 1 << 40)), right=ODD),
    case("shape of unknown rank", TensorProto(dtype=FLOAT, tensor_shape={"unknown_rank": True},
                                              float_val=[1])),
    case("bool of 2^40 with one value", held(BOOL, (1 << 40,), bool_val=[True])),
    case("string of 2^40 with one value", held(STRING, (1 << 40,), string_val=[b"a"])),
    case("string of 2^27 with one value", held(STRING, (1 << 27,), string_val=[b"a"]), heavy=True),
    case("string of 2^24 with none", held(STRING, (1 << 24,)), heavy=True),
    case("string of 2 with 3", held(STRING, (2,), string_val=[b"a", b"b", b"c"])),
    case("string with content of bytes", held(STRING, (2,), tensor_content=b"\xff\xff\xff\xff")),
    case("string of bytes that are no text", held(STRING, (1,), string_val=[b"\xff\xfe\0"]),
         right=HARMLESS),
    case("content one byte too short", held(FLOAT, (4,), tensor_content=FOUR[:-1])),
    case("content one byte too long", held(FLOAT, (4,), tensor_content=FOUR + b"\0")),
    case("content half filled", held(FLOAT, (4,), tensor_content=FOUR[:8])),
    case("content of one float for four", held(FLOAT, (4,), tensor_content=FOUR[:4]), right=ODD),
    case("content and values", held(FLOAT, (4,), tensor_content=FOUR, float_val=[1, 2, 3, 4]),
         right=ODD),
    case("values of another type", held(FLOAT, (4,), int_val=[1, 2, 3, 4]), right=ODD),
    case("five values for four", held(FLOAT, (4,), float_val=[1] * 5)),
    case("no value for a scalar", held(FLOAT), right=ODD),
    case("no value for four", held(FLOAT, (4,)), right=ODD),
    case("resource handle of garbage", held(RESOURCE, (),
         resource_handle_val=[{"name": "x" * 99}])),
    case("resource handle of a variable of another process",
         held(RESOURCE, (), resource_handle_val=[{"device": "/job:x", "hash_code": 7}]),
         live=False),
    case("variant of garbage", held(VARIANT, (),
         variant_val=[{"type_name": "tensorflow::TensorList",
                                                              "metadata": b"\xff" * 50}])),
    case("variant of an unknown type", held(VARIANT, (), variant_val=[{"type_name": "nothing"}])),
    case("variant without content", held(VARIANT, (1,))),
    case("variant of a list that holds a list", held(VARIANT, (), variant_val=[
        {"type_name": "tensorflow::TensorList", "metadata": b"\x80\x80\x80\x80\x08",
         "tensors": [held(VARIANT, (), variant_val=[{"type_name": "tensorflow::TensorList"}])]}])),
    case("variant of a function", held(VARIANT, (), variant_val=[
        {"type_name": "tensorflow::data::WrappedDatasetVariant", "metadata": b"x"}])),
    case("half precision as negative numbers", held(19, (2,), half_val=[-1, 1 << 20]), right=ODD),
    case("complex of one number", held(8, (1,), scomplex_val=[1.0]), right=ODD),
    case("quantized content", held(11, (2,), int_val=[300, -300]), right=ODD),
    case("int8 beyond its range", held(6, (2,), int_val=[300, -300]), right=ODD),
    case("4-bit numbers", held(29, (2,), int_val=[1, 2]), right=ODD),
    case("8-bit floats", held(24, (2,), float8_val=b"\xff\xff"), right=ODD),
    raw("repeated values packed wrongly", number(1, FLOAT) + block(5, b"\0\0\0"), unread=True),
    raw("count of values that lies", number(1, FLOAT) + block(5, b"\0" * 8, 1 << 40),
        unread=True),
    raw("2,000,000 packed values for a scalar",
        number(1, FLOAT) + block(2, b"") + block(5, bytes(8_000_000)), heavy=True),
    raw("a million unpacked values for a scalar",
        number(1, FLOAT) + block(2, b"") + b"\x2d\0\0\x80\x3f" * 1_000_000, heavy=True),
    raw("a million empty strings", number(1, STRING) + SHAPE_2_40 + b"\x42\x00" * 1_000_000,
        heavy=True),
    raw("a million empty sizes", number(1, FLOAT) + block(2, b"\x12\x00" * 1_000_000), heavy=True),
    raw("two shapes", number(1, FLOAT) + block(2, b"\x12\x02\x08\x02") * 2 + block(4, FOUR),
        right=HARMLESS),
    quantized(np.full((64, 64), np.nan, np.float32)),
    quantized(np.full((64, 64), np.inf, np.float32)),
    quantized(np.full((64, 64), 3e38, np.float32)),
    quantized(np.full((64, 64), 1e-45, np.float32)),
    quantized(np.zeros((64, 64), np.float32)),
    Case(KIND, "a placeholder's default that does not fit",
         written_graph(net(constant("d", np.ones((5, 5), np.float32)), node(
             "odd", "PlaceholderWithDefault", "d", dtype=Type(FLOAT),
             shape=placeholder("p", (2, 2)).attr["shape"]))), culprit=("'odd'",)),
    Case(KIND, "indices far outside",
         written_graph(net(constant("i", np.array([10**9], np.int64)), constant("axis", 0),
                           node("odd", "GatherV2", "weights", "i", "axis", Tparams=Type(FLOAT),
                                Tindices=Type(INT64), Taxis=Type(INT32), batch_dims=0),
                           constant("zero", 0.0), end=None)), right=UNPROVED),
    Case(KIND, "constant of 5 MB in a dead node",
         written_graph(net(constant("dead", np.zeros(1_250_000, np.float32)))), right=HARMLESS,
         heavy=True),
    Case(KIND, "a constant that reads",
         written_graph(net(NodeDef.FromString(constant("odd", 1.0).SerializeToString()
                                              + block(3, b"x")))), culprit=("'odd'",)),
)  # fmt: skip
