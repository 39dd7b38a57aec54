import zlib

import numpy as np
import pytest

from deploykit.transforms.common.errors import PipelineError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.round_weights import round_weights
from tests.support import assert_golden, building, error, random, says, tf, transform
from tests.transforms.examples import Example

X = {"x": random(2, 8, seed=1)}


def layer(weights=None) -> Graph:
    weights = random(8, 4) if weights is None else weights

    with building(["x"], ["out"]) as graph:
        x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[2, 8], name="x")
        product = tf.raw_ops.MatMul(a=x, b=tf.constant(weights, name="w"), name="product")
        tf.raw_ops.BiasAdd(value=product, bias=tf.constant(random(4), name="b"), name="out")
    return graph


def rounded(values, num_steps: int = 256) -> np.ndarray:
    graph = Graph([Node.constant("w", np.asarray(values))])
    round_weights(graph, num_steps=num_steps)
    return graph["w"].value


def with_weights(graph: Graph) -> str:
    flat = [f"{value:g}" for value in graph["w"].value.reshape(-1)]
    return f"{graph}w: {' '.join(flat)}\n"


@pytest.mark.golden("round_weights/layer")
def test_golden():
    graph = layer(np.arange(-15, 17, dtype=np.float32).reshape(8, 4))
    result = transform(graph, "round_weights(num_steps=3)")
    assert_golden(with_weights(graph), with_weights(result))


@pytest.mark.parametrize("num_steps", [2, 3, 16, 255, 256, 4096])
@pytest.mark.parametrize(("low", "high"), [(-1, 1), (-3, 0.7), (0.5, 2), (-2, -1), (0, 1)])
def test_levels_error_and_range(num_steps, low, high):
    """The original makes one value more than asked, moves the maximum up, and loses zero."""
    values = random(50, 200, low=low, high=high, seed=num_steps)
    values[0, :2] = low, high
    values[1, :5] = 0 if low <= 0 <= high else low
    result = rounded(values, num_steps)
    step = (float(values.max()) - float(values.min())) / (num_steps - 1)
    assert len(np.unique(result)) <= num_steps
    assert values.min() <= result.min()
    assert result.max() <= values.max()
    assert np.abs(result - values).max() <= step / 2 * (1 + 1e-5) + 1e-7
    if low <= 0 <= high:
        assert (result[values == 0] == 0).all()
    assert result.dtype == np.float32


def test_far_from_zero_and_tiny():
    values = np.linspace(1000, 1001, 400, dtype=np.float32)
    assert np.abs(rounded(values) - values).max() <= 1 / 510 + 6e-5
    tiny = np.linspace(-3e-39, 2e-39, 400, dtype=np.float32)
    assert np.abs(rounded(tiny) - tiny).max() <= 5e-39 / 510 + 2e-45
    wide = np.linspace(-3e38, 3e38, 400, dtype=np.float32)
    assert np.isfinite(rounded(wide)).all()


def test_it_compresses():
    values = random(200, 200)
    before, after = (len(zlib.compress(v.tobytes())) for v in (values, rounded(values)))
    assert after < before / 2


@pytest.mark.parametrize(("num_steps", "bar"), [(256, 5e-3), (65536, 2e-5)])
def test_the_values_stay_nearly_the_same(num_steps, bar):
    graph = layer()
    result = transform(graph, f"round_weights(num_steps={num_steps})")
    assert 0 < error(graph, result, X) <= bar


LEFT_ALONE = {
    "15 elements": random(15),
    "float64": random(20).astype(np.float64),
    "float16": random(20).astype(np.float16),
    "int32": np.arange(20, dtype=np.int32),
    "strings": np.array([b"a"] * 20, object),
    "equal": np.full(20, 0.3, np.float32),
    "zeros": np.zeros(20, np.float32),
    "NaN": np.array([np.nan, *range(20)], np.float32),
    "Inf": np.array([-np.inf, *range(20)], np.float32),
    "empty": np.zeros((0, 20), np.float32),
}


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_left_alone(case):
    node = Node.constant("w", LEFT_ALONE[case])
    graph = Graph([node])
    round_weights(graph)
    assert graph["w"] is node


def test_inputs_and_outputs_are_left_alone():
    for inputs, outputs in ((["w"], ["r"]), ([], ["r", "w"])):
        graph = Graph([Node.constant("w", random(20)), Node("r", "Relu", ("w",))], inputs, outputs)
        round_weights(graph, num_steps=2)
        assert (graph["w"].value == random(20)).all()
        assert len(graph.skipped) == 1


def test_name_device_and_control_inputs_stay():
    node = Node.constant("w", random(20), device="/cpu:0").with_control_inputs("^pivot")
    graph = Graph([Node("pivot", "NoOp"), node])
    round_weights(graph)
    assert graph["w"].with_attrs(value=None) == node.with_attrs(value=None)
    assert (graph["w"].value != random(20)).any()


@pytest.mark.parametrize("num_steps", [1, 0, -3])
def test_too_few_steps(num_steps):
    with pytest.raises(
        PipelineError,
        match=says("out-of-range", name="num_steps", expected="at least 2", got=num_steps),
    ):
        transform(layer(), f"round_weights(num_steps={num_steps})")


GRAPHS = [Example("round_weights(num_steps=64)", layer, bar=0.05)]
