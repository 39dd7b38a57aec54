"""A text encoder in each form: its products are layers, and its tokens come in parts."""

from pathlib import Path

import numpy as np
import pytest

import deploykit
from deploykit.pipelines.int8 import int8_graph
from deploykit.pipelines.transform import PREPARE_LAYERS
from deploykit.quantization.calibrated_graph import prepare
from deploykit.quantization.calibration import calibrate
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.runtime.child_process import call
from tests.real import encoder
from tests.support import ops

pytestmark = pytest.mark.sampled

SIZE = encoder.TINY
FED = encoder.texts(4, SIZE)
PRODUCTS = 6  # of each layer: all are int8
BALANCED = 4  # layer norms that products with constant weights read
BAR = 1e-6 * 25  # design: 1e-6 * (5 + depth): two layers of ten steps


@pytest.fixture(scope="module", params=encoder.FORMS)
def net(request, tmp_path_factory) -> Graph:
    folder = tmp_path_factory.mktemp(request.param)
    call("tests.real.encoder:save", request.param, str(folder), SIZE)
    return deploykit.freeze(folder)


def answers(graph: Graph) -> list[np.ndarray]:
    """Return the outputs, by the names of the model."""
    content = b"".join(graph.serialized())
    outputs = sorted(graph.outputs)
    return call("tests.real.encoder:outputs_of", content, outputs, FED)


def test_products_become_layers_and_the_numbers_stay(net):
    frozen = net
    prepared = deploykit.transform(frozen, PREPARE_LAYERS)
    assert ops(prepared)["MatMul"] == PRODUCTS * SIZE.layers
    for old, new in zip(answers(frozen), answers(prepared), strict=True):
        assert np.abs(old - new).max() <= BAR * np.abs(old).max()


def test_layer_norms_and_attention_are_found_in_each_form(net, tmp_path):
    frozen = net
    prepared = deploykit.transform(frozen, PREPARE_LAYERS)
    path = str(tmp_path / "ranges.json")
    Path(path).write_text(calibrate(prepared, [encoder.texts(64, SIZE, 7)]).ranges.text())
    exact = deploykit.transform(
        prepared, f'balance_layer_norms(ranges="{path}") center_contexts(ranges="{path}")'
    )
    balanced = [n for n in exact if n.op == "AddV2" and n.name.endswith("_balanced")]
    centered = [n for n in exact if n.op == "MatMul" and "_centered" in n.data_inputs[0]]
    assert (len(balanced), len(centered)) == (BALANCED, SIZE.layers)
    for old, new in zip(answers(prepared), answers(exact), strict=True):
        assert np.abs(old - new).max() <= BAR * np.abs(old).max()


def test_8_bits_and_parts(net, tmp_path):
    frozen = net
    prepared = deploykit.transform(frozen, PREPARE_LAYERS)
    path = str(tmp_path / "ranges.json")
    shifted, _ = prepare(prepared, [encoder.texts(64, SIZE, 7)], path)
    quantized = int8_graph(shifted, path, isa="avx2")
    assert ops(quantized)["_QuantizedMatMul"] == PRODUCTS * SIZE.layers
    assert ops(quantized)["_MklLayerNorm"] == 1 + 2 * SIZE.layers
    assert {"Erf", "Erfc", "Rsqrt"}.isdisjoint(ops(quantized))
    exact, found = answers(frozen), answers(quantized)
    for old, new in zip(exact, found, strict=True):
        assert 10 * np.log10((old**2).sum() / ((old - new) ** 2).sum()) >= 20
    parts = deploykit.transform(quantized, "split_tokens(tensor=input_ids)")
    assert ops(parts)["_QuantizedMatMul"] == 2 * ops(quantized)["_QuantizedMatMul"]
    for whole, joined in zip(found, answers(parts), strict=True):
        assert np.abs(whole - joined).max() <= BAR * np.abs(whole).max()
