"""Rounding by output error: never worse than to the nearest, far better for correlated inputs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploykit.transforms.int8 import gptq
from deploykit.transforms.int8.gptq import Lattice, round_channels, round_product


def inputs(random, rows, size, correlation):
    """Return rows of inputs that share a part, of which the first is the largest."""
    shared = random.normal(size=(rows, 2)) @ random.normal(size=(2, size))
    own = random.normal(size=(rows, size))
    return (correlation * shared + (1 - correlation) * own) * np.linspace(3, 0.1, size)


def error(rows, weights, found):
    """Return the squared error of outputs whose mean a bias corrects."""
    outputs = rows @ (found - weights)
    return float(((outputs - outputs.mean(0)) ** 2).mean())


@pytest.mark.sampled
@settings(max_examples=30)
@given(
    seed=st.integers(0, 1000), size=st.sampled_from([1, 3, 9, 64, 65, 150]),
    outputs=st.sampled_from([16, 48]), correlation=st.sampled_from([0.0, 0.5, 0.95]),
)  # fmt: skip
def test_a_product_has_less_output_error_than_with_the_nearest_multiples(
    seed, size, outputs, correlation
):
    random = np.random.default_rng(seed)
    rows = inputs(random, 4 * size + 20, size, correlation)
    weights = random.normal(0, 20, (size, outputs))
    lattice = Lattice(np.full(outputs, 127.0))
    found = round_product(weights, np.cov(rows.T, bias=True).reshape(size, size), lattice)
    nearest = np.clip(np.rint(weights), -127, 127)
    assert (found == np.rint(found)).all()
    assert np.abs(found).max() <= 127
    # Of one output alone, damping may cost more than rounding gains.
    assert error(rows, weights, found) <= 1.01 * error(rows, weights, nearest) + 1e-9
    if correlation > 0.9 and size > 8:
        assert error(rows, weights, found) < 0.5 * error(rows, weights, nearest)


@pytest.mark.parametrize("broken", ["spread", "descent"])
def test_both_passes_count(monkeypatch, broken):
    """Without a pass, the error is larger: the bound above would not hold for less."""
    random = np.random.default_rng(3)
    rows = inputs(random, 600, 100, 0.95)
    weights = random.normal(0, 20, (100, 8))
    moments, lattice = np.cov(rows.T, bias=True), Lattice(np.full(8, 127.0))
    whole = error(rows, weights, round_product(weights, moments, lattice))
    if broken == "descent":
        monkeypatch.setattr(gptq, "_descended", lambda weights, damped, found, lattice: found)
    else:
        monkeypatch.setattr(gptq.np.linalg, "cholesky", lambda array: np.eye(len(array)))
    assert whole < error(rows, weights, round_product(weights, moments, lattice))


def test_pairs_of_one_sign_stay_below_what_sixteen_bits_hold():
    random = np.random.default_rng(5)
    rows = inputs(random, 400, 12, 0.9)
    weights = random.normal(0, 30, (12, 5)).clip(-64, 64)
    partners = np.arange(12) ^ 1
    lattice = Lattice(np.full(5, 64.0), partners, 100)
    found = round_product(weights, np.cov(rows.T, bias=True), lattice)
    pairs = found.reshape(6, 2, 5)
    assert np.maximum(pairs, 0).sum(1).max() <= 100
    assert np.maximum(-pairs, 0).sum(1).max() <= 100
    free = round_product(weights * 2, np.cov(rows.T, bias=True), Lattice(np.full(5, 127.0)))
    assert np.maximum(free.reshape(6, 2, 5), 0).sum(1).max() > 100  # without the limit


def test_channels_that_share_no_inputs():
    random = np.random.default_rng(7)
    rows = np.stack([inputs(random, 300, 9, 0.9) for _ in range(4)])
    weights = random.normal(0, 20, (4, 9, 2))
    moments = np.stack([np.cov(each.T, bias=True) for each in rows])
    found = round_channels(weights, moments, np.full((4, 2), 127.0))
    for channel in range(4):
        nearest = np.rint(weights[channel])
        ours = error(rows[channel], weights[channel], found[channel])
        assert ours < 0.7 * error(rows[channel], weights[channel], nearest)


def test_inputs_that_never_change_are_rounded_to_the_nearest():
    weights = np.array([[1.4], [-2.6]])
    found = round_product(weights, np.zeros((2, 2)), Lattice(np.array([127.0])))
    assert found.tolist() == [[1.0], [-3.0]]
