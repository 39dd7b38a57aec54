"""TensorFlow's own importer, asked without Python's TensorFlow, says what Python's says."""

import numpy as np
import pytest

from deploykit.transforms.common.errors import CrashError, GraphError, LoadError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.protos import AttrValue, GraphDef
from deploykit.transforms.runtime.importing import ImportCheck, light_form
from deploykit.transforms.untrusted.validate import GraphParts, validate
from tests.support import raises, tf

CONSTANTS = [
    np.arange(6, dtype=np.int32),
    np.arange(5000, dtype=np.float32).reshape(50, 100),
    np.arange(5000).astype(np.float16),
    np.arange(5000) > 7,
    np.array([b"word%d" % n for n in range(5000)], object),
]


def node(graph, name, op, *inputs, **attrs):
    """Add a node: a number is a type, bytes are a text, a list holds whole numbers."""
    added = graph.node.add(name=name, op=op, input=inputs)
    for key, value in attrs.items():
        if isinstance(value, AttrValue):
            added.attr[key].CopyFrom(value)
        elif isinstance(value, bytes):
            added.attr[key].s = value
        elif isinstance(value, list):
            added.attr[key].list.i.extend(value)
        else:
            added.attr[key].type = value
    return added


def values(**kinds):
    return AttrValue(list=AttrValue.ListValue(**kinds))


def shape(*sizes):
    return AttrValue(shape={"dim": [{"size": size} for size in sizes]})


def pool(graph, **attrs):
    node(graph, "i", "Placeholder", dtype=1)
    ones = [1, 1, 1, 1]
    node(graph, "y", "MaxPool", "i", **{"T": 1, "ksize": ones, "strides": ones, "padding": b"SAME"}
         | attrs)  # fmt: skip


def loop(graph, back="n"):
    node(graph, "e", "Enter", "x", T=1, frame_name=b"loop")
    node(graph, "m", "Merge", "e", back, T=1, N=AttrValue(i=2))
    node(graph, "n", "NextIteration", "m", T=1)


def relu(graph, **attrs):
    return node(graph, "y", "Relu", "x", **{"T": 1} | attrs)


def placed(graph, device):
    relu(graph).device = device


def old_batch_norm(graph, producer):
    node(graph, "i", "Placeholder", dtype=1)
    node(graph, "y", "BatchNormWithGlobalNormalization", *"iiiii", T=1,
         variance_epsilon=AttrValue(f=0.1),
         scale_after_normalization=AttrValue(b=True))  # fmt: skip
    graph.versions.producer = producer


