"""What an untrusted graph is refused for, each with its message; none of it starts TensorFlow."""

import functools
import random

import numpy as np
import pytest
from google.protobuf.message import DecodeError

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.ops import op_defs
from deploykit.transforms.ir.protos import AttrValue, FunctionDefLibrary, GraphDef
from deploykit.transforms.ir.tensors import DType
from deploykit.transforms.untrusted.validate import validate
from tests.support import assert_golden, calls_of, raises, refusal, tf

FLOAT, INT = DType("float32"), DType("int32")


def placeholder(name="x", **attrs):
    return Node(name, "Placeholder").with_attrs(dtype=FLOAT, **attrs)


def relu(name, *inputs):
    return Node(name, "Relu", inputs).with_attrs(T=FLOAT)


def const(name, edit=lambda tensor: None, value=(1.0, 2.0)):
    """A Const whose tensor has been tampered with."""
    node = Node.constant(name, np.array(value, np.float32))
    attr = AttrValue()
    attr.CopyFrom(node.attrs["value"])
    edit(attr.tensor)
    return node.with_attrs(value=attr)


def grow(tensor):
    tensor.tensor_content = b""
    del tensor.tensor_shape.dim[:]
    tensor.tensor_shape.dim.add(size=1 << 28)
    tensor.tensor_shape.dim.add(size=4)
    tensor.float_val.append(1.0)


def call(name, function, *inputs, outputs=1, op="PartitionedCall"):
    attrs = {"f": AttrValue()}
    attrs["f"].func.name = function
    types = {"Tin": AttrValue(), "Tout": AttrValue()}
    types["Tin"].list.type.extend([1] * len(inputs))
    types["Tout"].list.type.extend([1] * outputs)
    return Node(name, op, inputs, attrs | types)


def library(**functions):
    """Functions of one argument `a` and one result; each is given by its nodes, the last counts."""
    result = FunctionDefLibrary()
    for name, nodes in functions.items():
        function = result.function.add()
        function.signature.name = name
        function.signature.input_arg.add(name="a", type=1)
        function.signature.output_arg.add(name="r", type=1)
        for node in nodes:
            function.node_def.append(node.to_proto())
        op_def = op_defs().get(nodes[-1].op)
        output = op_def.output_arg[0].name if op_def and op_def.output_arg else "r"
        function.ret["r"] = f"{nodes[-1].name}:{output}:0"
    return result


def doubling(levels):
    """Functions of which each calls the next one twice."""
    functions = {
        f"f{i}": [call("n", f"f{i + 1}", "a"), call("m", f"f{i + 1}", "n:output:0")]
        for i in range(levels)
    }
    return functions | {f"f{levels}": [relu("n", "a")]}


X = placeholder()
BAD = {
    "empty": [],
    "name": [placeholder("a b")],
    "control character": [placeholder("a\n")],
    "long": [placeholder("a" * 9999 + " ")],
    "unprintable op": [Node("y", "Re\nlu")],
    "unprintable input": [X, relu("y", "z\n")],
    "starts with _": [placeholder("_a")],
    "unknown op": [X, Node("y", "Reluu", ("x",))],
    "dangling": [relu("y", "x")],
    "cycle": [relu("y", "z"), relu("z", "y")],
    "port": [X, relu("y", "x:1")],
    "port of a list": [
        X,
        Node.constant("axis", np.int32(0)),
        Node("s", "Split", ("axis", "x")).with_attrs(T=FLOAT, num_split=2),
        relu("y", "s:2"),
    ],
    "no output": [Node("n", "NoOp"), relu("y", "n")],
    "data after control": [X, relu("y", "^x", "x")],
    "too many inputs": [X, relu("y", "x", "x")],
    "inputs by attribute": [X, Node("y", "Pack", ("x", "x")).with_attrs(T=FLOAT, N=3)],
    "inputs by type list": [X, Node("y", "IdentityN", ("x",)).with_attrs(T=[FLOAT, FLOAT])],
    "absurd number of outputs": [X, Node("y", "Unpack", ("x",)).with_attrs(T=FLOAT, num=1 << 40)],
    "negative number of outputs": [X, Node("y", "Unpack", ("x",)).with_attrs(T=FLOAT, num=-1)],
    "missing attribute": [
        X,
        Node("y", "Relu6", ("x",)),
        Node("z", "Cast", ("y",)).with_attrs(SrcT=FLOAT),
    ],
    "type of an attribute": [X, relu("y", "x").with_attrs(T=3)],
    "empty attribute": [X, relu("y", "x").with_attrs(T=AttrValue())],
    "placeholder attribute": [X, relu("y", "x").with_attrs(T=AttrValue(placeholder="T"))],
    "list attribute": [
        X,
        Node("y", "MaxPool", ("x",)).with_attrs(T=FLOAT, ksize=2, strides=[1], padding="SAME"),
    ],
    "shape": [placeholder(shape=(1 << 40, 1 << 40))],
    "type of a Const": [Node.constant("w", np.ones(2, np.int32)).with_attrs(dtype=FLOAT)],
    "variant Const": [
        const("w", lambda t: setattr(t, "dtype", 21)).with_attrs(dtype=DType("variant"))
    ],
    "short content": [const("w", lambda t: setattr(t, "tensor_content", b"abc"))],
    "too many values": [const("w", lambda t: t.float_val.extend([1] * 3), (1.0, 1.0))],
    "unknown shape": [const("w", lambda t: setattr(t.tensor_shape.dim[0], "size", -1))],
    "declared size": [const("w", grow)],
    "rank": [const("w", lambda t: [t.tensor_shape.dim.add(size=1) for _ in range(80)])],
    "missing function": [X, call("y", "f", "x")],
}


