"""Few neurons that reach far behind a GELU become several; other nets stay as they are."""

from types import SimpleNamespace

import numpy as np
import pytest

from deploykit.pipelines.int8 import int8_graph
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir import pipeline
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.split_large_neurons import _chosen
from tests.int8_cpus import needs_exact_sums
from tests.support import (
    Containing,
    assert_golden,
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
from tests.transforms.int8_nets import ranges_of

C, INNER = 8, 96
LOST = 0.02  # of the largest value: copies add a dip of 0.17, and the limit is 5.5 or more
IDLE = 7  # a neuron that gives next to nothing


def net(large: int = 1, activation: str = "gelu", reach: float = 20) -> Graph:
    """Return two products with a GELU between them, whose first neurons reach far."""

    with building(["x"], ["out"]) as whole:
        x = tf.compat.v1.placeholder(tf.float32, [None, C], name="x")
        weights, bias = random(C, INNER, seed=1), random(INNER, seed=2)
        bias[:large] += reach
        bias[IDLE:30] -= 20
        y = tf.nn.bias_add(tf.raw_ops.MatMul(a=x, b=weights, name="first"), bias)
        y = tf.nn.gelu(y, approximate=False) if activation == "gelu" else tf.nn.relu(y)
        y = tf.raw_ops.MatMul(a=y, b=random(INNER, C, seed=3), name="second")
        tf.nn.bias_add(y, random(C, seed=4), name="out")
    graph = transform(whole, "remove_nodes(op=Identity)")
    graph.prune()
    return graph


def feeds(batch: int = 64) -> dict[str, np.ndarray]:
    return {"x": random(batch, C, seed=9, low=0)}


def split(graph: Graph, folder, limit: float = 5.5):
    path = folder / "ranges.json"
    path.write_text(ranges_of(graph, [feeds()]).text())
    text = f'split_large_neurons(ranges="{path}", limit={limit})'
    (step,) = pipeline.run(graph, pipeline.parse(text))
    return step


def noise_db(graph: Graph, floats: Graph, folder) -> float:
    path = folder / "int8.json"
    path.write_text(ranges_of(floats, [feeds()]).text())
    quantized = int8_graph(floats, str(path), isa="vnni")
    assert ops(quantized)["_QuantizedMatMul"] == 2
    assert "Minimum" not in ops(quantized)
    (exact,), (found,) = run(graph, feeds()), run(quantized, feeds())
    return float(10 * np.log10(np.square(exact).sum() / np.square(found - exact).sum()))


def test_a_large_neuron_is_split(tmp_path):
    graph = net()
    result = split(graph, tmp_path).graph
    assert ops(result) == ops(graph) | {"Minimum": 1, "Const": ops(graph)["Const"] + 1}
    assert error(graph, result, feeds()) <= LOST


@needs_exact_sums
def test_int8_gains_by_it(tmp_path):
    graph = net()
    result = split(graph, tmp_path).graph
    assert noise_db(graph, result, tmp_path) >= noise_db(graph, graph, tmp_path) + 3


@needs_exact_sums
def test_int8_gains_where_a_neuron_reaches_less_than_two_limits(tmp_path):
    graph = net(reach=6)
    result = split(graph, tmp_path, 4.5).graph
    assert "Minimum" in ops(result)
    assert noise_db(graph, result, tmp_path) >= noise_db(graph, graph, tmp_path) + 1


@pytest.mark.parametrize(("large", "reach"), [(0, 20), (40, 20), (1, 1e30)])
def test_none_or_too_many_are_left_alone(large, reach, tmp_path):
    graph = net(large, reach=reach)
    step = split(graph, tmp_path)
    assert str(step.graph) == str(graph)
    assert step.skipped


@pytest.mark.parametrize(("power", "lost"), [(1e-6, 2), (1.0, 0)])
def test_the_end_weighs_rounding_and_lost_neurons(power, lost):
    high = np.array([10.0] + [3.0] * 63)
    found = SimpleNamespace(low=np.full(64, -0.17), high=high)
    end, _, replaced = _chosen(found, 4.5, np.full(64, power), weight=64.0)
    assert len(replaced) == lost
    assert end == 4.5 if lost else end > 10 / 1.2


def test_relu_is_left_alone(tmp_path):
    graph = net(activation="relu")
    assert str(split(graph, tmp_path).graph) == str(graph)


def test_a_wrong_limit_is_refused(tmp_path):
    with pytest.raises(
        GraphError,
        match=says("out-of-range", name="limit", expected=Containing("3"), got=1.0),
    ):
        split(net(), tmp_path, 1)


@pytest.mark.golden("split_large_neurons/gelu")
def test_golden(tmp_path):
    graph = net()
    assert_golden(graph, split(graph, tmp_path).graph)


GRAPHS = [Example("split_large_neurons(ranges={ranges})", net, bar=LOST)]
