import numpy as np
import pytest

from deploykit.transforms.common.errors import Error, GraphError, PipelineError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from deploykit.transforms.runtime import child_process
from deploykit.transforms.shapes import static_shapes
from deploykit.transforms.strip_unused_nodes import strip_unused_nodes
from tests.support import (
    assert_golden,
    building,
    built,
    error,
    ops,
    raises,
    random,
    run,
    says,
    shows,
    tf,
    transform,
)
from tests.transforms.examples import Example


@pytest.fixture
def no_tensorflow(monkeypatch):
    """Let a start of TensorFlow fail."""
    monkeypatch.setattr(static_shapes, "call", None)


@pytest.fixture
def here(monkeypatch):
    """Infer shapes in this process, in which TensorFlow has been started; return what was asked."""
    asked = []

    def call(function, graph_def, tensors):
        from deploykit.transforms.runtime import session

        asked.append(tensors)
        return session.static_shapes(graph_def, tensors)

    monkeypatch.setattr(static_shapes, "call", call)
    return asked


def classifier(inputs, outputs=("out",)) -> Graph:
    """Return a network behind a preprocessing, with a loss that inference does not need."""

    with building(inputs, outputs) as graph:
        raw = tf.raw_ops.Placeholder(dtype=tf.uint8, shape=[None, 4], name="raw")
        image = tf.raw_ops.Cast(x=raw, DstT=tf.float32, name="image")
        scaled = tf.raw_ops.Mul(x=image, y=tf.constant(1 / 255, name="scale"), name="scaled")
        rate = tf.raw_ops.PlaceholderWithDefault(input=0.5, shape=[], name="rate")
        kept = tf.raw_ops.Mul(x=scaled, y=rate, name="kept")
        layer = tf.raw_ops.MatMul(a=kept, b=tf.constant(random(4, 3), name="w"), name="layer")
        out = tf.raw_ops.Softmax(logits=layer, name="out")
        label = tf.raw_ops.Placeholder(dtype=tf.int32, shape=[None], name="label")
        tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(features=out, labels=label, name="loss")
    return graph


def signature(graph: Graph) -> list[tuple]:
    nodes = [graph.producer(tensor) for tensor in graph.inputs]
    return [(node.name, node.op, node.attr("dtype"), node.attr("shape")) for node in nodes]


@pytest.mark.golden("strip_unused_nodes/given_shape")
@pytest.mark.usefixtures("no_tensorflow")
def test_golden_of_a_given_shape():
    graph = classifier(["scaled", "rate"])
    assert_golden(graph, transform(graph, 'strip_unused_nodes(shape="?,4")'))


@pytest.mark.golden("strip_unused_nodes/cut")
@pytest.mark.usefixtures("no_tensorflow")
def test_golden_of_a_cut():
    graph = classifier(["scaled", "rate:0"])
    assert_golden(graph, transform(graph, "strip_unused_nodes"))


@pytest.mark.usefixtures("no_tensorflow")
def test_placeholders_need_no_tensorflow_and_no_change():
    graph = classifier(["raw", "rate"])
    result = transform(graph, "strip_unused_nodes(type=float)")
    assert signature(result) == [
        ("raw", "Placeholder", "uint8", (-1, 4)),
        ("rate", "Placeholder", "float32", ()),
    ]
    assert result["raw"] is graph["raw"]
    assert "loss" not in result
    assert "label" not in result


@pytest.mark.parametrize(
    "tensors", [["scaled"], ["image", "rate"], ["kept"], ["layer"], ["raw"], ["w", "kept"]]
)
def test_the_values_stay(here, tensors):
    graph = classifier(tensors)
    result = transform(graph, "strip_unused_nodes")
    assert not any(graph.inputs[0] != "raw" and node.name == "raw" for node in result)
    shapes = {"rate": (), "layer": (2, 3), "w": (4, 3)}
    feeds = {name: random(*shapes.get(name, (2, 4)), seed=7) for name in tensors}
    if "raw" in feeds:
        feeds["raw"] = np.array([[0, 255, 3, 7]], np.uint8)
    assert error(graph, result, feeds) == 0


@pytest.mark.usefixtures("no_tensorflow")
def test_a_second_pass_changes_nothing():
    once = transform(classifier(["kept"]), "strip_unused_nodes")
    twice = transform(once, 'strip_unused_nodes(shape="1,2,3")')
    assert str(once) == str(twice)


@built(["product"], ["out"])
def products():
    """Return a graph that is cut behind an op whose shape TensorFlow alone infers."""
    raw = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[None, 4], name="raw")
    product = tf.raw_ops.Cumprod(x=raw, axis=1, name="product")
    tf.raw_ops.Softmax(logits=product, name="out")


def test_tensorflow_is_asked_for_what_does_not_follow(here):
    transform(products(), "strip_unused_nodes")
    assert here == [["product"]]


