"""What rounded weights lose on average goes into biases, so that channels keep their means."""

import json
from pathlib import Path

import numpy as np
import pytest

from deploykit.transforms.int8.plan import OPS
from deploykit.transforms.int8.weights import restored, weight_codes
from deploykit.transforms.ir import pipeline
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.layers.layers import WEIGHTS
from tests.support import assert_golden, building, ops, random, run, skipped, tf, transform
from tests.transforms.examples import Example
from tests.transforms.int8_nets import C, calibrated, image, layer, ranges_of, relu


def corrected(graph: Graph, path: str, more: str = "isa=avx2") -> Graph:
    return transform(graph, f'correct_biases(ranges="{path}", {more})')


def net(kind="conv", bias=True, transposed=False, **attrs) -> Graph:
    """Return one layer that sees nothing but its input, so its means follow from the input's."""

    with building(["x"], ["out"]) as graph:
        x = image((None, C) if kind == "matmul" else (None, 9, 8, C))
        if transposed:
            y = tf.raw_ops.MatMul(a=x, b=random(5, C), transpose_b=True, name="layer")
        else:
            y = layer(kind, x, "layer", bias=bias, **attrs)
        tf.identity(y, name="out")
    graph.prune()
    return graph


def rounded(graph: Graph, exact_sums: bool = False) -> Graph:
    """Return the graph with the weights that the codes of its layers stand for."""
    result = graph.copy()
    for node in graph:
        if node.op in OPS:
            const = graph.constant(node.inputs[WEIGHTS])
            floats = restored(node, *weight_codes(node, const.value, exact_sums))
            result.replace(result[const.name], Node.constant(const.name, floats))
    return result


def even(graph: Graph) -> dict[str, np.ndarray]:
    """Return images of one colour each, so that every place of a window sees the same mean."""
    (name,) = graph.inputs
    shape = graph[name].attr("shape")
    colours = random(3, *[1] * (len(shape) - 2), C, low=0.0)
    return {name: np.broadcast_to(colours, (3, *shape[1:])).copy()}


def mean_error(graph: Graph, result: Graph) -> float:
    """Return how far the means of the output's channels are aside, at most, per largest value."""
    values = [run(each, even(graph))[0] for each in (graph, result)]
    means = [value.reshape(-1, value.shape[-1]).mean(0, dtype=np.float64) for value in values]
    return float(np.abs(means[0] - means[1]).max() / np.abs(values[0]).max())


VALID = {"padding": "VALID"}  # no window sees zeros around the image
KINDS = {
    "conv": ("conv", VALID),
    "conv without bias": ("conv", VALID | {"bias": False}),
    "depthwise": ("depthwise", VALID | {"channels": 2 * C}),
    "matmul": ("matmul", {}),
    "matmul without bias": ("matmul", {"bias": False}),
    "matmul, transposed": ("matmul", {"transposed": True}),
}
BAR = 2e-6  # means of float32 sums


def ranges_file(graph: Graph, folder: Path) -> str:
    """Return ranges for what `mean_error` feeds, and nothing else: the means are exact."""
    path = folder / "three.ranges.json"
    path.write_text(ranges_of(graph, [even(graph)]).text())
    return str(path)


@pytest.mark.parametrize(("kind", "attrs"), KINDS.values(), ids=KINDS)
def test_channels_keep_their_means(kind, attrs, tmp_path):
    graph = net(kind, **attrs)
    result = rounded(corrected(graph, ranges_file(graph, tmp_path)))
    assert mean_error(graph, result) < BAR < mean_error(graph, rounded(graph)) / 10


@pytest.mark.golden("correct_biases")
def test_golden(tmp_path):
    graph = net("conv", **VALID)
    assert_golden(graph, corrected(graph, calibrated(graph, tmp_path)))


def test_a_layer_without_bias_gets_one_behind_it(tmp_path):
    graph = net("conv", bias=False)
    result = corrected(graph, calibrated(graph, tmp_path))
    assert result["layer"].op == "BiasAdd"
    assert result["layer"].data_inputs[0] == "layer/unbiased"
    again = transform(result, f'quantize_static(ranges="{calibrated(graph, tmp_path)}", isa=avx2)')
    assert ops(again)["_FusedQuantizedConv2D"] == 1


def test_a_shared_bias_stays_for_others(tmp_path):
    with building(["x"], ["out"]) as graph:
        bias = tf.constant(random(C), name="bias")
        y = tf.nn.conv2d(image(), random(3, 3, C, C), 1, "SAME", name="layer")
        y = tf.nn.bias_add(y, bias, name="biased")
        tf.add(relu(y), bias, name="out")
    result = corrected(graph, calibrated(graph, tmp_path))
    assert np.array_equal(result["bias"].value, graph["bias"].value)
    assert result["biased"].inputs[1] == "layer/corrected_bias"
    assert result["out"].inputs[1] == "bias"


def left_alone(graph: Graph, path: str, more: str = "isa=avx2") -> list[str]:
    """Return why the graph stays as it is, which it must."""
    (done,) = pipeline.run(graph, pipeline.parse(f'correct_biases(ranges="{path}", {more})'))
    assert str(done.graph) == str(graph)
    return list(done.skipped)


def test_left_alone_where_the_means_are_not_known(tmp_path):
    graph = net("conv")
    path = Path(calibrated(graph, tmp_path))
    document = json.loads(path.read_text())
    document["tensors"]["x"]["channel_mean"] = []
    path.write_text(json.dumps(document))
    reason = skipped("layer", "means-unknown")
    assert left_alone(graph, str(path)) == [reason]


def test_a_layer_that_stays_float_keeps_its_bias(tmp_path):
    graph = net("conv")
    path = calibrated(graph, tmp_path)
    assert left_alone(graph, path, "keep_float=layer") == []


def test_a_layer_whose_weights_are_codes_already(tmp_path):
    """Nothing is lost, so nothing changes but the name of the bias."""
    graph = rounded(net("conv", **VALID), exact_sums=True)
    result = corrected(graph, ranges_file(graph, tmp_path), "isa=vnni")
    old = graph.constant(graph["layer/biased"].inputs[1]).value
    assert np.abs(result["layer/corrected_bias"].value - old).max() < 1e-6


GRAPHS = [
    Example("correct_biases(ranges={ranges}, isa=avx2)", net, bar=0.05, low=0.0),
    Example(
        "correct_biases(ranges={ranges}, isa=avx2)", lambda: net(bias=False), bar=0.05, low=0.0
    ),
]
