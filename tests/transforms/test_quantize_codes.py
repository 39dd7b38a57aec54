"""The decisions of quantize_static in plain ops: TensorFlow and OpenVINO get the same numbers."""

from dataclasses import replace

import numpy as np
import pytest

from deploykit.transforms.engines.engine_session import OpenVinoSession
from deploykit.transforms.int8.ranges import TensorRange
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.runtime.differences import compare
from tests.support import assert_golden, ops, run, transform
from tests.transforms.examples import Example
from tests.transforms.int8_nets import calibrated, feeds_of, ranges_of
from tests.transforms.test_quantize_static import one_layer, residual

EQUAL_DB = 40.0  # a code that is rounded the other way here and there; one net's noise is 30 to 45


def in_codes(graph: Graph, path: str, isa: str = "vnni") -> Graph:
    return transform(graph, f'quantize_codes(ranges="{path}", isa={isa})')


@pytest.mark.parametrize("kind", ["conv", "depthwise", "matmul"])
@pytest.mark.parametrize("activation", ["", "Relu"])
def test_tensorflow_and_openvino_compute_codes_alike(kind, activation, tmp_path):
    """With codes for this processor: where sums of pairs saturate, 8-bit kernels need others."""
    graph = one_layer(kind, activation)
    path = calibrated(graph, tmp_path)
    codes = in_codes(graph, path, "auto")
    assert "FakeQuantWithMinMaxVars" in ops(codes)
    feeds = feeds_of(graph, 3)
    emulated = run(codes, feeds)
    static = run(transform(graph, f'quantize_static(ranges="{path}", isa=auto)'), feeds)
    session = OpenVinoSession(b"".join(codes.serialized()))
    for other in (static, session.run(codes.outputs, feeds)):
        assert min(each.sqnr_db for each in compare(emulated, other)) >= EQUAL_DB


@pytest.mark.golden("quantize_codes")
def test_golden(tmp_path):
    """With ranges in whole numbers, which do not depend on the processor that found them."""
    graph, path = residual(), tmp_path / "whole.ranges.json"
    found = ranges_of(graph, [feeds_of(graph, 3)])
    whole = {name: TensorRange(round(r.min), round(r.max)) for name, r in found.tensors.items()}
    path.write_text(replace(found, tensors=whole).text())
    assert_golden(graph, in_codes(graph, str(path)))


def test_weights_are_stored_in_8_bits(tmp_path):
    graph = one_layer("conv", "Relu")
    codes = in_codes(graph, calibrated(graph, tmp_path))
    stored = [node for node in codes if node.op == "Const" and node.attr("dtype") == "int8"]
    assert [np.abs(node.value).max() for node in stored] == [127]


GRAPHS = [
    Example(
        "quantize_codes(ranges={ranges}, isa=avx2)",
        lambda: one_layer("conv", "Relu"),
        bar=0.1,
        low=0.0,
    )
]
