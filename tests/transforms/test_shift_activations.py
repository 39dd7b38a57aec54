"""What a layer gives is shifted where its readers take that back; else it stays as it is."""

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import pytest

from deploykit.quantization.calibration import calibrate
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.int8.ranges import Ranges, TensorRange
from deploykit.transforms.ir import pipeline
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.runtime.session import Session
from deploykit.verification.tolerance import default_tolerance
from tests.support import (
    assert_golden,
    because,
    building,
    built,
    error,
    ops,
    raises,
    random,
    says,
    skipped,
    tf,
    transform,
)
from tests.transforms.examples import Example

C = 6
NEAR_ZERO = 1e-5  # of the largest value: what an offset loses to rounding in float32


def conv(x, name, size=1, channels=C, seed=1, bias=True, **attrs):
    """Return a convolution with random weights and, behind it, a bias `NAME_biased`."""
    weights = attrs.pop("weights", random(size, size, x.shape[-1], channels, seed=seed))
    options = {"strides": [1] * 4, "padding": "SAME"} | attrs
    y = tf.raw_ops.Conv2D(input=x, filter=weights, name=name, **options)
    return biased(y, f"{name}_biased", seed) if bias else y


def depthwise(x, name, seed=2, **attrs):
    options = {"strides": [1] * 4, "padding": "SAME"} | attrs
    weights = random(3, 3, x.shape[-1], 1, seed=seed)
    y = tf.raw_ops.DepthwiseConv2dNative(input=x, filter=weights, name=name, **options)
    return biased(y, f"{name}_biased", seed)


def biased(y, name="biased", seed=3):
    return tf.nn.bias_add(y, random(y.shape[-1], seed=seed), name=name)


def relu(y, name="relu"):
    return tf.nn.relu(y, name=name)


def add(a, b, name="sum"):
    return tf.raw_ops.AddV2(x=a, y=b, name=name)


