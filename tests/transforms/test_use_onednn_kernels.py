"""A float layer becomes one oneDNN op that runs without the flag; what has no kernel stays."""

from dataclasses import replace

import numpy as np
import pytest

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir import pipeline
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.runtime.child_process import Worker
from deploykit.transforms.runtime.differences import compare
from tests.support import (
    assert_golden,
    because,
    build,
    building,
    error,
    ops,
    random,
    run,
    says,
    tf,
    transform,
)
from tests.transforms.examples import Example

C = 8
BAR = 1e-6 * 7  # design: 1e-6 * (5 + depth), two layers
ACTIVATIONS = ("Relu", "Relu6", "Elu", "LeakyRelu", "Tanh", "Sigmoid")
FUSED = {
    "conv": ("_MklNativeFusedConv2D", {"Relu", "Relu6", "Elu", "LeakyRelu"}),
    "depthwise": ("_MklNativeFusedDepthwiseConv2dNative", {"Relu", "Relu6", "Elu"}),
    "matmul": ("_MklNativeFusedMatMul", {"Relu", "Relu6", "Elu", "Tanh", "Sigmoid"}),
}
ALL = "use_onednn_kernels(matmul=true)"


def layer(kind, y, name="layer", **attrs):
    raw = tf.raw_ops
    if kind == "matmul":
        shape = (5, C) if attrs.get("transpose_b") else (C, 5)
        return raw.MatMul(a=y, b=attrs.pop("weights", random(*shape)), name=name, **attrs)
    weights = attrs.pop("weights", random(3, 3, C, C if kind == "conv" else 2))
    options = {"strides": [1] * 4, "padding": "SAME"} | attrs
    op = raw.Conv2D if kind == "conv" else raw.DepthwiseConv2dNative
    return op(input=y, filter=weights, name=name, **options)


def biased(y, name="biased"):
    return tf.nn.bias_add(y, random(y.shape[-1], seed=3, low=-4, high=4), name=name)


def activated(op):
    def apply(y):
        options = {"alpha": 0.3} if op == "LeakyRelu" else {}
        argument = "x" if op in ("Tanh", "Sigmoid") else "features"
        return getattr(tf.raw_ops, op)(**{argument: y}, name="activated", **options)

    return apply


def net(kind="conv", behind=biased, shape=None, dtype="float32", **attrs) -> Graph:
    """Return a layer with what comes behind it, and an Identity that is fetched."""

    with building(["x"], ["out"]) as graph:
        sizes = shape or ((None, C) if kind == "matmul" else (None, 7, 6, C))
        x = tf.compat.v1.placeholder(dtype, sizes, name="x")
        tf.identity(behind(layer(kind, x, **attrs)), name="out")
    graph.prune()
    return graph


def image(graph: Graph, batch: int) -> dict[str, np.ndarray]:
    return {"x": random(batch, *graph["x"].attr("shape")[1:], seed=batch, low=-3, high=3)}


def equal(graph: Graph, text: str = ALL, bar: float = BAR) -> Graph:
    """Return the transformed graph, after a comparison of its numbers at several batches."""
    result = transform(graph, text)
    for batch in (1, 3):
        assert error(graph, result, image(graph, batch)) <= bar
    assert str(transform(result, text)) == str(result)
    return result


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("kind", FUSED)
def test_a_layer_its_bias_and_its_activation_are_one_op(kind, activation):
    op, activations = FUSED[kind]
    result = equal(net(kind, lambda y: activated(activation)(biased(y))))
    fused = activation in activations
    expected = {"Placeholder": 1, "Const": 2, op: 1, "Identity": 1}
    assert ops(result) == expected | ({} if fused else {activation: 1})
    (node,) = (node for node in result if node.op == op)
    assert node.name == ("activated" if fused else "biased")
    assert node.attr("fused_ops") == ["BiasAdd", activation][: 1 + fused]


@pytest.mark.parametrize("kind", FUSED)
@pytest.mark.parametrize("activation", [None, "Relu"])
def test_a_layer_without_bias_gets_zeros(kind, activation):
    graph = net(kind, activated(activation) if activation else lambda y: y)
    result = equal(graph)
    assert ops(result) == {"Placeholder": 1, "Const": 2, FUSED[kind][0]: 1, "Identity": 1}
    assert not result["layer/no_bias"].value.any()