def test_a_real_start_of_tensorflow_gives_the_shape():
    result = transform(products(), "strip_unused_nodes")
    assert signature(result) == [("product", "Placeholder", "float32", (-1, 4))]


def node(name: str, op: str, *inputs: str, **attrs) -> Node:
    return Node(name, op, inputs).with_attrs(**attrs)


FLOAT = DType("float32")


@pytest.mark.usefixtures("no_tensorflow")
@pytest.mark.parametrize(
    ("cut", "dtype", "shape"),
    [
        (Node.constant("cut", np.zeros((2, 3), np.int32)), "int32", (2, 3)),
        (node("cut", "VariableV2", dtype=FLOAT, shape=(5,)), "float32", (5,)),
        (node("cut", "PlaceholderWithDefault", "x", dtype=FLOAT, shape=(-1, 4)), FLOAT, (-1, 4)),
        (node("cut", "PlaceholderWithDefault", "x", dtype=FLOAT), "float32", None),
        (node("cut", "Relu", "x", T=FLOAT, _output_shapes=[(7, -1)]), "float32", (7, -1)),
        (node("cut", "Shape", "x", T=FLOAT, _output_shapes=[(2,)]), "int32", (2,)),
        (node("cut", "ArgMax", "x", "x", T=FLOAT, _output_shapes=[(2,)]), "int64", (2,)),
    ],
    ids=str,
)
def test_type_and_shape_come_from_the_attributes(cut, dtype, shape):
    x = node("x", "Placeholder", dtype=FLOAT)
    graph = Graph([x, cut, Node("out", "Identity", ("cut",))], ["cut"], ["out"])
    strip_unused_nodes(graph)
    assert signature(graph) == [("cut", "Placeholder", dtype, shape)]
    assert graph["cut"].inputs == ()
    assert [node.name for node in graph] == ["cut", "out"]


def test_a_shape_that_tensorflow_cannot_infer_is_of_unknown_rank(monkeypatch):
    def call(*arguments):
        raise GraphError("TensorFlow cannot load the graph: Op type not registered 'MyOp'")

    monkeypatch.setattr(static_shapes, "call", call)
    nodes = [node("mine", "MyOp"), node("cut", "Neg", "mine", T=FLOAT)]
    graph = Graph([*nodes, Node("out", "Abs", ("cut",))], ["cut"], ["out"])
    strip_unused_nodes(graph)
    assert signature(graph) == [("cut", "Placeholder", "float32", None)]


@pytest.mark.usefixtures("started_children")  # a forked one is faster than that
def test_a_deadline_is_not_hidden(monkeypatch):
    monkeypatch.setattr(child_process.limits, "seconds", 0.01)
    with raises(Error, "child-timeout"):
        strip_unused_nodes(products())


@pytest.mark.usefixtures("no_tensorflow")
@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("1,224,224,3", (1, 224, 224, 3)),
        ("-1,224", (-1, 224)),
        ("?,224", (-1, 224)),
        (" 1, 2,3 ", (1, 2, 3)),
        ("7", (7,)),
        ("0", (0,)),
        ("", ()),
        (" ", ()),
    ],
)
def test_shapes(text, shape):
    graph = classifier(["kept"])
    strip_unused_nodes(graph, shape=text)
    assert graph["kept"].attr("shape") == shape
    by_name = classifier(["kept"])
    strip_unused_nodes(by_name, name=("kept:0",), type_for_name=("float",), shape_for_name=(text,))
    assert str(by_name) == str(graph)


@pytest.mark.parametrize(
    "text", ["1,-2", "1,,2", "1,", ",", "a", "1.5", "[1,2]", "1 2", "-?", "²", "9" * 19, "--1"]
)
def test_bad_shapes(text):
    with pytest.raises(PipelineError) as raised:
        strip_unused_nodes(classifier(["kept"]), shape=text)
    assert shows(str(raised.value), "shape-form", got=text)


@pytest.mark.usefixtures("no_tensorflow")
def test_types_and_shapes_by_name():
    result = transform(
        classifier(["kept", "raw"]),
        'strip_unused_nodes(type=float, shape="9", '
        'name=kept, type_for_name=float, shape_for_name="1, 4", '
        'name=raw, type_for_name=uint8, shape_for_name="8,4")',
    )
    assert signature(result) == [
        ("kept", "Placeholder", "float32", (1, 4)),
        ("raw", "Placeholder", "uint8", (8, 4)),
    ]


