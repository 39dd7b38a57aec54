"""Attributes that are missing, wrong, or of another kind than the op demands."""

import numpy as np

from deploykit.transforms.ir.protos import AttrValue, NodeDef
from tests.hostile.case import BAD, HARMLESS, ODD, UNPROVED, Case, Statuses
from tests.hostile.graphs import (
    FLOAT,
    FLOAT_REF,
    INT32,
    Func,
    Shape,
    Type,
    constant,
    floats,
    net,
    node,
    tensor,
    written_graph,
)  # fmt: skip

KIND = "attributes"


def case(name: str, culprit: NodeDef, right: Statuses = BAD, live: bool = True) -> Case:
    """Return a case of a net with one wrong node."""
    made = net(*IMAGE, culprit, end=culprit.name if live else None)
    return Case(KIND, name, written_graph(made), right=right, culprit=(f"'{culprit.name}'",))


def changed(base: NodeDef, name: str, value) -> NodeDef:
    """Return a node with an attribute that holds anything."""
    made = NodeDef.FromString(base.SerializeToString())
    made.attr[name].CopyFrom(value if isinstance(value, AttrValue) else AttrValue(**value))
    return made


IMAGE = (
    constant("image", np.ones((1, 8, 8, 3), np.float32)),
    constant("filter", np.ones((3, 3, 3, 2), np.float32)),
)
RELU = floats("odd", "Relu", "x")
CAST = node("odd", "Cast", "x", SrcT=Type(FLOAT), DstT=Type(FLOAT), Truncate=False)
CONV = floats("odd", "Conv2D", "image", "filter", strides=[1, 1, 1, 1], padding="SAME")
POOL = floats("odd", "MaxPool", "image", ksize=[1, 1, 1, 1], strides=[1, 1, 1, 1], padding="SAME")