@pytest.mark.parametrize("kind", FUSED)
@pytest.mark.parametrize("approximate", [False, True])
def test_a_gelu_is_one_op_with_a_matmul(kind, approximate):
    def behind(y):
        return tf.nn.gelu(biased(y), approximate=approximate)

    found = [
        node.attr("fused_ops")
        for node in equal(net(kind, behind), bar=BAR)
        if node.attr("fused_ops")
    ]
    name = "GeluApproximate" if approximate else "GeluExact"
    assert found == [["BiasAdd", name] if kind == "matmul" else ["BiasAdd"]]


@pytest.mark.parametrize("op", ["Add", "AddV2"])
@pytest.mark.parametrize("order", [1, -1])
def test_a_sum_with_a_vector_is_a_bias(op, order):
    def plus(y):
        x, y = [y, tf.constant(random(C, seed=3))][::order]
        return getattr(tf.raw_ops, op)(x=x, y=y, name="biased")

    assert op not in ops(equal(net(behind=plus)))


@pytest.mark.parametrize(
    ("kind", "attrs"),
    [
        ("conv", {"padding": "VALID", "strides": [1, 2, 2, 1]}),
        ("conv", {"padding": "SAME", "strides": [1, 2, 2, 1]}),
        ("conv", {"padding": "EXPLICIT", "explicit_paddings": [0, 0, 1, 2, 0, 1, 0, 0]}),
        ("conv", {"dilations": [1, 2, 2, 1]}),
        ("conv", {"weights": random(3, 3, C // 2, 6)}),  # two groups
        ("depthwise", {"padding": "VALID", "strides": [1, 2, 2, 1]}),
        ("depthwise", {"padding": "SAME", "strides": [1, 2, 2, 1]}),
        ("matmul", {"transpose_b": True}),
    ],
)
def test_attributes_are_kept(kind, attrs):
    result = equal(net(kind, lambda y: activated("Relu")(biased(y)), **attrs))
    assert ops(result)[FUSED[kind][0]] == 1


def residual(y):
    """A layer and what it reads, added, as ResNets do."""
    second = biased(layer("conv", y, "second"), "second_biased")
    return tf.nn.relu(tf.raw_ops.AddV2(x=y, y=second, name="sum"), name="last")


def block(y):
    return residual(biased(y))


def test_a_residual_sum_goes_into_the_layer_before_it():
    result = equal(net(behind=block))
    assert {"AddV2", "Relu", "BiasAdd", "Conv2D"}.isdisjoint(ops(result))
    assert result["last"].attr("fused_ops") == ["BiasAdd", "Add", "Relu"]
    assert result["last"].data_inputs[-1] == "biased"


@pytest.mark.golden("use_onednn_kernels/residual")
def test_golden_of_a_residual_sum():
    graph = net(behind=block)
    assert_golden(graph, transform(graph, ALL))


def test_a_summand_that_is_read_again_keeps_its_value():
    def twice(y):
        y = biased(y)
        return residual(y) * 0.5 + y

    assert ops(equal(net(behind=twice)))["_MklNativeFusedConv2D"] == 2


def three_layers():
    x = tf.compat.v1.placeholder(tf.float32, [None, 9, 9, C], name="x")
    y = activated("Relu6")(biased(layer("conv", x)))
    y = tf.nn.relu(biased(layer("depthwise", y, "deep"), "deep_biased"), name="deep_relu")
    y = tf.raw_ops.MatMul(a=tf.reduce_mean(y, [1, 2]), b=random(2 * C, 4), name="dense")
    biased(y, "out")


@pytest.mark.golden("use_onednn_kernels/net")
def test_golden():
    graph = build(three_layers, ["x"], ["out"])
    assert_golden(graph, transform(graph, "use_onednn_kernels"))


def test_a_matmul_goes_only_where_it_is_asked_for():
    graph = build(three_layers, ["x"], ["out"])
    assert "MatMul" in ops(equal(graph, "use_onednn_kernels", bar=BAR + 1e-6))
    assert "MatMul" not in ops(equal(graph, bar=BAR + 1e-6))


@pytest.mark.parametrize("onednn", ["0", "1"])
@pytest.mark.parametrize("grappler", [False, True])
def test_runs_with_and_without_the_flag_and_grappler(onednn, grappler):
    graph = net(behind=block)
    result = transform(graph, ALL)
    content = b"".join(result.serialized())
    worker = Worker(
        "deploykit.transforms.runtime.session:Session",
        content,
        grappler,
        forced={"TF_ENABLE_ONEDNN_OPTS": onednn},
    )
    try:
        for batch in (1, 3, 1):
            feeds = image(graph, batch)
            (difference,) = compare(run(graph, feeds), worker.ask("run", ["out"], feeds))
            assert difference.max_relative_error <= BAR
    finally:
        worker.close()


def test_survives_a_saved_model(tmp_path):
    graph = net(behind=block)
    result, feeds = transform(graph, ALL), image(graph, 3)
    v1 = tf.compat.v1
    with tf.Graph().as_default() as loaded:
        tf.import_graph_def(result.to_graph_def(), name="")
        x, out = loaded.get_tensor_by_name("x:0"), loaded.get_tensor_by_name("out:0")
        with v1.Session() as session:
            v1.saved_model.simple_save(session, str(tmp_path / "saved"), {"x": x}, {"out": out})
    serve = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    found = serve(tf.constant(feeds["x"]))["out"].numpy()
    (difference,) = compare(run(graph, feeds), [found])
    assert difference.max_relative_error <= BAR


def test_an_empty_batch_stays_empty():
    graph = net(behind=block)
    (found,) = run(transform(graph, ALL), image(graph, 0))
    assert found.size == 0


def test_what_waited_for_inner_nodes_is_kept():
    graph = net(behind=lambda y: activated("Relu")(biased(y)))
    graph.outputs = ("out", "side")
    graph.add(Node("side", "NoOp", ("^layer",)))
    assert transform(graph, ALL)["layer"].op == "_MklNativeFusedConv2D"
    graph.replace(graph["side"], Node("side", "NoOp"))
    graph.replace(graph["biased"], graph["biased"].with_control_inputs("^side"))
    assert transform(graph, ALL)["activated"].control_inputs == ("^side",)


@pytest.mark.parametrize("role", ["inputs", "outputs"])
@pytest.mark.parametrize("inner", ["layer", "biased"])
def test_what_is_fed_or_fetched_keeps_its_value(inner, role):
    graph = net(behind=lambda y: activated("Relu")(biased(y)))
    setattr(graph, role, (*getattr(graph, role), inner))
    result = transform(graph, ALL)
    assert inner in result
    assert result["activated"].op == "Relu"
    if role == "outputs":
        (one, two), (a, b) = (run(g, image(graph, 2)) for g in (graph, result))
        assert max(d.max_relative_error for d in compare([one, two], [a, b])) <= BAR


def read_twice(y):
    y = biased(y)
    return tf.nn.relu(y, name="activated") + tf.nn.tanh(y)


def test_a_second_reader_ends_the_chain():
    result = equal(net(behind=read_twice))
    assert result["biased"].op == "_MklNativeFusedConv2D"
    assert result["activated"].op == "Relu"


def over_the_width(y):
    return y + random(6, 1, seed=3)


def broadcast_batch(y):
    return biased(y) + random(1, 7, 6, C, seed=3)


def to_itself(y):
    y = biased(y)
    return y + y


@pytest.mark.parametrize("behind", [over_the_width, broadcast_batch, to_itself])
def test_other_sums_stay(behind):
    assert ops(equal(net(behind=behind)))["AddV2"] == 1


def test_a_sum_of_two_inputs_stays():
    """Fed with different batches it broadcasts; the kernel would write beyond its memory."""

    with building(["x", "z"], ["out"]) as graph:
        x, z = (tf.compat.v1.placeholder(tf.float32, [None, 7, 6, C], name=n) for n in "xz")
        tf.raw_ops.AddV2(x=biased(layer("conv", x)), y=z, name="out")
    result = transform(graph, ALL)
    assert result["biased"].op == "_MklNativeFusedConv2D"
    feeds = {"x": random(1, 7, 6, C), "z": random(3, 7, 6, C, seed=1)}
    assert error(graph, result, feeds) <= BAR


def test_a_sum_of_open_sizes_stays():
    assert ops(equal_open(net(behind=block, shape=(None, None, None, C))))["AddV2"] == 1


def equal_open(graph: Graph) -> Graph:
    result = transform(graph, ALL)
    assert error(graph, result, {"x": random(2, 5, 4, C)}) <= BAR
    return result


def left_alone(graph: Graph, text: str = ALL) -> list[str]:
    """Return why the graph stays as it is, which it must."""
    (done,) = pipeline.run(graph, pipeline.parse(text))
    assert str(done.graph) == str(graph)
    return [reason.split(": ", 1)[1] for reason in done.skipped]


def dynamic():
    return tf.compat.v1.placeholder_with_default(random(3, 3, C, 2), [3, 3, C, 2])


def fed_weights() -> Graph:
    with building(["x"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 7, 6, C], name="x")
        tf.identity(biased(layer("conv", x, weights=dynamic())), name="out")
    graph.prune()
    return graph


EXPLICIT = {"padding": "EXPLICIT", "explicit_paddings": [0, 0, 1, 1, 1, 1, 0, 0]}
LEFT_ALONE = {
    "channels first": (
        lambda: net(shape=(None, C, 7, 6), behind=lambda y: y, data_format="NCHW"),
        because("layout-unfit", layout="NCHW"),
    ),
    "explicit padding of a depthwise convolution": (
        lambda: net("depthwise", **EXPLICIT),
        because("kernel-no-explicit-padding", op="_MklNativeFusedDepthwiseConv2dNative"),
    ),
    "transposed input": (
        lambda: net("matmul", shape=(C, 3), transpose_a=True),
        because("kernel-not-transposed", op="_MklNativeFusedMatMul"),
    ),
    "double": (
        lambda: net(dtype="float64", behind=lambda y: y, weights=np.ones((3, 3, C, 2))),
        because("type-unfit", type="float64", expected="float32"),
    ),
    "half": (
        lambda: net(dtype="float16", behind=lambda y: y, weights=np.ones((3, 3, C, 2), "half")),
        because("type-unfit", type="float16", expected="float32"),
    ),
    "integers": (
        lambda: net("matmul", dtype="int32", behind=lambda y: y, weights=np.ones((C, 5), "int32")),
        because("type-unfit", type="int32", expected="float32"),
    ),
    "fed weights": (fed_weights, because("weights-not-constant")),
    "a GPU": (
        lambda: placed("/device:GPU:0"),
        because("device-unfit", device="/device:GPU:0", op="_MklNativeFusedConv2D"),
    ),
}


def placed(device: str) -> Graph:
    graph = net()
    graph.replace(graph["layer"], replace(graph["layer"], device=device))
    return graph


@pytest.mark.parametrize(("make", "reason"), LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_left_alone(make, reason):
    assert left_alone(make()) == [reason]


def test_a_layer_listed_in_skip_stays():
    text = "use_onednn_kernels(skip=layer)"
    assert left_alone(net(), text) == [because("listed", option="skip")]
    with pytest.raises(GraphError, match=says("missing", name="laier")):
        transform(net(), "use_onednn_kernels(skip=laier)")


def test_matmul_stays_unless_asked_for():
    assert left_alone(net("matmul"), "use_onednn_kernels") == []


def test_a_chain_of_2_000_layers():
    graph = net("matmul", lambda y: y, weights=random(C, C))
    source, weights = graph["layer"].inputs
    for i in range(2_000):
        graph.add(Node(f"s{i}", "MatMul", (source, weights), graph["layer"].attrs))
        source = f"s{i}"
    graph.replace(graph["layer"], graph["layer"].with_data_inputs(source, weights))
    assert ops(transform(graph, ALL))["_MklNativeFusedMatMul"] == 2_001


GRAPHS = [Example(ALL, net, BAR), Example(ALL, lambda: net("matmul"), BAR)]
