"""Names of tensors out of files that nobody vouches for, and nodes as values."""

import dataclasses
import subprocess
import sys
import weakref

import numpy as np
import pytest

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.node import Node, normal, producer_name, split, tensor_name
from deploykit.transforms.ir.protos import AttrValue, NodeDef
from deploykit.transforms.ir.tensors import DType
from tests.support import raises, says


@pytest.mark.parametrize(
    ("tensor", "name", "port"),
    [
        ("a", "a", 0),
        ("a:0", "a", 0),
        ("a:12", "a", 12),
        ("^a", "a", -1),
        ("scope/a.b:1", "scope/a.b", 1),
        ("a:b", "a:b", 0),
        ("a:", "a:", 0),
        ("a:-1", "a:-1", 0),
        ("a:\u00b2", "a:\u00b2", 0),  # a digit for Python, but no number
        ("a:\u0663", "a:\u0663", 0),
        ("a:" + "9" * 5000, "a:" + "9" * 5000, 0),  # more digits than int() takes
        ("", "", 0),
        ("^", "", -1),
    ],
)
def test_split(tensor, name, port):
    assert split(tensor) == (name, port)
    assert producer_name(tensor) == name
    assert normal(normal(tensor)) == normal(tensor)
    assert split(tensor_name(name, port)) == (name, port)


def test_a_node_does_not_change():
    node = Node("n", "Op", ("a",))
    with pytest.raises(dataclasses.FrozenInstanceError):
        node.name = "m"
    assert node.with_name("m") == Node("m", "Op", ("a",))
    assert node.with_control_inputs() is node
    assert node.with_control_inputs("^b", "^b").inputs == ("a", "^b")
    assert node.name == "n"


def test_a_node_def_goes_there_and_back():
    proto = NodeDef(name="n", op="Op", input=["a:0", "b:1", "^c"], device="/cpu:0")
    proto.attr["T"].type = 1
    node = Node.from_proto(proto)
    assert node.inputs == ("a", "b:1", "^c")
    again = node.to_proto()
    assert Node.from_proto(again) == node
    assert again.attr["T"].type == 1


PICKLED = """
import pickle
import sys
from deploykit.transforms.ir.node import Node
nodes = [
    Node("n", "Op", ("a", "b:1", "^c"), {}, "/cpu:0").with_attrs(size=(1, -1), kind="SAME"),
    Node.constant("c", __import__("numpy").arange(1000.0)),
]
assert pickle.loads(pickle.dumps(nodes)) == nodes
print("tensorflow" in sys.modules)
"""


def test_a_node_is_pickled_without_tensorflow():
    done = subprocess.run(
        [sys.executable, "-c", PICKLED], capture_output=True, text=True, check=False
    )
    assert done.stdout == "False\n", done.stderr


def test_the_value_of_a_const_is_read_only_and_not_held():
    node = Node.constant("w", np.arange(6, dtype=np.float32).reshape(2, 3), device="/cpu:0")
    value = weakref.ref(node.value)
    assert value() is None  # weights lie in memory once, not twice
    assert node.value.shape == node.shape == (2, 3)
    assert node.device == "/cpu:0"
    with pytest.raises(ValueError, match="read-only"):
        node.value[0, 0] = 1
    changed = node.with_attrs(value=np.zeros(3, np.float32))
    assert changed.value.tolist() == [0, 0, 0]
    assert Node.constant("q", np.zeros(2, np.int8), "qint8").attr("dtype") == "qint8"


@pytest.mark.parametrize("node", [Node("n", "Relu"), Node("n", "Const")])
def test_what_holds_no_value_says_so(node):
    with raises(GraphError, "node-without-value", node="n", op=node.op):
        _ = node.value
    with raises(GraphError, "node-without-value", node="n", op=node.op):
        _ = node.shape


def test_a_damaged_value_names_its_node():
    value = AttrValue()
    value.tensor.dtype = 1
    value.tensor.tensor_content = b"abc"
    with raises(GraphError, "tensor-size", size=3, source="node 'n'"):
        _ = Node("n", "Const").with_attrs(value=value).value


def test_large_arrays_are_shown_by_type_and_shape():
    assert str(Node.constant("w", np.ones((8, 8), np.float32))) == (
        "w = Const() {dtype=float32, value=float32[8, 8]}"
    )
    assert "value=[1, 2]" in str(Node.constant("w", np.array([1, 2])))


def test_what_an_attribute_cannot_be():
    with pytest.raises(TypeError, match=says("attribute-unsupported")):
        Node("n", "Op").with_attrs(a=object())


class Counted(str):
    """A text that counts how often it is compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        Counted.compared += 1
        return str.__eq__(self, other)


def test_control_inputs_are_taken_away_in_one_pass():
    count = 1000
    waits = [Counted(f"^n{i}") for i in range(count)]
    node = Node("n", "NoOp", ("x", *waits))
    Counted.compared = 0
    assert node.without_control_inputs(*map(Counted, waits[:-1])).inputs == ("x", waits[-1])
    assert Counted.compared < 3 * count


def test_data_inputs_are_not_copied_where_there_are_no_others():
    """A pass that asks for them at each of 100,000 inputs stays linear."""
    node = Node("n", "AddN", tuple(f"x{number}" for number in range(5)))
    assert node.data_inputs is node.inputs
    assert node.with_control_inputs("^a", "^b").data_inputs == node.inputs
    assert Node("n", "NoOp", ("^a", "^b")).data_inputs == ()
    assert Node("n", "NoOp").data_inputs == ()


def test_nodes_with_the_same_few_attributes_share_them():
    relu = Node("a", "Relu").with_attrs(T=DType("float32"))
    first, other = (Node.from_proto(relu.with_name(name).to_proto()) for name in "ab")
    assert first.attrs is other.attrs
    assert first.attrs == relu.attrs
    double = Node.from_proto(relu.with_attrs(T=DType("float64")).to_proto())
    assert double.attr("T") == "float64"
    assert first.attr("T") == "float32"
    assert other.with_attrs(T=None).attrs == {}
    assert first.attr("T") == "float32"


@pytest.mark.parametrize(
    "array",
    [
        np.array(-0.0, np.float32),
        np.array([1, 2], ">i4"),
        np.array([[1.5, np.nan]], np.float16),
        np.arange(8, dtype=np.int8).reshape(2, 4)[:, ::2],
        np.array([True, False]),
        np.array(b"text", object),
        np.zeros((0, 3), np.float64),
        np.arange(100.0),
    ],
    ids=repr,
)
def test_equal_constants_hold_equal_bytes(array):
    """Small ones share their attributes."""
    a, b = Node.constant("a", array), Node.constant("b", array.copy())
    assert a.attrs == b.attrs or np.isnan(array).any()
    np.testing.assert_array_equal(a.value, np.asarray(array, a.value.dtype))
    assert (a.attrs is b.attrs) == (array.nbytes <= 64 and array.dtype.kind != "O")


def test_zeros_of_other_signs_shapes_and_types_are_other_constants():
    arrays = [np.float32(0.0), np.float32(-0.0), np.float64(0.0), np.zeros(1, np.float32)]
    contents = {
        Node.constant("c", np.asarray(array)).attrs["value"].SerializeToString() for array in arrays
    }
    assert len(contents) == len(arrays)