@pytest.mark.parametrize(
    ("inputs", "parameters", "message"),
    [
        (
            ["kept"],
            {"name": ("kept",), "type_for_name": ("float", "float")},
            says("placeholder-options-count", names=1, types=2, shapes=0),
        ),
        (
            ["kept"],
            {"name": ("keep",), "type_for_name": ("float",), "shape_for_name": ("",)},
            says("unknown-name", kind="input", name="keep", known="kept"),
        ),
        (["kept"], {"type": "flot"}, says("type-unknown", name="flot")),
        (
            ["kept"],
            {"type": "int32"},
            says("input-type-other", name="kept", type="float32", expected="int32"),
        ),
        (["kepd"], {}, says("missing", name="kepd")),
        (["kept:1"], {}, says("input-several-outputs", name="kept:1", op="Mul", count=1)),
    ],
)
def test_errors(inputs, parameters, message):
    graph = classifier(inputs)
    with pytest.raises(Error, match=message):
        strip_unused_nodes(graph, **parameters)


def test_an_unknown_op_needs_a_type():
    nodes = [node("cut", "MyOp"), node("out", "Relu", "cut")]
    graph = Graph(nodes, ["cut"], ["out"])
    with raises(GraphError, "input-type-unknown", name="cut", op="MyOp"):
        strip_unused_nodes(graph, shape="")
    strip_unused_nodes(graph, type="half", shape="2")
    assert signature(graph) == [("cut", "Placeholder", "float16", (2,))]


def parts(inputs, outputs=("out",)) -> Graph:
    with building(inputs, outputs) as graph:
        x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[2, 6], name="x")
        a, b, c = tf.raw_ops.Split(axis=tf.constant(1, name="axis"), value=x, num_split=3, name="s")
        early = tf.raw_ops.Sub(x=a, y=b, name="early")
        with tf.control_dependencies([a]):
            tf.raw_ops.Sub(x=b, y=tf.raw_ops.Neg(x=c, name="c"), name="out")
        tf.raw_ops.AddV2(x=early, y=c, name="all")
    return graph


@pytest.mark.parametrize(
    ("inputs", "outputs", "expected"),
    [
        (["s:1", "s:2"], ["out"], ["s", "s_2"]),
        (["s:2", "s:1"], ["out"], ["s_2", "s"]),
        (["s", "s:1", "s:2"], ["all", "out"], ["s", "s_1", "s_2"]),
        (["s:1", "s"], ["early"], ["s_1", "s"]),
        (["s:1", "c"], ["out"], ["s", "c"]),
        (["s:1", "c", "x"], ["out", "s:1"], None),
        (["s:1"], ["out"], None),
        (["s"], ["s:2"], None),
    ],
)
def test_a_node_that_is_cut_at_several_outputs(here, inputs, outputs, expected):
    graph = parts(inputs, outputs)
    if expected is None:
        with pytest.raises(GraphError) as refused:
            strip_unused_nodes(graph)
        assert refused.value.code in ("input-and-output", "placeholder-output-needed")
        return
    result = transform(graph, "strip_unused_nodes")
    assert list(result.inputs) == expected
    assert ops(result)["Placeholder"] == len(inputs)
    assert "x" not in result
    values = [random(2, 2, seed=i) for i in range(len(inputs))]
    feeds = dict(zip(graph.inputs, values, strict=True))
    before = run(graph, feeds | {"x": random(2, 6)})
    after = run(result, dict(zip(expected, values, strict=True)))
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_name_that_is_taken_is_not_used_twice():
    graph = parts(["s:1", "s:2"])
    graph.replace(graph["c"], graph["c"].with_data_inputs("s:2"))
    graph.add(Node("s_2", "Relu", ("out",), graph["c"].attrs))
    graph.outputs = ["s_2"]
    strip_unused_nodes(graph, shape="2,2")
    assert graph.inputs == ("s", "s_2_1")
    assert graph["c"].inputs == ("s_2_1",)


def test_an_output_that_is_fed_stays(here):
    result = transform(classifier(["kept"], ["out", "kept"]), "strip_unused_nodes")
    assert result["kept"].op == "Placeholder"
    assert result.outputs == ("out", "kept")


def test_recorded_shapes_that_a_given_shape_contradicts_are_dropped(here):
    graph = classifier(["kept"])
    graph.replace(graph["layer"], graph["layer"].with_attrs(_output_shapes=[(9, 3)]))
    result = transform(graph, 'strip_unused_nodes(shape="2,4")')
    (value,) = run(result, {"kept": random(2, 4)})
    assert value.shape == (2, 3)


@pytest.mark.slow
def test_a_chain_of_100_000_nodes_above_and_below_the_cut():
    count = 100_000
    nodes = [Node("x", "Placeholder")]
    nodes += [Node(f"n{i}", "Neg", (f"n{i - 1}" if i else "x",)) for i in range(count)]
    middle = nodes[count // 2].name
    graph = Graph(nodes, [middle], [nodes[-1].name])
    strip_unused_nodes(graph, type="float", shape="1")
    assert len(graph) == count // 2 + 1


GRAPHS = [
    Example("strip_unused_nodes", lambda: classifier(["scaled", "rate"]), fed_inside=True),
    Example(
        'strip_unused_nodes(name=raw, type_for_name=uint8, shape_for_name="2,4")',
        lambda: classifier(["raw", "rate"]),
    ),
]
