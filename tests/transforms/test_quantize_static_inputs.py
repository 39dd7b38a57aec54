"""Inputs with a sign, and inputs that are bytes, are read in 8 bits, with zeros around them too."""

import itertools

import numpy as np
import pytest

from deploykit.transforms.int8.weights import restored, weight_codes
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.runtime.differences import compare
from tests.support import building, ops, random, run, tf, transform
from tests.transforms.int8_nets import C, image, layer, ranges_of, relu
from tests.transforms.layer_matrix import Runner

BAR_DB = 34.0  # of one or two layers; 8 bits give 50 dB at best, weights for AVX2 have fewer levels

WINDOWS = {
    "SAME": {"padding": "SAME"},
    "stride 2": {"padding": "SAME", "strides": [1, 2, 2, 1]},
    "dilated": {"padding": "SAME", "dilations": [1, 2, 2, 1]},
    "explicit": {"padding": "EXPLICIT", "explicit_paddings": [0, 0, 2, 1, 0, 1, 0, 0]},
    "VALID": {"padding": "VALID"},
}


def swish(x):
    y = layer("conv", x, "before", weights=random(1, 1, C, C, seed=2))
    return y * tf.sigmoid(y)


def photo(scale, offset):
    """Return what scales bytes, in the order that people write it."""

    def scaled(x):
        y = tf.cast(x, tf.float32)
        return y * np.float32(scale) + np.float32(offset) if offset else y * np.float32(scale)

    return scaled


def divided(x):
    return tf.cast(x, tf.float32) / 127.5 - 1


def subtracted(x):
    return (tf.identity(tf.cast(x, tf.float32)) - 128.0) / 64.0


SOURCES = {
    "float": (np.float32, lambda x: x),
    "swish": (np.float32, swish),
    "bytes / 127.5 - 1": (np.uint8, divided),
    "(bytes - 128) / 64": (np.uint8, subtracted),
    "bytes / 255": (np.uint8, photo(1 / 255, 0)),
    "bytes in a range without zero": (np.uint8, photo(0.01, 1.0)),
    "bytes upside down": (np.uint8, photo(-0.01, 1.0)),
}


def net(source: str, kind: str, window: str, shape=(None, 9, 8, C)) -> Graph:
    type_, make = SOURCES[source]

    with building(["x"], ["out"]) as graph:
        x = image(shape) if type_ is np.float32 else tf.compat.v1.placeholder(type_, shape, "x")
        relu(layer(kind, make(x), "layer", **WINDOWS[window]), "out")
    graph.prune()
    return graph


def feeds_of(graph: Graph, batch: int) -> dict[str, np.ndarray]:
    rng, shape = np.random.default_rng(batch), (batch, 9, 8, C)
    if graph["x"].attr("dtype") == "uint8":
        return {"x": rng.integers(0, 256, shape, np.uint8)}
    return {"x": rng.uniform(-1, 1, shape).astype(np.float32)}


def with_float_kernels(graph: Graph) -> Graph:
    """Return the same numbers for any processor: zeros between weights instead of dilations.

    TensorFlow computes dilated depthwise layers in float with oneDNN alone, which is off by default
    on processors without VNNI; the 8-bit kernel needs no flag.
    """
    layer, same = graph["layer"], graph.copy()
    rate = max(layer.attr("dilations") or (1,))
    if layer.op != "DepthwiseConv2dNative" or rate == 1:
        return same
    weights = graph.constant(layer.inputs[1])
    height, width, *channels = weights.shape
    sizes = (height - 1) * rate + 1, (width - 1) * rate + 1, *channels
    wide = np.zeros(sizes, np.float32)
    wide[::rate, ::rate] = weights.value
    same.replace(same[weights.name], Node.constant(weights.name, wide))
    same.replace(same["layer"], layer.with_attrs(dilations=None))
    return same


def quantized(graph: Graph, folder) -> Graph:
    path, floats = folder / "net.ranges.json", with_float_kernels(graph)
    path.write_text(ranges_of(floats, [feeds_of(graph, batch) for batch in (1, 4)]).text())
    return transform(graph, f'quantize_static(ranges="{path}", isa=avx2)')