# Adds something to a graph of one placeholder [2, 3], and whether TensorFlow takes it.
GRAPHS = {
    "a node": (relu, True),
    "an unknown attribute": (lambda g: relu(g, note=b"mine"), True),
    "a hidden attribute": (lambda g: relu(g, _note=b"mine"), True),
    "odd colocation": (lambda g: relu(g, _class=values(s=[b"mine"])), True),
    "colocation": (lambda g: relu(g, _class=values(s=[b"loc:@x"])), True),
    "a loop": (loop, True),
    "a reference that is read": (
        lambda g: [
            node(g, "v", "VariableV2", dtype=1, shape=shape(2)),
            node(g, "y", "Relu", "v", T=1),
        ],
        True,
    ),
    "an old op of its time": (lambda g: old_batch_norm(g, 8), True),
    "a later version": (lambda g: setattr(g.versions, "producer", 1 << 20), True),
    "rank 254": (lambda g: node(g, "y", "Placeholder", dtype=1, shape=shape(*[1] * 254)), True),
    "a private op": (
        lambda g: node(g, "y", "_Arg", T=1, index=AttrValue(i=0)), True,
    ),
    "a device": (lambda g: placed(g, "/job:a/replica:0/task:1/device:GPU:0"), True),
    "a short device": (lambda g: placed(g, "/gpu:0"), True),
    "type 0": (lambda g: node(g, "y", "Placeholder", dtype=0), False),
    "type 99": (lambda g: node(g, "y", "Placeholder", dtype=99), False),
    "a reference type": (lambda g: node(g, "y", "Placeholder", dtype=101), False),
    "type 99 in a list": (lambda g: node(g, "y", "IdentityN", "x", T=values(type=[99])), False),
    "a type that is not allowed": (
        lambda g: [node(g, "s", "Placeholder", dtype=7), node(g, "y", "Relu", "s", T=7)],
        False,
    ),
    "another type": (lambda g: relu(g, T=2), False),
    "a value as reference": (lambda g: node(g, "y", "Assign", "x", "x", T=1), False),
    "a text that is not allowed": (lambda g: pool(g, padding=b"MINE"), False),
    "too few elements": (lambda g: pool(g, ksize=[1]), False),
    "elements of another kind": (lambda g: pool(g, ksize=values(f=[1] * 4)), False),
    "elements of two kinds": (lambda g: pool(g, ksize=values(i=[1] * 4, f=[1])), False),
    "too small a number": (lambda g: node(g, "y", "Pack", T=1, N=AttrValue(i=0)), False),
    "colocation with nothing": (lambda g: relu(g, _class=values(s=[b"loc:@gone"])), False),
    "colocation of another kind": (lambda g: relu(g, _class=b"loc:@x"), False),
    "a negative size": (lambda g: node(g, "y", "Placeholder", dtype=1, shape=shape(-2)), False),
    "rank 255": (lambda g: node(g, "y", "Placeholder", dtype=1, shape=shape(*[1] * 255)), False),
    "sizes of an unknown rank": (
        lambda g: node(g, "y", "Placeholder", dtype=1,
                       shape=AttrValue(shape={"unknown_rank": True, "dim": [{"size": 1}]})),
        False,
    ),
    "another TensorFlow": (lambda g: setattr(g.versions, "min_consumer", 1 << 20), False),
    "no TensorFlow": (lambda g: setattr(g.versions, "producer", -3), False),
    "an edge back to no merge": (
        lambda g: [node(g, "y", "NextIteration", "z", T=1), node(g, "z", "Relu", "y", T=1)],
        False,
    ),
    "no device": (lambda g: placed(g, "foo bar!!"), False),
    "a name twice": (lambda g: [relu(g), relu(g)], False),
    "no input": (lambda g: node(g, "y", "Relu", "", T=1), False),
    "a port too many": (lambda g: node(g, "y", "Relu", "x:1", T=1), False),
    "a missing attribute": (lambda g: node(g, "y", "Relu6", "x"), False),
}  # fmt: skip

# What TensorFlow alone finds.
SHAPES = {
    "factors that do not fit": lambda g: [
        node(g, "b", "Placeholder", dtype=1, shape=shape(4, 5)),
        node(g, "y", "MatMul", "x", "b", T=1),
    ],
    "an old op in a new graph": lambda g: old_batch_norm(g, 100),
    "a shape that is noted wrong": lambda g: relu(
        g, _output_shapes=values(shape=[{"dim": [{"size": 7}]}])
    ),
}  # fmt: skip


def made(add):
    graph = GraphDef()
    node(graph, "x", "Placeholder", dtype=1, shape=shape(2, 3))
    add(graph)
    return graph


def takes(act, error):
    try:
        act()
    except error:
        return False
    return True


@pytest.fixture(scope="module")
def tensorflow():
    with ImportCheck() as importer:
        yield importer


def python_takes(graph):
    copy = GraphDef()
    copy.CopyFrom(graph)
    with tf.Graph().as_default():
        refusals = ValueError, TypeError, tf.errors.OpError
        return takes(lambda: tf.import_graph_def(copy, name=""), refusals)


@pytest.mark.parametrize(("add", "is_sound"), GRAPHS.values(), ids=GRAPHS)
def test_the_validator_says_what_tensorflow_says(tensorflow, add, is_sound):
    graph = made(add)
    content = graph.SerializeToString()
    assert python_takes(graph) == is_sound
    assert takes(lambda: validate(Graph.from_graph_def(graph)), GraphError) == is_sound
    if add not in (GRAPHS["no device"][0], GRAPHS["colocation of another kind"][0]):
        assert takes(lambda: tensorflow.check(content), LoadError) == is_sound  # Python says these