def graph_of(make, shape=(None, 7, 5, C)) -> Graph:
    """Return what `make` builds on a placeholder, with an Identity that is fetched."""

    with building(["x"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, shape, name="x")
        tf.identity(make(x), name="out")
    graph.prune()
    return graph


def net(reader, producer=lambda x: conv(x, "first", 3)) -> Graph:
    """Return a linear layer and what reads it."""
    return graph_of(lambda x: reader(producer(x)))


def mobile_net(blocks: int = 3) -> Graph:
    """Return linear bottlenecks with residual sums, one behind another, as MobileNetV2 has them."""

    def make(x):
        y = conv(relu(conv(x, "stem", 3), "stem_relu"), "start")
        for i in range(blocks):
            wide = relu(conv(y, f"expand{i}", channels=2 * C, seed=3 * i), f"wide{i}")
            deep = relu(depthwise(wide, f"deep{i}", seed=3 * i + 1), f"deep_relu{i}")
            y = add(conv(deep, f"project{i}", seed=3 * i + 2), y, f"sum{i}")
        y = tf.reduce_mean(relu(conv(y, "head", channels=2 * C), "head_relu"), [1, 2])
        return tf.raw_ops.MatMul(a=y, b=random(2 * C, 4), name="dense")

    return graph_of(make)


def res_net() -> Graph:
    """Return a block with a projected shortcut and one without, each with a Relu behind its sum."""

    def make(x):
        shortcut = conv(x, "shortcut", strides=[1, 2, 2, 1])
        y = relu(conv(x, "a1", 3, strides=[1, 2, 2, 1]), "a1_relu")
        y = relu(add(conv(y, "a2", 3, seed=4), shortcut, "a_sum"), "a")
        inner = relu(conv(y, "b1", 3, seed=5), "b1_relu")
        return relu(add(conv(inner, "b2", 3, seed=6), y, "b_sum"), "b")

    return graph_of(make)


def feeds(graph: Graph, batch: int = 3) -> dict[str, np.ndarray]:
    shape = [batch, *graph["x"].attr("shape")[1:]]
    return {"x": random(*shape, seed=8, low=-2, high=2)}


def tensors_of(graph: Graph) -> dict[str, np.ndarray]:
    """Return what each node gives that depends on the input."""
    names = [n.name for n in graph if n.op not in ("Const", "NoOp") and not graph.is_input(n.name)]
    values = Session(b"".join(graph.serialized())).run(names, feeds(graph))
    return dict(zip(names, values, strict=True))


@pytest.fixture
def shifted(tmp_path):
    """Return what shifts a graph by its own ranges, all but the tensors that are `left_out`."""

    def shift(graph: Graph, left_out=()):
        ranges = {}
        for name, values in tensors_of(graph).items():
            if name not in left_out and values.ndim > 1 and np.isfinite(values).all():
                flat = values.reshape(-1, values.shape[-1]).astype(float)
                ends = (float(flat.min()), float(flat.max()))
                ranges[name] = TensorRange(*ends, tuple(flat.mean(0)), tuple(flat.min(0)))
        path = tmp_path / "model.ranges.json"
        path.write_text(Ranges("", 3, ranges).text())
        return pipeline.run(graph, pipeline.parse(f'shift_activations(ranges="{path}")'))

    return shift


def compared(step_of: Callable[..., Iterable[pipeline.Result]], graph: Graph, **options) -> Graph:
    """Return a rewritten graph after a comparison of its numbers; the given one has to stay."""
    before = str(graph)
    (step,) = step_of(graph, **options)
    assert str(graph) == before
    for batch in (1, 3):
        assert error(graph, step.graph, feeds(graph, batch)) <= default_tolerance(graph)
    return step.graph


@pytest.fixture
def equal(shifted):
    """Return what shifts a graph, and compares the numbers."""
    return partial(compared, shifted)


def moved(graph: Graph) -> set[str]:
    return {n.name.removesuffix("_shifted") for n in graph if n.name.endswith("_shifted")}


def assert_at_zero(graph: Graph, *names: str) -> None:
    """Each channel of these tensors starts at zero, but for rounding."""
    found = tensors_of(graph)
    for name in names:
        values = found[f"{name}_shifted"]
        lowest = values.reshape(-1, values.shape[-1]).min(0)
        assert np.abs(lowest).max() <= NEAR_ZERO * values.max(), name


def test_three_residual_blocks_in_a_row(equal):
    graph = mobile_net()
    result = equal(graph)
    held = {"start_biased", "sum0", "sum1", "sum2"}
    assert moved(result) == held | {f"project{i}_biased" for i in range(3)}
    assert_at_zero(result, *held)
    assert ops(result) == ops(graph)


@pytest.mark.golden("shift_activations/mobile_net")
def test_golden(shifted):
    graph = mobile_net()
    (step,) = shifted(graph)
    assert_golden(graph, step.graph)


def test_a_calibration_of_the_result_finds_channels_that_start_at_zero(tmp_path):
    graph, path = mobile_net(1), tmp_path / "model.ranges.json"
    path.write_text(calibrate(graph, [feeds(graph)]).ranges.text())
    result = transform(graph, f'shift_activations(ranges="{path}")')
    found = calibrate(result, [feeds(graph)]).ranges
    for name in ("start_biased_shifted", "sum0_shifted"):
        assert np.abs(found.of(name, C).channel_min).max() <= NEAR_ZERO * found.of(name).max
    assert not set(found.tensors) & {"start_biased", "sum0"}


def test_a_relu_behind_the_sum_ends_the_offset(equal):
    """Either branch can be what the other one's layer adds; here it is the one that comes later."""
    result = equal(res_net())
    assert len(moved(result)) == 2
    assert "a_sum" not in moved(result)
    before, after = (tensors_of(g) for g in (res_net(), result))
    scale = np.abs(before["a_sum"]).max()
    assert np.abs(before["a_sum"] - after["a_sum"]).max() <= NEAR_ZERO * scale
    assert result["b_sum"] == res_net()["b_sum"]


READERS = {
    "1x1": lambda y: conv(y, "second"),
    "1x1, strides": lambda y: conv(y, "second", strides=[1, 2, 2, 1]),
    "3x3, VALID": lambda y: conv(y, "second", 3, padding="VALID"),
    "3x3, EXPLICIT zeros": lambda y: conv(
        y, "second", 3, padding="EXPLICIT", explicit_paddings=[0] * 8
    ),
    "dilations": lambda y: conv(y, "second", 3, padding="VALID", dilations=[1, 2, 2, 1]),
    "groups": lambda y: conv(y, "second", weights=random(1, 1, C // 3, 9)),
    "without a bias": lambda y: conv(y, "second", bias=False),
    "with activation": lambda y: relu(conv(y, "second")),
    "two": lambda y: add(relu(conv(y, "second"), "r"), relu(conv(y, "third", seed=4), "s"), "t"),
    "vector as bias": lambda y: conv(y, "second", bias=False) + random(C, seed=9),
    "sum of another shape behind it": lambda y: conv(y, "second") + random(5, 1, seed=9),
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_readers_that_take_it_back(reader, equal):
    result = equal(net(reader))
    assert moved(result) == {"first_biased"}
    assert_at_zero(result, "first_biased")


@pytest.mark.parametrize("transposed", [False, True])
def test_a_matmul_takes_it_back(transposed, equal):
    def make(x):
        y = biased(tf.raw_ops.MatMul(a=x, b=random(C, 4), name="first"))
        b = random(*[(4, 5), (5, 4)][transposed], seed=3)
        return tf.raw_ops.MatMul(a=y, b=b, transpose_b=transposed, name="second")

    result = equal(graph_of(make, (None, C)))
    assert moved(result) == {"biased"}
    assert result["second"].op == "BiasAdd"
    assert result["second_unbiased"].op == "MatMul"


PRODUCERS = {
    "without a bias": (lambda x: conv(x, "first", 3, bias=False), {"first"}),
    "vector as bias": (
        lambda x: add(conv(x, "first", 3, bias=False), random(C, seed=9), "plus"),
        {"plus"},
    ),
    "depthwise": (lambda x: depthwise(x, "first"), {"first_biased"}),
    "sum without a bias": (
        lambda x: add(conv(x, "first", 3, bias=False), relu(x)),
        {"first", "sum"},
    ),
}


@pytest.mark.parametrize(("producer", "names"), PRODUCERS.values(), ids=PRODUCERS)
def test_layers_that_are_shifted(producer, names, equal):
    result = equal(net(lambda y: conv(y, "second"), producer))
    assert moved(result) == names
    assert_at_zero(result, *names & {"sum", "plus", "first_biased"})


def pooled(op, **attrs):
    def make(y):
        options = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"} | attrs
        argument = "input" if op == "MaxPool" else "value"
        pool = getattr(tf.raw_ops, op)(**{argument: y}, name="pool", **options)
        return conv(pool, "second")

    return make


def named_again(y):
    return conv(tf.identity(y, "again"), "second")


def sum_of_sums(y):
    """Return a sum that belongs to no layer: both of its summands are read again."""
    one = add(conv(relu(conv(y, "wide")), "b", seed=5), y, "one")
    two = add(conv(relu(conv(one, "deep"), "r"), "c", seed=6), one, "two")
    return relu(conv(add(one, two, "both"), "last"), "p") + relu(conv(two, "other"), "q")


PASSING = {
    "MaxPool": (pooled("MaxPool"), {"first_biased", "pool"}),
    "MaxPool with padding": (pooled("MaxPool", padding="SAME"), {"first_biased", "pool"}),
    "AvgPool": (pooled("AvgPool"), {"first_biased", "pool"}),
    "Identity": (named_again, {"first_biased", "again"}),
    "added to what its reader gives": (
        lambda y: relu(add(conv(y, "second"), y)),
        {"first_biased", "second_biased"},
    ),
    "a sum of sums": (
        sum_of_sums,
        {"first_biased", "b_biased", "one", "c_biased", "two", "both"},
    ),
}


@pytest.mark.parametrize(("reader", "names"), PASSING.values(), ids=PASSING)
def test_offsets_are_passed_on(reader, names, equal):
    assert moved(equal(net(reader))) == names


def random_net(seed: int) -> Graph:
    """Return layers, activations, pools and sums in random order, between random tensors."""

    def make(x):
        rng = np.random.default_rng(seed)
        found = [conv(x, "start")]
        steps = ("1x1", "3x3", "unbiased", "deep", "relu", "sum", "sum", "pool", "same")
        for i, step in enumerate(rng.choice(steps, 14)):
            y, other = (found[place] for place in rng.integers(max(0, i - 3), i + 1, 2))
            made = {
                "1x1": lambda y=y, i=i: conv(y, f"one{i}", seed=i),
                "3x3": lambda y=y, i=i: conv(y, f"three{i}", 3, seed=i),
                "unbiased": lambda y=y, i=i: conv(y, f"unbiased{i}", seed=i, bias=False),
                "deep": lambda y=y, i=i: depthwise(y, f"deep{i}", seed=i),
                "relu": lambda y=y, i=i: relu(y, f"relu{i}"),
                "sum": lambda y=y, z=other, i=i: add(y, z, f"sum{i}"),
                "pool": lambda y=y: tf.nn.max_pool2d(y, 3, 1, "SAME"),
                "same": lambda y=y, i=i: tf.identity(y, f"same{i}"),
            }
            found.append(made[step]())
        return conv(relu(conv(found[-1], "last"), "last_relu"), "end")

    return graph_of(make)


def test_random_nets_keep_their_numbers(equal):
    count = sum(len(moved(equal(random_net(seed)))) for seed in range(12))
    assert count > 24, "hardly anything was shifted, so this shows nothing"


def transposed_a(x):
    y = biased(tf.raw_ops.MatMul(a=x, b=random(C, 4), name="first"), "first_biased")
    return tf.raw_ops.MatMul(a=y, b=random(3, 5), transpose_a=True, name="second")


def with_tensors(graph: Graph, **tensors: str) -> Graph:
    for role, tensor in tensors.items():
        setattr(graph, role, (*getattr(graph, role), tensor))
    return graph


def infinite_weights() -> Graph:
    weights = random(1, 1, C, C)
    weights[0, 0, 1, 2] = np.inf
    return net(lambda y: conv(y, "second", weights=weights))


def back(reader: str, op: str) -> str:
    return because("reader-takes-no-offset", reader=reader, op=op)


LEFT_ALONE = {
    "padded": (
        lambda: net(lambda y: conv(y, "second", 3)),
        back("second", "Conv2D"),
    ),
    "padded explicitly": (
        lambda: net(
            lambda y: conv(
                y, "second", 3, padding="EXPLICIT", explicit_paddings=[0, 0, 1, 1, 0, 0, 0, 0]
            )
        ),
        back("second", "Conv2D"),
    ),
    "depthwise": (
        lambda: net(lambda y: depthwise(y, "second")),
        back("second", "DepthwiseConv2dNative"),
    ),
    "activation": (lambda: net(relu), back("relu", "Relu")),
    "one reader of two": (
        lambda: net(lambda y: conv(y, "second") * y),
        back("mul", "Mul"),
    ),
    "padded AvgPool": (lambda: net(pooled("AvgPool", padding="SAME")), back("pool", "AvgPool")),
    "MaxPool over channels": (
        lambda: net(pooled("MaxPool", ksize=[1, 1, 1, 2], strides=[1, 1, 1, 2])),
        back("pool", "MaxPool"),
    ),
    "transposed": (
        lambda: graph_of(transposed_a, (3, C)),
        back("second", "MatMul"),
    ),
    "infinite weights": (infinite_weights, back("second", "Conv2D")),
    "output": (
        lambda: with_tensors(net(lambda y: conv(y, "second")), outputs="first_biased"),
        because("graph-output"),
    ),
    "bias that is fed": (
        lambda: with_tensors(net(lambda y: conv(y, "second")), inputs="first_biased"),
        back("first_biased", "BiasAdd"),
    ),
    "fed": (
        lambda: with_tensors(net(lambda y: conv(y, "second")), inputs="first"),
        because("fed"),
    ),
    "sum of another shape": (
        lambda: net(lambda y: conv(y + random(1, 5, 1, seed=4), "second")),
        back("add", "AddV2"),
    ),
}


@pytest.mark.parametrize(("make", "reason"), LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_left_alone(make, reason, shifted):
    graph = make()
    (step,) = shifted(graph)
    assert str(step.graph) == str(graph)
    name, found = step.skipped[0].removeprefix("node '").split("': ", 1)
    assert name.startswith("first")
    assert found == reason


@built(["x"], ["out"])
def typed(dtype):
    x = tf.compat.v1.placeholder(dtype, [None, C], name="x")
    y = tf.raw_ops.MatMul(a=x, b=np.ones((C, C), dtype), name="first")
    tf.raw_ops.MatMul(a=y, b=np.ones((C, C), dtype), name="out")


def fed_weights() -> Graph:
    def make(x):
        weights = tf.compat.v1.placeholder_with_default(random(1, 1, C, C), [1, 1, C, C])
        return conv(conv(x, "first", weights=weights), "second")

    return graph_of(make)


def channels_first() -> Graph:
    attrs = {"data_format": "NCHW", "bias": False, "weights": random(1, 1, C, C)}
    return graph_of(lambda x: conv(conv(x, "first", **attrs), "second", **attrs), (None, C, 7, 5))


def depthwise_explicit() -> Graph:
    explicit = {"padding": "EXPLICIT", "explicit_paddings": [0, 0, 1, 1, 1, 1, 0, 0]}
    return net(lambda y: conv(y, "second"), lambda x: depthwise(x, "first", **explicit))


NO_LAYERS = {
    "float64": (
        lambda: typed("float64"),
        because("type-unfit", type="float64", expected="float32"),
    ),
    "fed weights": (fed_weights, because("weights-not-constant")),
    "channels first": (channels_first, because("layout-unfit", layout="NCHW")),
    "depthwise, explicit padding": (
        depthwise_explicit,
        because("kernel-explicit-crash", op="DepthwiseConv2dNative"),
    ),
}


@pytest.mark.parametrize(("make", "reason"), NO_LAYERS.values(), ids=NO_LAYERS)
def test_layers_whose_bias_cannot_change(make, reason, tmp_path):
    (tmp_path / "ranges.json").write_text(Ranges("", 1, {}).text())
    text = f'shift_activations(ranges="{tmp_path / "ranges.json"}")'
    (step,) = pipeline.run(make(), pipeline.parse(text))
    assert str(step.graph) == str(make())
    assert step.skipped[0] == f"node 'first': {reason}"


def test_what_the_ranges_do_not_hold_stays(shifted):
    graph = mobile_net(2)
    (step,) = shifted(graph, left_out={"sum0"})
    assert moved(step.graph) == {"start_biased", "project0_biased", "project1_biased", "sum1"}
    assert skipped("sum0", "ranges-lack-it") in step.skipped
    assert error(graph, step.graph, feeds(graph)) <= default_tolerance(graph)


def test_a_tensor_without_negative_values_keeps_its_name(tmp_path):
    graph = net(lambda y: conv(y, "second"))
    path = tmp_path / "ranges.json"
    path.write_text(
        Ranges("", 1, {"first_biased": TensorRange(0, 9, (1,) * C, (0, 0.5) * 3)}).text()
    )
    assert str(transform(graph, f'shift_activations(ranges="{path}")')) == str(graph)


def test_ranges_of_another_model_are_refused(tmp_path, shifted):
    graph, path = net(lambda y: conv(y, "second")), tmp_path / "other.json"
    text = f'shift_activations(ranges="{path}")'
    path.write_text(Ranges("", 1, {"other": TensorRange(0, 1)}).text())
    with raises(GraphError, "ranges-lack-tensors", action="shifted", example="first_biased"):
        transform(graph, text)
    path.write_text(Ranges("", 1, {"first_biased": TensorRange(-1, 1, (0, 0), (-1, -1))}).text())
    with pytest.raises(GraphError, match=says("ranges-channels", channels=6, count=2)):
        transform(graph, text)
    (step,) = shifted(graph)
    with raises(GraphError, "ranges-lack-tensors", example="first_biased_shifted"):
        transform(step.graph, f'shift_activations(ranges="{tmp_path / "model.ranges.json"}")')


def test_constants_that_others_read_keep_their_value(equal):
    graph = net(lambda y: conv(y, "second"))
    shared = graph["first_biased"].inputs[1]
    second = graph["second_biased"]
    graph.replace(second, second.with_data_inputs(second.inputs[0], shared))
    graph.add(Node("again", "Identity", (shared,), {"T": second.attrs["T"]}))
    graph.outputs = ("out", "again")
    assert moved(equal(graph)) == {"first_biased"}


def test_an_offset_that_passes_a_layer_unchanged_is_in_the_name(equal):
    """The second layer's bias stays at zero, but what it gives does not keep its value."""
    same = np.eye(C, dtype=np.float32).reshape(1, 1, C, C)
    graph = net(lambda y: conv(conv(y, "second", weights=same, bias=False), "third"))
    assert moved(equal(graph)) == {"first_biased", "second"}


def test_control_inputs_are_kept(equal):
    graph = net(lambda y: conv(y, "second"))
    graph.add(Node("before", "NoOp"))
    graph.add(Node("after", "NoOp", ("^first_biased",)))
    graph.replace(graph["first_biased"], graph["first_biased"].with_control_inputs("^before"))
    graph.replace(graph["out"], graph["out"].with_control_inputs("^after"))
    result = equal(graph)
    assert result["first_biased_shifted"].control_inputs == ("^before",)
    assert result["after"].control_inputs == ("^first_biased_shifted",)


def test_a_fetched_layer_without_a_bias_keeps_name_and_value(equal):
    graph = with_tensors(net(lambda y: conv(y, "second", bias=False)), outputs="second")
    result = equal(graph)
    assert moved(result) == {"first_biased"}
    assert (result["second"].op, result["second_unbiased"].op) == ("BiasAdd", "Conv2D")


def test_a_chain_of_1_500_layers(tmp_path):
    matrix, vector, path = random(C, C), (-1.0,) * C, tmp_path / "ranges.json"
    graph = typed("float32")
    weights, last = graph.add(Node.constant("w", matrix)).name, "first"
    for i in range(1_500):
        inputs = (last, weights)
        last = graph.add(graph["first"].with_name(f"layer{i}").with_data_inputs(*inputs)).name
    graph.replace(graph["out"], graph["out"].with_data_inputs(last, weights))
    names = [node.name for node in graph if node.op == "MatMul"]
    path.write_text(Ranges("", 1, dict.fromkeys(names, TensorRange(-1, 1, vector, vector))).text())
    assert len(moved(transform(graph, f'shift_activations(ranges="{path}")'))) == 1_501


GRAPHS = [Example("shift_activations(ranges={ranges})", lambda: mobile_net(1), bar=1e-5)]
