"""TensorProto <-> array, held against TensorFlow's own conversion."""

from dataclasses import replace

import numpy as np
import pytest

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir import tensors
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.protos import AttrValue, TensorProto
from deploykit.transforms.ir.tensors import DType, decode, encode
from tests.support import raises, says, tf

TYPES = ["float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8",
         "uint16", "uint32", "uint64", "bool", "complex64", "complex128"]  # fmt: skip


def values(name: str) -> np.ndarray:
    return np.array([[1, 0, 3], [0, 5, 6]]).astype(tensors.numpy_type(name))


@pytest.mark.sampled
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("form", ["different", "equal", "scalar", "empty"])
def test_round_trip_equals_tensorflows(name, form):
    array = values(name)
    array = {"different": array, "equal": np.full_like(array, array[0, 2]),
             "scalar": array[1, 1], "empty": array[:0]}[form]  # fmt: skip
    array = np.asarray(array)
    np.testing.assert_array_equal(decode(encode(array)), array)
    np.testing.assert_array_equal(tf.make_ndarray(encode(array)), array)  # TensorFlow reads ours
    theirs = TensorProto.FromString(tf.make_tensor_proto(array).SerializeToString())
    found = decode(theirs)  # and we read TensorFlow's
    np.testing.assert_array_equal(found, array)
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert not found.flags.writeable


def test_strings():
    array = np.array([b"a", b"\xff\x00"], object)
    assert decode(encode(array)).tolist() == array.tolist()
    assert tf.make_ndarray(encode(array)).tolist() == array.tolist()
    assert decode(encode(np.array("text"))).tolist() == b"text"


@pytest.mark.parametrize("name", ["qint8", "quint8", "qint32"])
def test_quantized_types_are_held_as_integers(name):
    array = values(name)
    proto = encode(array, name)
    assert tensors.type_name(proto.dtype) == name
    np.testing.assert_array_equal(decode(proto), array)


def test_one_value_for_many_takes_no_memory():
    proto = encode(np.full((1000, 1000), 0.5, np.float32))
    assert proto.ByteSize() < 50
    assert decode(proto).strides == (0, 0)
    assert encode(np.array([0.0, -0.0], np.float32)).ByteSize() > 12  # equal, but not the same bits
    nan = np.full(5, np.nan, np.float32)
    np.testing.assert_array_equal(decode(encode(nan)), nan)


def test_the_last_value_is_repeated():
    proto = TensorProto(dtype=1, float_val=[1, 2])
    proto.tensor_shape.dim.add(size=4)
    assert decode(proto).tolist() == [1, 2, 2, 2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tensor_content": b"123"}, says("tensor-size", size=3)),
        ({"float_val": [1] * 9}, says("tensor-values-count", got=9)),
        ({"sizes": [1 << 40, 1 << 20]}, "of float32 needs"),
        ({"sizes": [-1, 2]}, says("tensor-shape-open")),
        ({"dtype": 20}, says("tensor-without-value")),
        ({"dtype": 77}, says("tensor-without-value")),
        ({"dtype": 7}, "has 0 values"),
    ],
)
def test_damaged_tensors(change, message):
    proto = TensorProto(
        dtype=change.get("dtype", 1), tensor_content=change.get("tensor_content", b"")
    )
    proto.float_val.extend(change.get("float_val", []))
    for size in change.get("sizes", [2, 3]):
        proto.tensor_shape.dim.add(size=size)
    with pytest.raises(GraphError, match=message):
        decode(proto)


def test_type_names():
    assert tensors.type_number("half") == tensors.type_number("float16") == 19
    assert tensors.type_name(101) == "float32_ref"
    assert tensors.type_number("float32_ref") == 101
    with raises(GraphError, "type-unknown", name="flaot"):
        tensors.type_number("flaot")


@pytest.mark.parametrize("name", ["resource", "type70", "type70_ref"])
def test_types_without_values(name):
    with raises(GraphError, "type-not-readable", name=name):
        tensors.numpy_type(name)


def test_attributes_are_plain_values():
    attrs = {
        "T": DType("int32"), "shape": (2, -1), "axis": 3, "flag": True, "alpha": 0.5,
        "mode": "SAME", "strides": [1, 2], "types": [DType("float32"), DType("bool")],
        "shapes": [(1,), (2, 3)], "names": ["a", "b"],
    }  # fmt: skip
    node = Node("n", "Op").with_attrs(**attrs)
    read = Node.from_proto(node.to_proto())
    assert {name: read.attr(name) for name in attrs} == attrs
    assert isinstance(read.attr("T"), DType)
    assert read.attr("none", 7) == 7
    assert "axis" not in node.with_attrs(axis=None).attrs
    unknown = AttrValue()
    unknown.shape.unknown_rank = True
    assert node.with_attrs(shape=unknown).attr("shape") is None
    value = np.arange(6, dtype=np.int64).reshape(2, 3)
    np.testing.assert_array_equal(node.with_attrs(value=value).attr("value"), value)


def test_a_node_in_a_line():
    node = Node("n", "Op", ("a", "b:1", "^c"), device="/cpu:0").with_attrs(T=DType("int32"))
    assert str(node) == "n = Op(a, b:1, ^c) {T=int32} @/cpu:0"
    assert node.data_inputs == ("a", "b:1")
    assert node.control_inputs == ("^c",)
    assert replace(node, inputs=("^z", "a", "^z")).rewired(lambda t: [t]).inputs == ("a", "^z")


@pytest.mark.parametrize("name", ["float8_e5m2", "float8_e4m3fn"])
def test_float8(name):
    array = np.array([[1, -2, 0.5]]).astype(tensors.numpy_type(name))
    assert decode(encode(array)).tobytes() == array.tobytes()
    values = TensorProto(dtype=tensors.type_number(name), float8_val=array.tobytes())
    values.tensor_shape.dim.add(size=3)
    assert decode(values).tobytes() == array.tobytes()


def changed(dtype, shape, **fields) -> TensorProto:
    proto = TensorProto(dtype=tensors.type_number(dtype), **fields)
    for size in shape:
        proto.tensor_shape.dim.add(size=size)
    return proto


@pytest.mark.parametrize(
    ("proto", "message"),
    [
        (changed("complex64", [2], scomplex_val=[1, 2, 3]), says("tensor-real-only")),
        (changed("complex64", [1], scomplex_val=[1, 2, 3, 4]), "has 2 values"),
        (changed("float32", [1] * 65, float_val=[1]), "has 65 dimensions"),
        (changed("float32", [0, 1 << 60]), "of float32 needs"),
        (
            changed("string", [1 << 27], string_val=[b"a"]),
            says("tensor-too-many-bytes", size=3221225472),
        ),
        (changed("string", [2], tensor_content=b"\1\1ab"), says("tensor-size", size=4)),
        (changed("variant", []), says("tensor-without-value", type="variant")),
    ],
)
def test_damage_is_seen_before_anything_is_decoded(proto, message):
    for read in (tensors.check_size, decode):
        with pytest.raises(GraphError, match=message):
            read(proto)


def test_check_size_decodes_nothing():
    proto = changed("float32", [1 << 14, 1 << 14], float_val=[1])
    assert tensors.check_size(proto) == (1 << 14, 1 << 14)
    assert tensors.check_size(changed("float32", [])) == ()


def test_values_beyond_their_type_are_cut_as_tensorflow_cuts_them():
    assert decode(changed("int8", [3], int_val=[127, 128, -129])).tolist() == [127, -128, 127]
    found = decode(changed("float16", [2], half_val=[15360, 15360 + (1 << 16)]))
    assert found.tolist() == [1, 1]
