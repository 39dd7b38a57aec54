"""The way back: of a graph in codes, quantize_static writes what it writes of the float graph."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from deploykit.pipelines.int8 import codes_graph, int8_graph, onednn_graph
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.int8.int8_kernels import sums_exactly
from deploykit.transforms.int8.plan import OPS
from deploykit.transforms.int8.ranges import Ranges, TensorRange
from deploykit.transforms.int8.stored_codes import ROUNDS
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.runtime.child_process import Worker
from deploykit.transforms.runtime.differences import compare
from tests import pairwise
from tests.support import ops, random, run, says, tf, transform
from tests.transforms import test_quantize_static_inputs as of_inputs
from tests.transforms.int8_nets import C, calibrated, feeds_of, image, layer, ranges_of, relu
from tests.transforms.test_quantize_static import (
    LAYERS,
    gelu,
    inception,
    net,
    net_with_two_readers,
    one_layer,
    pooled,
    residual,
    signed_end,
    through_a_reshape,
    two_branches,
    two_products,
)

SAME_DB = 100.0  # what float32 leaves of a bias whose share of an offset was added and taken
EQUAL_DB = 40.0  # a code that is rounded the other way here and there; one net's noise is 30 to 45


def shared_weights() -> Graph:
    """Return two layers with the same weights, and one that reads its input as it is."""

    def make():
        weights = random(3, 3, C, C)
        y = relu(layer("conv", image(), "first", weights=weights))
        y = relu(layer("conv", y, "second", weights=weights))
        relu(layer("conv", y, "out", weights=weights, bias=False), "end")

    graph = net(make, outputs=("end",))
    same = graph["first"].inputs[1]
    for name in ("second", "out"):
        node = graph[name]
        graph.replace(node, node.with_data_inputs(node.inputs[0], same))
    graph.prune()
    return graph


def transposed() -> Graph:
    def make():
        y = relu(layer("matmul", image((None, C)), "first", 16))
        tf.raw_ops.MatMul(a=y, b=random(5, 16), transpose_b=True, name="out")

    return net(make)


def image_of_any_size() -> Graph:
    """Return a net where one layer reads a tensor with an offset, and one the same with a sign."""

    def make():
        y = layer("conv", image((None, None, None, C)), "first", padding="VALID")
        y = y * tf.sigmoid(y)
        one = layer("conv", y, "one", strides=[1, 2, 2, 1])
        tf.identity_n([layer("conv", y, "two", strides=[1, 2, 2, 1], padding="VALID"), one])

    return net(make, outputs=("one/biased", "two/biased"))


def with_fetched(inner: str) -> Graph:
    graph = residual()
    graph.outputs = ("out", inner)
    return graph


NETS = {
    "residual": (residual, 0.0),
    "inception": (inception, 0.0),
    "signs": (lambda: net(signed_end, outputs=("out/biased", "again/biased")), 0.0),
    "exact GELU": (lambda: two_products(gelu()), -1.0),
    "GELU": (lambda: two_products(gelu(True)), -1.0),
    "products": (lambda: two_products(relu), -1.0),
    "a GELU read twice": (net_with_two_readers, -1.0),
    "a GELU in float": (lambda: two_products(gelu(), between=abs), -1.0),
    "two branches": (lambda: residual(two_branches), 0.0),
    "through a reshape": (lambda: residual(through_a_reshape), 0.0),
    "pooled": (lambda: residual(pooled), 0.0),
    "shared weights": (shared_weights, 0.0),
    "transposed": (transposed, -1.0),
    "any size": (image_of_any_size, 0.0),
    "fetched codes": (lambda: with_fetched("first/relu"), 0.0),
    "a fetched sum": (lambda: with_fetched("sum"), 0.0),
    **{name: (lambda name=name: one_layer(name, ""), low) for name, (_, low, _) in LAYERS.items()},
}


def written(graph: Graph, folder: Path, feeds: Sequence[dict[str, np.ndarray]], isa: str):
    """Return a graph in codes, and the 8-bit form as it is written of the float graph."""
    path = folder / "net.ranges.json"
    path.write_text(ranges_of(graph, feeds).text())
    return codes_graph(graph, str(path), isa), int8_graph(graph, str(path), isa)


def layers(graph: Graph) -> list[tuple[object, ...]]:
    """Return what the 8-bit layers compute, where their results go by name."""
    kept = ("fused_ops", "Tdevice_inputs", "Tout", "out_type", "padding", "output_quant_mode")
    return sorted(
        (node.name, node.op, *(str(node.attr(name)) for name in kept))
        for node in graph
        if node.op in OPS.values()
    )


def assert_same(graph: Graph, folder: Path, feeds: Sequence[dict[str, np.ndarray]], isa: str):
    """Compare the form that codes become with that of the float graph, and its numbers.

    Where sums of pairs saturate, a graph for vnni has the form alone: its numbers are wrong there.
    """
    codes, eight = written(graph, folder, feeds, isa)
    again = onednn_graph(codes, isa)
    assert layers(again) == layers(eight) != []
    assert ops(again) == ops(eight)
    if isa == "vnni" and not sums_exactly("auto"):
        pytest.skip("the form is the same; of the numbers, sums of pairs saturate here")
    for feed in feeds:
        expected = run(eight, feed)
        assert min(each.sqnr_db for each in compare(expected, run(again, feed))) >= SAME_DB
        assert min(each.sqnr_db for each in compare(expected, run(codes, feed))) >= EQUAL_DB


@pytest.mark.parametrize(
    "name", pairwise.drawn("codes_become_the_8_bit_form", list(NETS), 4, quick=12)
)
@pytest.mark.parametrize("isa", ["vnni", "avx2"])
def test_codes_become_the_8_bit_form(name, isa, tmp_path):
    make, low = NETS[name]
    graph = make()
    if name == "any size":
        feeds = [{"x": random(batch, 9, 8, C, seed=batch, low=0.0)} for batch in (1, 3)]
    else:
        feeds = [feeds_of(graph, batch, low) for batch in (1, 3)]
    assert_same(graph, tmp_path, feeds, isa)


@pytest.mark.parametrize("source", of_inputs.SOURCES)
@pytest.mark.parametrize("window", ["SAME", "stride 2", "VALID"])
def test_inputs_with_a_sign_and_bytes(source, window, tmp_path):
    """Where zero has no code, zeros around an image are one nevertheless."""
    graph = of_inputs.net(source, "conv", window)
    feeds = [of_inputs.feeds_of(graph, batch) for batch in (1, 4)]
    assert_same(graph, tmp_path, feeds, "auto")


def test_what_the_nearest_code_of_zero_stands_for_is_in_the_bias(tmp_path):
    """The check of numbers catches it where it is forgotten."""
    graph = of_inputs.net("bytes / 127.5 - 1", "conv", "SAME")
    feeds = [of_inputs.feeds_of(graph, batch) for batch in (1, 4)]
    codes, eight = written(graph, tmp_path, feeds, "auto")
    expected = run(eight, feeds[1])
    assert compare(expected, run(codes, feeds[1]))[0].sqnr_db >= SAME_DB
    bias = codes.constant(codes["layer/biased"].inputs[1])
    codes.replace(codes[bias.name], bias.with_value(graph.constant("layer/biased/bias").value))
    assert compare(expected, run(codes, feeds[1]))[0].sqnr_db < EQUAL_DB + 6


def signed_read(kind: str) -> Graph:
    """Return a layer that reads codes with a sign, which another one makes."""

    def make():
        y = layer("conv", image(), "first", padding="VALID", strides=[1, 2, 2, 1])
        layer(kind, tf.reshape(y, [-1, 4 * 3 * C]) if kind == "matmul" else y, "second")

    return net(make, outputs=("second/biased",))


@pytest.mark.parametrize(("kind", "apart"), [("conv", 2), ("depthwise", 2), ("matmul", 1)])
def test_what_reads_a_sign_has_weights_that_avx2_computes_with(kind, apart, tmp_path):
    """The kernel is held to AVX2, where oneDNN's convolutions halve such weights' codes."""
    graph = signed_read(kind)
    feeds = feeds_of(graph, 3)
    codes, eight = written(graph, tmp_path, [feeds], "avx2")
    (last,) = (n for n in eight if n.op == OPS[graph["second"].op] and "first" not in n.name)
    assert "qint8" in (last.attr("Tinput"), last.attr("T1"))
    assert np.gcd.reduce(codes["second/weights/codes"].value, axis=None) == apart
    content = b"".join(eight.serialized())
    forced = {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    worker = Worker("deploykit.transforms.runtime.session:Session", content, False, forced=forced)
    try:
        found = compare(worker.ask("run", list(eight.outputs), feeds), run(codes, feeds))
    finally:
        worker.close()
    assert min(each.sqnr_db for each in found) >= EQUAL_DB


def large_and_equal() -> Graph:
    """Return a layer of large equal weights that reads values of both signs."""

    def make():
        y = layer("conv", image(), "first")
        layer("conv", y, "second", weights=np.full((3, 3, C, 8), 0.9, np.float32))

    return net(make, outputs=("second/biased",))


@pytest.mark.parametrize(
    ("isa", "computes_with", "is_right"),
    [("avx2", "", True), ("avx2", "AVX2", True), ("vnni", "AVX2", False)],
)
def test_openvino_reads_codes_with_a_sign_as_they_are(isa, computes_with, is_right, tmp_path):
    """An error of half a step adds up over large equal weights, and pairs saturate on AVX2."""
    pytest.importorskip("openvino")
    graph, forced = large_and_equal(), {"ONEDNN_MAX_CPU_ISA": computes_with}
    feeds = {"x": random(4, 9, 8, C, low=0.7)}
    codes, _ = written(graph, tmp_path, [feeds], isa)
    codes.outputs = graph.outputs
    codes.prune()
    model = "deploykit.transforms.engines.openvino_model:OpenVinoModel"
    content = b"".join(codes.serialized())
    worker = Worker(model, content, {"x": "x"}, list(codes.outputs), forced=forced)
    try:
        (difference,) = compare(run(codes, feeds), worker.ask("run", feeds))
    finally:
        worker.close()
    assert (difference.sqnr_db >= EQUAL_DB) == is_right


def test_layers_in_branches(tmp_path):
    def make():
        y = relu(layer("conv", image(), "first"))
        pick = tf.raw_ops.Switch(data=y, pred=tf.reduce_sum(y) > 0)
        no, yes = (relu(layer("conv", y, name)) for y, name in zip(pick, "ab", strict=True))
        tf.raw_ops.Merge(inputs=[no, yes], name="out")

    graph = net(make)
    names = ("x", "Relu", "Relu_1", "Relu_2", "Switch", "Switch:1")
    path = tmp_path / "ranges.json"
    path.write_text(
        Ranges("", 1, {name: TensorRange(0, 4, (0.5,) * C, (0.0,) * C) for name in names}).text()
    )
    feeds = {"x": random(1, 9, 8, C, low=0.0)}
    codes, eight = codes_graph(graph, str(path)), int8_graph(graph, str(path))
    again = onednn_graph(codes)
    assert layers(again) == layers(eight)
    assert len(layers(again)) == 3
    (found,) = compare(run(eight, feeds), run(again, feeds))
    assert found.sqnr_db >= SAME_DB


def test_layers_that_stay_float_do(tmp_path):
    graph = inception()
    path = calibrated(graph, tmp_path)
    for name in (node.name for node in graph if node.op in OPS):
        codes = codes_graph(graph, path, "avx2", [name])
        assert layers(onednn_graph(codes, "avx2")) == layers(
            int8_graph(graph, path, "avx2", [name])
        )


def in_codes(graph: Graph, folder: Path, isa: str = "vnni") -> Graph:
    return codes_graph(graph, calibrated(graph, folder), isa)


def test_codes_are_taken_as_they_are(tmp_path):
    """Weights for avx2 have fewer levels; they are not found again from the floats."""
    codes = in_codes(one_layer("conv", "Relu"), tmp_path, "avx2")
    (stored,) = (node for node in codes if node.op == "Const" and node.attr("dtype") == "int8")
    half = stored.value // 2
    codes.replace(stored, stored.with_value(half))
    again = onednn_graph(codes, "avx2")
    (weights,) = (node for node in again if node.op == "Const" and node.attr("dtype") == "qint8")
    assert np.array_equal(weights.value.view(np.int8).reshape(half.shape), half)


def test_a_graph_in_float_needs_ranges():
    with pytest.raises(GraphError, match=says("stored-codes-missing")):
        transform(residual(), "quantize_static()")


def test_roundings_of_the_model_itself_are_no_codes():
    def make():
        y = tf.quantization.fake_quant_with_min_max_vars(image(), 0.0, 1.0)
        relu(layer("conv", y, "layer"), "out")

    with pytest.raises(GraphError, match=says("stored-codes-missing")):
        transform(net(make), "quantize_static()")


def test_layers_to_stay_float_are_chosen_before(tmp_path):
    codes = in_codes(residual(), tmp_path)
    with pytest.raises(GraphError, match=says("keep-float-needs-ranges")):
        transform(codes, "quantize_static(keep_float=first)")


def test_codes_for_vnni_are_none_for_avx2(tmp_path):
    codes = in_codes(residual(), tmp_path)
    with pytest.raises(GraphError, match=says("codes-other-isa", node="first")):
        transform(codes, "quantize_static(isa=avx2)")


def without_a_rounding(graph: Graph) -> None:
    graph.redirect({"first/relu": "first/relu/float"})
    graph.remove(graph["first/relu"])


def other_ends(graph: Graph) -> None:
    """The ends of one of three tensors that are joined."""
    end = next(n for n in graph if n.attr(ROUNDS) == "made" and n.name == "Relu_1").inputs[2]
    graph.replace(graph[end], graph[end].with_value(np.array(77, np.float32)))


def float_weights(graph: Graph) -> None:
    """What folding constants makes of them."""
    node = graph["first"]
    graph.replace(graph[node.inputs[1]], Node.constant(node.inputs[1], random(3, 3, C, C)))


def open_ends(graph: Graph) -> None:
    node = graph["first/relu"] if "first/relu" in graph else graph["Relu"]
    graph.replace(node, node.with_data_inputs(node.inputs[0], node.inputs[2], node.inputs[1]))


def read_between(graph: Graph) -> None:
    made = next(n for n in graph if n.attr(ROUNDS) == "made").inputs[0]
    graph.outputs = (*graph.outputs, made)


@pytest.mark.parametrize(
    "break_",
    [without_a_rounding, other_ends, float_weights, open_ends, read_between],
)
def test_other_codes_are_refused(break_, tmp_path):
    codes = in_codes(inception() if break_ is other_ends else residual(), tmp_path)
    break_(codes)
    with pytest.raises(GraphError, match=says("stored-codes-unknown")) as found:
        onednn_graph(codes, "vnni")
    assert "\n" not in str(found.value)