@pytest.mark.golden("refusals/validate")
def test_refuses_a_bad_graph():
    assert_golden(*(f"{kind}\n{refusal(validate, Graph(nodes))}" for kind, nodes in BAD.items()))


BAD_LIBRARIES = {
    "calls itself": {"f": [call("n", "f", "a")]},
    "call each other": {
        "e": [call("n", "f", "a")],
        "f": [call("n", "g", "a")],
        "g": [call("n", "f", "a")],
    },
    "calls itself as an op": {"f": [Node("n", "f", ("a",))]},
    "missing function": {"f": [call("n", "g", "a")]},
    "expands without bounds": doubling(40),
    "deep calls": {f"f{i}": [call("n", f"f{i + 1}", "a")] for i in range(300)}
    | {"f300": [relu("n", "a")]},
    "unknown op": {"f": [Node("n", "Reluu", ("a",))]},
    "bad Const": {"f": [Node.constant("n", np.ones(2, np.int32)).with_attrs(dtype=FLOAT)]},
    "dangling": {"f": [relu("n", "b")]},
    "cycle": {"f": [relu("n", "m"), relu("m", "n")]},
    "twice the same node": {"f": [relu("n", "a"), relu("n", "a")]},
    "name of an op": {"Relu": [relu("n", "a")]},
}


@pytest.mark.golden("refusals/validate_functions")
def test_refuses_a_bad_function():
    graphs = {kind: Graph([X], library=library(**each)) for kind, each in BAD_LIBRARIES.items()}
    assert_golden(*(f"{kind}\n{refusal(validate, graph)}" for kind, graph in graphs.items()))


def test_two_functions_of_one_name_are_refused():
    twice = library(f=[relu("n", "a")])
    twice.MergeFrom(library(f=[relu("n", "a")]))
    with raises(GraphError, "functions-same-name"):
        validate(Graph([X], library=twice))


def test_calls_that_together_expand_without_bounds_are_refused():
    nodes = [X, *(call(f"c{i}", "f0", "x") for i in range(100))]
    with raises(GraphError, "too-many", what="the graph", count=78643000):
        validate(Graph(nodes, library=library(**doubling(18))))


@pytest.mark.parametrize("role", ["inputs", "outputs"])
def test_inputs_and_outputs_have_ports(role):
    with raises(GraphError, "output-number-missing"):
        validate(Graph([X], **{role: ("x:3",)}))


GOOD = {
    "default attributes may be missing": Graph(
        [X, Node("y", "MatMul", ("x", "x")).with_attrs(T=FLOAT)]
    ),
    "a node without outputs may be run": Graph([Node("init", "NoOp")], outputs=("init",)),
    "unknown attributes": Graph([X, relu("y", "x").with_attrs(_class=["loc:@x"], note="mine")]),
    "calls": Graph(
        [X, call("y", "f", "x"), Node("z", "f", ("x",)), relu("u", "z")],
        library=library(f=[call("n", "g", "a")], g=[relu("n", "a")]),
    ),
    "attribute of the caller": Graph(
        [X], library=library(f=[relu("n", "a").with_attrs(T=AttrValue(placeholder="T"))])
    ),
    "an empty tensor": Graph([Node.constant("w", np.zeros((0, 3), np.float32))]),
    "strings": Graph([Node.constant("w", np.array([b"a", b"\xff"], object))]),
}