@pytest.mark.parametrize("add", SHAPES.values(), ids=SHAPES)
def test_what_tensorflow_alone_refuses(tensorflow, add):
    graph = made(add)
    validate(Graph.from_graph_def(graph))
    assert not python_takes(graph)
    with raises(LoadError, "runtime-failed", runtime="TensorFlow", action="load the graph"):
        tensorflow.check(graph.SerializeToString())


def test_what_kills_tensorflow_is_an_error():
    graph = made(relu)
    function = graph.library.function.add()
    function.signature.name = "f"
    function.signature.input_arg.add(name="a", type=1)
    function.signature.output_arg.add(name="r", type=1)
    function.node_def.add(name="n", op="f", input=["a"])
    function.ret["r"] = "n:r:0"
    node(graph, "z", "f", "x")
    with raises(GraphError, "function-recursive"):
        validate(Graph.from_graph_def(graph))
    with ImportCheck() as importer, raises(CrashError, "child-died", runs="TensorFlow"):
        importer.check(graph.SerializeToString())


def test_ops_that_python_brings_are_known():
    graph = made(lambda g: node(g, "y", "FloatOutput"))
    with ImportCheck() as importer:
        importer.check(graph.SerializeToString())
        unknown = made(lambda g: node(g, "y", "Mine"))
        with pytest.raises(LoadError, match="Mine"):
            importer.check(unknown.SerializeToString())


def light(graph):
    return light_form(GraphParts.of(graph))


def test_the_light_form_holds_no_large_constant():
    nodes = [Node.constant(f"c{n}", value) for n, value in enumerate(CONSTANTS)]
    graph = Graph(nodes)
    content = light(graph)
    assert len(content) < 20_000 < len(b"".join(graph.serialized()))
    for node, before in zip(Graph.from_graph_def(GraphDef.FromString(content)), nodes, strict=True):
        assert node.attr("dtype") == before.attr("dtype")
        assert node.shape == before.shape
    with ImportCheck() as tensorflow:
        tensorflow.check(content)


def chained(graph, length=50):
    """Put a chain of nodes that keep shapes between x and what reads it, in any order."""
    before = [each for each in graph.node if each.name != "x"]
    for each in before:
        inputs = ["c0" if tensor == "x" else tensor for tensor in each.input]
        del each.input[:]
        each.input.extend(inputs)
    for n in range(length):
        op = ("Relu", "Identity", "Tanh")[n % 3]
        node(graph, f"c{n}", op, "x" if n == length - 1 else f"c{n + 1}", T=1)
    return graph


@pytest.mark.parametrize("add", SHAPES.values(), ids=SHAPES)
def test_the_light_form_is_refused_as_the_whole_graph_is(tensorflow, add):
    graph = chained(made(add))
    assert not python_takes(graph)
    with raises(LoadError, "runtime-failed", runtime="TensorFlow", action="load the graph"):
        tensorflow.check(light(Graph.from_graph_def(graph)))


SOUND = {name: add for name, (add, is_sound) in GRAPHS.items() if is_sound}


@pytest.mark.parametrize("add", SOUND.values(), ids=SOUND)
def test_the_light_form_is_taken_as_the_whole_graph_is(tensorflow, add):
    content = light(Graph.from_graph_def(chained(made(add))))
    tensorflow.check(content)
    assert len(GraphDef.FromString(content).node) < 10


def test_the_light_form_keeps_what_others_wait_for_or_are_placed_by(tensorflow):
    graph = chained(made(relu))
    node(graph, "waits", "Relu", "c3", "^c7", T=1, _class=values(s=[b"loc:@c9"]))
    content = light(Graph.from_graph_def(graph))
    tensorflow.check(content)
    assert {"c7", "c9", "waits"} <= {each.name for each in GraphDef.FromString(content).node}


@pytest.mark.sampled
def test_ops_that_no_library_knows_are_named():
    with ImportCheck() as tensorflow, pytest.raises(LoadError, match="OfTheUser"):
        tensorflow.check(b"".join(Graph([Node("x", "OfTheUser")]).serialized()))