def noise(graph: Graph, result: Graph) -> float:
    fed, floats = [feeds_of(graph, batch) for batch in (1, 4)], with_float_kernels(graph)
    return min(compare(run(floats, each), run(result, each))[0].sqnr_db for each in fed)


MATRIX = [
    each
    for number, each in enumerate(itertools.product(SOURCES, WINDOWS, ("conv", "depthwise")))
    if each[1:] != ("explicit", "depthwise")  # which has no kernel
    if each[1] == "explicit" or (number // 2 + number) % 2  # each pair of two of the three
]


@pytest.mark.parametrize(("source", "window", "kind"), MATRIX)
def test_numbers_hold(source, kind, window, tmp_path):
    graph = net(source, kind, window)
    result = quantized(graph, tmp_path)
    eight = [node for node in result if node.op.startswith("_FusedQuantized")]
    assert len(eight) == 1 + (source == "swish")
    assert noise(graph, result) >= BAR_DB
    types = {node.attr("Tinput") for node in eight if node.name.startswith("out")}
    assert types == {"quint8"}
    made_of_bytes = source.startswith(("bytes /", "(bytes"))
    assert ops(result).get("QuantizeV2", 0) == len(eight) - made_of_bytes


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("source", ["bytes / 255", "(bytes - 128) / 64"])
def test_bytes_are_exact_codes(source, window, tmp_path):
    """So nothing is rounded but weights and results."""
    graph = net(source, "conv", window)
    result = quantized(graph, tmp_path)
    exact, node = graph.copy(), graph["layer"]
    weights = graph.constant(node.inputs[1])
    floats = restored(node, *weight_codes(node, weights.value, False))
    exact.replace(exact[weights.name], Node.constant(weights.name, floats))
    for batch in (1, 4):
        (expected,), (found,) = (run(g, feeds_of(graph, batch)) for g in (exact, result))
        step = ranges_of(graph, [feeds_of(graph, b) for b in (1, 4)]).of("out").max / 255
        assert np.abs(found - np.minimum(expected, 255 * step)).max() <= step * 0.51


@pytest.mark.parametrize("source", ["swish", "float", "bytes / 255", "(bytes - 128) / 64"])
def test_zeros_that_depend_on_the_size_of_the_image(source, tmp_path):
    """Without them, codes need a sign; what nothing computed stays float then."""
    graph = net(source, "conv", "stride 2", (None, None, None, C))
    result = quantized(graph, tmp_path)
    assert noise(graph, result) >= BAR_DB - 6
    types = [n.attr("Tinput") for n in result if n.op.startswith("_FusedQuantized")]
    expected = {"swish": ["quint8", "qint8"], "bytes / 255": ["quint8"]}
    assert types == expected.get(source, [])


@pytest.mark.sampled
@pytest.mark.parametrize("onednn", "01")
def test_with_and_without_onednn(onednn, tmp_path):
    runner = Runner(onednn)
    for source in SOURCES:
        graph = net(source, "conv", "stride 2")
        result = quantized(graph, tmp_path)
        for batch in (1, 4):
            feeds = feeds_of(graph, batch)
            (found,) = compare(run(graph, feeds), runner.run(result, feeds))
            assert found.sqnr_db >= BAR_DB
        (empty,) = runner.run(result, feeds_of(graph, 0))
        assert empty.shape[0] == 0
    runner.close()


def test_a_sum_is_not_written_over_the_bytes_of_the_caller(tmp_path):
    with building(["x"], ["out"]) as graph:
        y = photo(1 / 255, 0)(tf.compat.v1.placeholder(np.uint8, (None, 9, 8, C), "x"))
        relu(layer("conv", relu(layer("conv", y, "a")), "layer") + y, "out")
    graph.prune()
    result = quantized(graph, tmp_path)
    assert not any("Sum" in (node.attr("fused_ops") or ()) for node in result)
    assert noise(graph, result) >= BAR_DB - 6