CASES = (
    case("type missing", node("odd", "Relu", "x")),
    case("type missing on a dead node", node("odd", "Relu", "x"), live=False),
    case("value of a constant missing", node("odd", "Const", dtype=Type(FLOAT))),
    case("type of a constant missing", node("odd", "Const", value=np.float32(1) * np.ones(1))),
    case("type of a placeholder missing", node("odd", "Placeholder")),
    case("type as an int", node("odd", "Relu", "x", T=1)),
    case("type as a text", node("odd", "Relu", "x", T="float32")),
    case("type as a tensor", changed(RELU, "T", {"tensor": tensor(np.ones(2, np.float32))})),
    case("type as a list", changed(RELU, "T", {"list": AttrValue.ListValue(type=[1, 1])})),
    case("type as a function", node("odd", "Relu", "x", T=Func("f"))),
    case("type as nothing", changed(RELU, "T", AttrValue())),
    case("type as a placeholder", changed(RELU, "T", {"placeholder": "T"})),
    case("type that is no type, 99", node("odd", "Relu", "x", T=Type(99))),
    case("type zero", node("odd", "Relu", "x", T=Type(0))),
    case("type of minus one", node("odd", "Relu", "x", T=Type(-1))),
    case("type of 2^31-1", node("odd", "Relu", "x", T=Type(2**31 - 1))),
    case("type that Relu does not take, string", node("odd", "Relu", "x", T=Type(7))),
    case("type of a reference", node("odd", "Relu", "x", T=Type(FLOAT_REF))),
    case("type of a constant of a reference",
         node("odd", "Const", dtype=Type(FLOAT_REF), value=np.ones(1, np.float32))),
    case("type of a constant as a tensor",
         changed(constant("odd", 1.0), "dtype", {"tensor": tensor(np.ones(1, np.float32))})),
    case("value of a constant as a float", node("odd", "Const", dtype=Type(FLOAT), value=1.0)),
    case("value of a constant as a text", node("odd", "Const", dtype=Type(FLOAT), value="1")),
    case("value of a constant as a list of tensors",
         node("odd", "Const", dtype=Type(FLOAT), value=[tensor(np.ones(1, np.float32))])),
    case("shape of a placeholder as a text",
         node("odd", "Placeholder", dtype=Type(FLOAT), shape="[2, 3]")),
    case("shape of a placeholder below minus one",
         node("odd", "Placeholder", dtype=Type(FLOAT), shape=Shape((-7, 3)))),
    case("shape of a placeholder of 2^63",
         node("odd", "Placeholder", dtype=Type(FLOAT), shape=Shape((1 << 62, 1 << 62)))),
    case("shape of 300 sizes",
         node("odd", "Placeholder", dtype=Type(FLOAT), shape=Shape((1,) * 300))),
    case("shape of 100,000 sizes",
         node("odd", "Placeholder", dtype=Type(FLOAT), shape=Shape((1,) * 100_000))),
    case("flag as an int", changed(CAST, "Truncate", {"i": 1})),
    case("flag as a text", changed(CAST, "Truncate", {"s": b"false"})),
    case("strides missing", floats("odd", "Conv2D", "image", "filter", padding="SAME")),
    case("strides as one int", changed(CONV, "strides", {"i": 1})),
    case("strides as floats", changed(CONV, "strides", {"list": AttrValue.ListValue(f=[1, 1, 1])})),
    case("strides as texts", changed(CONV, "strides", {"list": AttrValue.ListValue(s=[b"1"])})),
    case("strides of mixed kinds",
         changed(CONV, "strides", {"list": AttrValue.ListValue(i=[1, 1, 1, 1], f=[1.0])})),
    case("strides of none", changed(CONV, "strides", {"list": AttrValue.ListValue()})),
    case("strides of zero", changed(CONV, "strides", {"list": AttrValue.ListValue(i=[0] * 4)})),
    case("strides below zero",
         changed(CONV, "strides", {"list": AttrValue.ListValue(i=[1, -1, -1, 1])})),
    case("strides of 2^62",
         changed(CONV, "strides", {"list": AttrValue.ListValue(i=[1, 1 << 62, 1 << 62, 1])})),
    case("strides of a million numbers",
         changed(CONV, "strides", {"list": AttrValue.ListValue(i=[1] * 1_000_000)})),
    case("padding not among those allowed", changed(CONV, "padding", {"s": b"NEARLY"})),
    case("padding empty", changed(CONV, "padding", {"s": b""})),
    case("padding as bytes that are no text", changed(CONV, "padding", {"s": b"\xff\xfe\0"})),
    case("padding explicit without sizes", changed(CONV, "padding", {"s": b"EXPLICIT"})),
    case("data format not among those allowed", changed(CONV, "data_format", {"s": b"NXYZ"})),
    case("pool of size zero", changed(POOL, "ksize", {"list": AttrValue.ListValue(i=[0] * 4)}),
         right=UNPROVED),
    case("count below its minimum", floats("odd", "AddN", N=0)),
    case("count as a text", floats("odd", "AddN", "x", N="1")),
    case("count as a float", floats("odd", "AddN", "x", N=1.0)),
    case("count missing", floats("odd", "AddN", "x")),
    case("type list missing", node("odd", "IdentityN", "x")),
    case("type list empty", node("odd", "IdentityN", T=[]), right=BAD),
    case("type list longer than the inputs", node("odd", "IdentityN", "x", T=[Type(1)] * 1000)),
    case("type list of unknown types", node("odd", "IdentityN", "x", T=[Type(99)])),
    case("unknown attribute", floats("odd", "Relu", "x", colour="red"), right=ODD),
    case("unknown attribute with a name of an escape",
         floats("odd", "Relu", "x", **{"a\x1b[2J\n": 1}), right=ODD),
    case("attribute of Python's own", floats("odd", "Relu", "x", __class__="os.system"),
         right=ODD),
    case("hidden attribute", floats("odd", "Relu", "x", _anything="yes"), right=HARMLESS),
    case("hidden attribute of output shapes that lies",
         floats("odd", "Relu", "x", _output_shapes=[Shape((7, 7))]), right=ODD),
    case("hidden attribute of a colocated node that is missing",
         floats("odd", "Relu", "x", _class=["loc:@nowhere"]), right=ODD),
    case("hidden attribute of colocation as a number", floats("odd", "Relu", "x", _class=7),
         right=ODD),
    case("100,000 attributes",
         floats("odd", "Relu", "x", **{f"_a{i}": i for i in range(100_000)}), right=ODD),
    case("function that is not there",
         node("odd", "StatefulPartitionedCall", "x", Tin=[Type(1)], Tout=[Type(1)],
              f=Func("nothing"), config="", config_proto="", executor_type="")),
    case("function as a text",
         node("odd", "PartitionedCall", "x", Tin=[Type(1)], Tout=[Type(1)], f="nothing")),
    case("function as nothing",
         changed(node("odd", "PartitionedCall", "x", Tin=[Type(1)], Tout=[Type(1)]), "f",
                 AttrValue())),
    case("config that is no config",
         node("odd", "PartitionedCall", "x", Tin=[Type(1)], Tout=[Type(1)], f=Func("Relu"),
              config_proto=b"\xff" * 100), right=UNPROVED),
    case("lists within functions, deep", node("odd", "PartitionedCall", "x", Tin=[Type(INT32)],
                                              Tout=[Type(INT32)], f=Func("AddV2"))),
    Case(KIND, "device that is no device",
         written_graph(net(NodeDef(name="odd", op="NoOp", device="/job:\0/../x:9"))),
         culprit=("'odd'",), right=ODD),
    Case(KIND, "device of another machine",
         written_graph(net(NodeDef(name="odd", op="NoOp", device="/job:worker/task:99/gpu:77"))),
         culprit=("'odd'",), right=UNPROVED),
)  # fmt: skip
