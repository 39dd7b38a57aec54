"""The main job on EfficientNet-Lite0 with its ImageNet weights, judged by 20 labelled photos."""

import numpy as np
import pytest

import deploykit
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.runtime.session import Session
from deploykit.verification.verify import verify
from tests.real.everywhere import run_everywhere
from tests.real.leftovers import COMPUTED, leftovers
from tests.support import ops

pytestmark = pytest.mark.sampled


@pytest.fixture(scope="module", params=["model.ckpt", "frozen.pb", "saved_model"])
def frozen(request, efficientnet_lite0) -> Graph:
    return deploykit.freeze(efficientnet_lite0 / request.param, outputs=["probabilities"])


@pytest.fixture(scope="module")
def optimized(frozen) -> Graph:
    return deploykit.optimize(frozen)


@pytest.fixture(scope="module")
def quantized(frozen, photos) -> Graph:
    return deploykit.quantize(frozen, data=photos)


def logits(graph: Graph, photos) -> np.ndarray:
    session = Session(b"".join(graph.serialized()))
    return session.run(["logits"], {"images": photos["images"]})[0]


def test_weights_and_padding_are_right(frozen, photos):
    """17 first answers and 20 of the first five: what the net is known to reach."""
    order = np.argsort(-logits(frozen, photos))
    assert np.sum(order[:, 0] == photos["labels"]) == 17
    assert np.sum(order[:, :5] == photos["labels"][:, np.newaxis]) == 20


def test_every_batch_norm_folds(frozen, optimized):
    before, after = ops(frozen), ops(optimized)
    layers = {"Conv2D": 33, "DepthwiseConv2dNative": 16, "MatMul": 1}
    assert {op: before[op] for op in layers} == layers
    assert before["FusedBatchNormV3"] == 49
    assert {op: after[op] for op in layers} == layers
    assert after["BiasAdd"] == 50
    assert leftovers(optimized) == {COMPUTED: 9}  # residual adds


def test_the_numbers_are_kept(frozen, optimized, photos):
    found = verify(frozen, optimized, data=photos)
    assert found.passed, found
    assert found.accuracy == (0.85, 0.85)


def test_8_bits_give_the_same_answers(frozen, quantized, photos):
    expected, found = (logits(graph, photos) for graph in (frozen, quantized))
    assert np.sum(expected.argmax(1) == found.argmax(1)) >= 19
    noise = 10 * np.log10(np.sum(expected**2) / np.sum((found - expected) ** 2))
    assert noise >= 23


def test_8_bits_are_small(frozen, quantized):
    sizes = [sum(map(len, graph.serialized())) for graph in (frozen, quantized)]
    assert sizes[1] <= 0.27 * sizes[0]


def test_results_run_everywhere(optimized, quantized, photos):
    run_everywhere(optimized, quantized, feeds={"images": photos["images"][:3]})
