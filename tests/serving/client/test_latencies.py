"""Latencies are counted to 0.1 %, and summed up as NumPy does."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from deploykit.serving.client.load_generator import step_of, summary_ms

PERCENTILES = (50, 90, 99, 99.9)


@pytest.mark.sampled
@given(some.floats(0, 3.6e9))
def test_a_step_is_near_the_latency(latency):
    assert step_of(latency) == pytest.approx(max(1, latency), rel=1e-3, abs=0.5)


@given(some.lists(some.lists(some.integers(1, 10_000_000)), max_size=4))
def test_the_summary_of_several_generators(taken):
    found = summary_ms([Counter(map(step_of, each)) for each in taken], PERCENTILES)
    together = [latency for each in taken for latency in each]
    if not together:
        assert found == {}
        return
    expected = np.percentile(together, PERCENTILES, method="inverted_cdf") / 1e3
    assert [found[f"p{p:g}"] for p in PERCENTILES] == pytest.approx(expected, rel=1e-3)
    assert found["mean"] == pytest.approx(np.mean(together) / 1e3, rel=1e-3, abs=1e-3)
    assert found["max"] == pytest.approx(max(together) / 1e3, rel=1e-3)
