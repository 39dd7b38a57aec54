"""OpenVINO computes codes as TensorFlow does, in 8 bits, whatever lies around the layers.

The codes are those for this processor: where sums of pairs saturate, they do in OpenVINO as well.
"""

import pytest

from deploykit.transforms.engines.openvino_model import OpenVinoModel
from deploykit.transforms.int8 import openvino_workarounds
from deploykit.transforms.int8.plan import OPS
from deploykit.transforms.int8.stored_codes import ROUNDS
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.runtime.differences import compare
from tests import pairwise
from tests.support import ops, random, run, tf, transform
from tests.transforms import test_quantize_static_inputs as of_inputs
from tests.transforms.int8_nets import C, feeds_of, image, layer, ranges_of, relu
from tests.transforms.test_quantize_static import net
from tests.transforms.test_quantize_static_codes import NETS

BAR_DB = 30.0  # a code that is rounded the other way here and there
IN_FLOAT = {"depthwise, multiplier 2", "depthwise, signed"}  # OpenVINO has no 8-bit kernel for them


def in_codes(graph: Graph, folder, feeds) -> Graph:
    path = folder / "net.ranges.json"
    path.write_text(ranges_of(graph, feeds).text())
    return transform(graph, f'quantize_codes(ranges="{path}", isa=auto)')


def agreement(codes: Graph, feeds) -> tuple[float, set[str]]:
    """Return how close OpenVINO comes to TensorFlow, and the precisions of its 8-bit layers."""
    content = b"".join(codes.serialized())
    model = OpenVinoModel(content, {name: name for name in codes.inputs}, codes.outputs)
    pairs = [compare(run(codes, feed), model.run(feed)) for feed in feeds]
    eight = {
        node.name
        for node in codes
        if node.op in OPS and codes.producer(node.inputs[1]).attr(ROUNDS)
    }
    told = {each.precision for each in model.executed() if each.layer in eight}
    return min(each.sqnr_db for differences in pairs for each in differences), told


@pytest.mark.parametrize("name", pairwise.drawn("each_net", list(NETS), 4, quick=12))
def test_each_net(name, tmp_path):
    make, low = NETS[name]
    graph = make()
    feeds = [feeds_of(graph, batch, low) for batch in (1, 3)] if name != "any size" else [
        {"x": random(batch, 9, 8, C, seed=batch, low=0.0)} for batch in (1, 3)
    ]  # fmt: skip
    found, precisions = agreement(in_codes(graph, tmp_path, feeds), feeds)
    assert found >= BAR_DB
    assert precisions <= {"u8", "i8"} or name in IN_FLOAT


@pytest.mark.parametrize("source", of_inputs.SOURCES)
@pytest.mark.parametrize("window", ["SAME", "VALID"])
def test_inputs_with_a_sign_and_bytes(source, window, tmp_path):
    graph = of_inputs.net(source, "conv", window)
    feeds = [of_inputs.feeds_of(graph, batch) for batch in (1, 4)]
    found, precisions = agreement(in_codes(graph, tmp_path, feeds), feeds)
    assert found >= BAR_DB
    assert precisions in ({"u8"}, {"i8"})  # with AMX, OpenVINO subtracts the zero point first


def reduced(op: str, low: float = 0.0):
    """Return a MatMul in 8 bits that reads the largest or smallest of floats."""

    def make():
        y = getattr(tf, op)(image((None, 9, C)), 1)
        layer("matmul", y, "dense", 5)

    return net(make, outputs=("dense/biased",))


def attention() -> Graph:
    """Return a convolution of the largest and the mean of all channels, joined."""

    def make():
        x = image()
        y = [tf.reduce_max(x, -1, keepdims=True), tf.reduce_mean(x, -1, keepdims=True)]
        layer("conv", tf.concat(y, -1), "dense", 5)

    return net(make, outputs=("dense/biased",))


def signed_maximum() -> Graph:
    """Return the maximum of what an 8-bit layer makes with a sign, read by another one."""

    def make():
        y = tf.reduce_max(layer("conv", image(), "first"), 2, keepdims=True)
        layer("conv", y, "dense", 5)

    return net(make, outputs=("dense/biased",))


def scaled() -> Graph:
    def make():
        layer("matmul", image((None, C)) * random(C, seed=2), "dense", 5)

    return net(make, outputs=("dense/biased",))


def cut_off() -> Graph:
    def make():
        layer("matmul", tf.nn.relu6(image((None, C))), "dense", 5)

    return net(make, outputs=("dense/biased",))


MISFUSED = {
    "max": (lambda: reduced("reduce_max"), 0.0),
    "signed max": (lambda: reduced("reduce_max"), -1.0),
    "min": (lambda: reduced("reduce_min"), 0.0),
    "joined": (attention, 0.0),
    "max in 8 bits": (signed_maximum, 0.0),
    "scaled": (scaled, -1.0),
    "cut off": (cut_off, 0.0),
}


@pytest.mark.parametrize("name", MISFUSED)
def test_roundings_are_not_fused_where_that_is_wrong(name, tmp_path, monkeypatch):
    make, low = MISFUSED[name]
    graph = make()
    feeds = [feeds_of(graph, batch, low) for batch in (1, 3)]
    codes = in_codes(graph, tmp_path, feeds)
    found, precisions = agreement(codes, feeds)
    assert found >= BAR_DB
    assert precisions == {"u8"}
    back, static = (
        transform(codes, "quantize_static(isa=auto)"),
        transform(graph, f'quantize_static(ranges="{tmp_path}/net.ranges.json", isa=auto)'),
    )
    assert ops(back) == ops(static)
    monkeypatch.setattr("deploykit.transforms.quantize_codes.is_misfused", lambda *_: False)
    wrong = in_codes(graph, tmp_path, feeds)
    assert len(wrong) < len(codes)


@pytest.mark.parametrize(("op", "expected"), [("reduce_max", True), ("reduce_mean", False)])
def test_what_is_misfused(op, expected):
    graph = reduced(op)
    assert openvino_workarounds.is_misfused(graph, graph["dense"].inputs[0]) == expected


def test_a_layer_before_a_cut_is_no_input():
    """Rounding what a convolution with Relu6 gives is part of its kernel, and stays so."""

    def make():
        y = tf.nn.relu6(layer("conv", image(), "first"), name="six")
        layer("conv", y, "out")

    graph = net(make, outputs=("out/biased",))
    assert not openvino_workarounds.is_misfused(graph, "six")


def behind_relu() -> Graph:
    def make():
        y = relu(layer("conv", image(), "first"))
        tf.identity(tf.reduce_max(y, [1, 2]), name="out")

    return net(make)


def test_a_maximum_of_codes_is_one(tmp_path):
    graph = behind_relu()
    feeds = [feeds_of(graph, batch) for batch in (1, 3)]
    found, _ = agreement(in_codes(graph, tmp_path, feeds), feeds)
    assert found >= BAR_DB
