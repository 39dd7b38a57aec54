"""Dead channels become copies of others: exact in float32, and int8 gains; others stay as is."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploykit.pipelines.int8 import int8_graph
from deploykit.transforms.int8.ranges import load_ranges
from deploykit.transforms.ir import pipeline
from deploykit.transforms.ir.graph import Graph
from tests.int8_cpus import needs_exact_sums
from tests.support import assert_golden, building, error, ops, random, run, shows, tf, transform
from tests.transforms.examples import Example
from tests.transforms.int8_nets import C, image, layer, ranges_of

BAR = 1e-5  # float32 rounding of a scaled weight
DEAD = (1, 4)
NOISY = 2  # the next layer multiplies this channel with large weights


def dead_conv(y, name, kind="conv", end="relu", shift=-9.0, weight=0.0):
    """Return a layer with dead channels: by their weights and their bias."""
    read, size = int(y.shape[-1]), 12
    shape = (read, size) if kind == "matmul" else (3, 3, read, size)
    weights, bias = random(*shape, seed=1) / 4, np.full(size, 1.5, np.float32)
    weights[..., DEAD], bias[list(DEAD)] = weight, shift
    y = layer(kind, y, name, size, bias=False, weights=weights)
    y = tf.nn.bias_add(y, bias, name=f"{name}/biased")
    return {"relu": tf.nn.relu, "relu6": tf.nn.relu6, "tanh": tf.nn.tanh}[end](y)


def last(y, name="last", kind="conv"):
    """Return a layer with large weights for one channel."""
    size = int(y.shape[-1])
    shape = (size, C) if kind == "matmul" else (1, 1, size, C)
    weights = random(*shape, seed=5) / 4
    weights[..., NOISY, :] *= 20
    return tf.nn.bias_add(layer(kind, y, name, C, bias=False, weights=weights), random(C, seed=6))


def net(body: Callable, shape=(None, 9, 8, C)) -> Graph:
    """Return a net of one input."""

    with building(["x"], ["out"]) as whole:
        tf.identity(body(image(shape)), name="out")
    graph = transform(whole, "remove_nodes(op=Identity)")
    graph.prune()
    return graph


def depthwise(y, end="relu6", shift=-0.1):
    """Return a depthwise layer whose dead channels stay dead for a bias below zero."""
    channels = int(y.shape[-1])
    y = layer("depthwise", y, "between", channels, False, random(3, 3, channels, 1, seed=2) / 4)
    bias = np.full(channels, 0.7, np.float32)
    bias[list(DEAD)] = shift
    y = tf.nn.bias_add(y, bias, name="between/biased")
    return {"relu": tf.nn.relu, "relu6": tf.nn.relu6}[end](y)


ROWS = (None, C)
FOUND = {
    "conv": lambda: net(lambda x: last(dead_conv(x, "first"))),
    "relu6": lambda: net(lambda x: last(dead_conv(x, "first", end="relu6"))),
    "matmul": lambda: net(
        lambda x: last(dead_conv(x, "first", "matmul"), kind="matmul"), shape=ROWS
    ),
    "depthwise": lambda: net(lambda x: last(depthwise(dead_conv(x, "first", end="relu6")))),
    "depthwise relu": lambda: net(lambda x: last(depthwise(dead_conv(x, "first"), "relu"))),
    "a very low bias": lambda: net(lambda x: last(dead_conv(x, "first", shift=-1e30))),
    "two in a row": lambda: net(lambda x: last(dead_conv(dead_conv(x, "first"), "second"))),
    "two readers": lambda: net(lambda x: two(dead_conv(x, "first"))),
}
OTHERS = {
    "no Relu": lambda: net(lambda x: last(dead_conv(x, "first", end="tanh"))),
    "alive": lambda: net(lambda x: last(dead_conv(x, "first", shift=0.5))),
    "dead on these samples": lambda: net(
        lambda x: last(dead_conv(x, "first", shift=-0.3, weight=0.01))
    ),
    "constant behind depthwise": lambda: net(
        lambda x: last(depthwise(dead_conv(x, "first"), shift=0.1))
    ),
    "read by a Mul": lambda: net(lambda x: multiplied(dead_conv(x, "first"))),
    "an output": lambda: net(lambda x: dead_conv(x, "first")),
}


def two(y):
    return last(y) + last(y, "other")


def multiplied(y):
    return last(y) + tf.reduce_sum(y * 2, -1, keepdims=True)


def feeds(graph: Graph, batch: int = 16) -> dict[str, np.ndarray]:
    """Return samples; the same for the same batch."""
    (name,) = graph.inputs
    return {name: random(batch, *graph[name].attr("shape")[1:], seed=batch)}


def reused(graph: Graph, folder):
    path = folder / "ranges.json"
    path.write_text(ranges_of(graph, [feeds(graph)]).text())
    (step,) = pipeline.run(graph, pipeline.parse(f'reuse_dead_channels(ranges="{path}")'))
    return step


def noise(graph: Graph, floats: Graph, folder) -> float:
    """Return the error power of int8 layers, beside that of the float graph."""
    path = folder / "int8.json"
    path.write_text(ranges_of(floats, [feeds(floats)]).text())
    given = feeds(graph, 64)
    (exact,), (found,) = run(graph, given), run(int8_graph(floats, str(path), isa="vnni"), given)
    return float(np.square(found - exact).sum() / np.square(exact).sum())


@needs_exact_sums
@pytest.mark.parametrize("make", FOUND.values(), ids=FOUND)
def test_numbers_stay_and_int8_gains(make, tmp_path):
    graph = make()
    result = reused(graph, tmp_path).graph
    assert str(result) != str(graph)
    assert ops(result) == ops(graph)
    for batch in (1, 16):
        given = feeds(graph, batch)
        assert error(graph, result, given) <= BAR
    assert noise(graph, result, tmp_path) < noise(graph, graph, tmp_path)


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_others_are_left_alone(make, tmp_path):
    graph = make()
    step = reused(graph, tmp_path)
    assert str(step.graph) == str(graph)
    assert step.skipped


def test_the_noisiest_channel_is_copied(tmp_path):
    graph = FOUND["conv"]()
    result = reused(graph, tmp_path).graph
    weights = result.constant(result["first"].data_inputs[1]).value
    for dead in DEAD:
        ratio = weights[..., dead] / weights[..., NOISY]
        assert 0.5 <= ratio.min() <= ratio.max() < 1
        assert np.ptp(ratio) < 1e-5


def test_channels_at_the_upper_limit_of_relu6_are_not_copied(tmp_path):
    """A scaled copy would end lower."""
    graph = net(lambda x: last(dead_conv(x * 40, "first", end="relu6")))
    assert str(reused(graph, tmp_path).graph) == str(graph)


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10_000), depth=st.integers(2, 4), dead=st.integers(1, 4),
    kinds=st.lists(st.sampled_from(["dense", "depthwise"]), min_size=4, max_size=4),
    end=st.sampled_from(["relu", "relu6"]),
)  # fmt: skip
def test_stacks_of_random_layers_keep_their_numbers(seed, depth, dead, kinds, end):
    """A rewritten layer may read another one: whether its channels are dead must not change."""
    rng = np.random.default_rng(seed)

    def body(x):
        size, activation = 6, {"relu": tf.nn.relu, "relu6": tf.nn.relu6}[end]
        for number, kind in enumerate(kinds[:depth]):
            weights = rng.normal(0, 0.4, (1, 1, int(x.shape[-1]), size)).astype(np.float32)
            bias = rng.normal(0.3, 0.5, size).astype(np.float32)
            bias[rng.permutation(size)[:dead]] -= rng.choice([0.5, 1, 2, 4, 1e20], dead)
            x = layer("conv", x, f"layer{number}", size, bias=False, weights=weights)
            x = activation(tf.nn.bias_add(x, bias))
            if kind == "depthwise":
                weights = rng.normal(0, 0.4, (3, 3, size, 1)).astype(np.float32)
                x = layer("depthwise", x, f"depthwise{number}", size, False, weights)
                x = activation(tf.nn.bias_add(x, rng.normal(0, 0.2, size).astype(np.float32)))
        return last(x)

    graph = net(body)
    with tempfile.TemporaryDirectory() as folder:
        result = reused(graph, Path(folder)).graph
    assert error(graph, result, feeds(graph)) <= BAR


def test_ranges_of_another_graph_change_nothing(tmp_path):
    path = tmp_path / "ranges.json"
    other = FOUND["matmul"]()
    path.write_text(ranges_of(other, [feeds(other)]).text().replace('"Relu"', '"Other"'))
    graph = FOUND["conv"]()
    (step,) = pipeline.run(graph, pipeline.parse(f'reuse_dead_channels(ranges="{path}")'))
    assert str(step.graph) == str(graph)
    assert any(shows(each, "ranges-lack-tensor", tensor="Relu") for each in step.skipped)


def test_earlier_ranges_do_not_apply_to_a_changed_tensor(tmp_path):
    result = reused(FOUND["depthwise"](), tmp_path).graph
    known = load_ranges(tmp_path / "ranges.json").tensors
    changed = [node.name for node in result if node.name.endswith("_reused")]
    assert len(changed) == 2
    assert known.keys().isdisjoint(changed)


@pytest.mark.golden("reuse_dead_channels/depthwise")
def test_golden(tmp_path):
    graph = FOUND["depthwise"]()
    assert_golden(graph, reused(graph, tmp_path).graph)


GRAPHS = [Example("reuse_dead_channels(ranges={ranges})", FOUND["depthwise"], bar=BAR)]