@pytest.mark.parametrize("graph", GOOD.values(), ids=GOOD)
def test_accepts(graph):
    validate(graph)


def test_accepts_what_tensorflow_writes():
    @tf.function
    def model(x):
        total = tf.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s * x), (0, x))[1]
        values, indices = tf.math.top_k(tf.cond(x[0] > 0, lambda: total, lambda: x), 2)
        return values, indices, tf.strings.as_string(indices)

    concrete = model.get_concrete_function(tf.TensorSpec([5], tf.float32))
    validate(Graph.from_graph_def(concrete.graph.as_graph_def()))
    with tf.Graph().as_default() as graph:
        tf.compat.v1.disable_control_flow_v2()
        x = tf.compat.v1.placeholder(tf.float32, [5])
        tf.while_loop(lambda i: i[0] < 9, lambda i: i * 2, [x])
        tf.cond(x[0] > 0, lambda: x, lambda: -x)
        tf.compat.v1.enable_control_flow_v2()
    ops = {node.op for node in graph.as_graph_def().node}
    assert {"NextIteration", "Switch", "Merge"} <= ops
    validate(Graph.from_graph_def(graph.as_graph_def()))


def long_chain(count: int) -> Graph:
    nodes = [X, Node.constant("w", np.ones((3, 3), np.float32))]
    for i in range(count):
        nodes.append(Node(f"mul{i}", "Mul", (nodes[-1].name, "w")).with_attrs(T=FLOAT))
        nodes.append(relu(f"relu{i}", f"mul{i}"))
    return Graph(nodes, ("x",), (nodes[-1].name,))


@pytest.mark.sampled
def test_20_000_nodes_are_valid():
    validate(long_chain(10_000))


@pytest.mark.sampled
def test_time_is_linear_in_the_nodes():
    validate(long_chain(10))  # what is computed once
    graphs = [long_chain(count) for count in (1000, 2000)]
    one, two = (calls_of(functools.partial(validate, graph)) for graph in graphs)
    assert two < 2.2 * one


def mutated(content, choose):
    """Flip bits, or now and then delete or repeat some bytes."""
    result = bytearray(content)
    for _ in range(choose.randint(1, 2)):
        place = choose.randrange(len(result))
        kind = choose.randrange(12)
        if kind == 0:
            del result[place : place + choose.randint(1, 3)]
        elif kind == 1:
            result[place:place] = result[place : place + choose.randint(1, 8)]
        else:
            result[place] ^= 1 << choose.randrange(8)
    return bytes(result)


@pytest.mark.sampled
def test_random_mutations_are_accepted_or_refused_in_a_sentence():
    nodes = [
        X,
        Node.constant("w", np.array([1.0, 2.0, 3.0], np.float32)),
        Node.constant("s", np.array([b"a", b"bc"], object)),
        Node.constant("axis", np.int32(0)),
        Node("m", "Mul", ("x", "w")).with_attrs(T=FLOAT),
        Node("p", "Split", ("axis", "m")).with_attrs(T=FLOAT, num_split=3),
        Node("k", "Pack", ("p", "p:1", "p:2", "^s")).with_attrs(T=FLOAT, N=3, axis=0),
        call("y", "f", "k"),
    ]
    functions = library(f=[call("n", "g", "a")], g=[Node.constant("c", np.ones(2)), relu("n", "a")])
    content = b"".join(Graph(nodes, library=functions).serialized())
    choose = random.Random(0)
    counts = {"parse error": 0, "refused": 0, "accepted": 0}
    sentences = []
    for _ in range(2000):
        try:
            validate(Graph.from_graph_def(GraphDef.FromString(mutated(content, choose))))
            counts["accepted"] += 1
        except DecodeError:
            counts["parse error"] += 1
        except GraphError as error:
            sentences.append(str(error))
            counts["refused"] += 1
    assert min(counts.values()) > 50, counts
    assert not any("\n" in sentence for sentence in sentences)
