"""Rounded weights of a layer: no pair of them saturates, and what cannot be rounded is near."""

import numpy as np
import pytest

from deploykit.transforms.int8 import gptq
from deploykit.transforms.int8.gptq import InputMoments
from deploykit.transforms.int8.weights import restored, rounded_weights, saturates, weight_codes
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType


def product(transposed: bool = False) -> Node:
    return Node("layer", "MatMul", ("x", "w")).with_attrs(
        T=DType("float32"), transpose_a=False, transpose_b=transposed
    )


@pytest.mark.parametrize("channels", [6, 7, 9])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("exact_sums", [False, True])
def test_of_products_in_parts(monkeypatch, channels, transposed, exact_sums):
    monkeypatch.setattr(gptq, "LARGEST", 4)
    random = np.random.default_rng(channels)
    rows = (random.normal(size=(200, 2)) @ random.normal(size=(2, channels))).astype(np.float32)
    weights = random.normal(size=(channels, 5)).astype(np.float32)
    given = np.ascontiguousarray(weights.T) if transposed else weights
    layer = product(transposed)
    moments = InputMoments.of(layer, given.shape, 1)
    moments.add(rows)
    codes, steps = rounded_weights(layer, given, moments, exact_sums, False)
    assert exact_sums or not saturates(layer, codes)
    floats = restored(layer, codes, steps)
    nearest = restored(layer, *weight_codes(layer, given, exact_sums))
    found, other = (each.T if transposed else each for each in (floats, nearest))
    noise = [np.var(rows @ each - rows @ weights) for each in (found, other)]
    assert noise[0] <= noise[1]


def test_without_rows_the_nearest_codes_are_taken():
    weights = np.random.default_rng(1).normal(size=(6, 5)).astype(np.float32)
    moments = InputMoments.of(product(), weights.shape, 1)
    found = rounded_weights(product(), weights, moments, True, False)
    for ours, nearest in zip(found, weight_codes(product(), weights, True), strict=True):
        assert (ours == nearest).all()
