"""A second run with the same inputs reads its results, and reports the figures of the first."""

import math
from dataclasses import replace

import numpy as np
import pytest

import deploykit
from deploykit.benchmarking.measurement import Measurement
from deploykit.shipping.figures import of_speed
from deploykit.shipping.request_speed import summed_up
from deploykit.shipping.shipment import AS_IT_CAME, OPTIMIZED
from deploykit.shipping.shipped import Outcome, StageResult
from deploykit.shipping.stage_cache import StageCache
from deploykit.shipping.stages import serving, speed
from tests.deploykit.benchmarking.made_up_results import measurement, result
from tests.support import random


def rounds(measured: Measurement, count: int) -> Measurement:
    """Return the first rounds of a measurement."""
    return replace(
        measured,
        rounds_ms=measured.rounds_ms[:count],
        rounds_seconds=measured.rounds_seconds[:count],
    )


@pytest.mark.parametrize("count", [1, 10])
def test_the_figures_are_those_of_the_first_run(tmp_path, quick, net, monkeypatch, count):
    """With one round, no interval of a speed has an end."""

    def benchmark(shipment):
        ends = measurement(AS_IT_CAME, 6.0), measurement(OPTIMIZED, 2.0, seed=1)
        return Outcome({}, facts=of_speed(result(*(rounds(x, count) for x in ends)), OPTIMIZED))

    def serve(shipment):
        return Outcome({"requests": {"signature": "s", **summed_up([(1.2, 1.0)] * count, "")}})

    for module, function in ((speed, benchmark), (serving, serve)):
        stage = replace(
            getattr(module, function.__name__), run=function, left_out=lambda shipment: ""
        )
        monkeypatch.setattr(module, function.__name__, stage)
    data = {"x": random(16, 32), "labels": np.arange(16) % 8}
    first, second = (
        deploykit.ship(net, tmp_path / "net.ship", evaluation=data, name="net") for _ in range(2)
    )
    assert {stage.stage for stage in second.stages if not stage.kept} == {
        "calibrate", "quantize", "placement", "tune"
    }  # fmt: skip
    assert (first.figures["rate"]["ratio"]["high"] is None) == (count == 1)
    assert second.figures == first.figures
    assert second.verdict == first.verdict
    assert second.facts["measured"] == first.facts["measured"]


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_new_result_is_like_the_one_that_is_read_later(tmp_path, value):
    cache = StageCache(tmp_path)
    cache.place.mkdir()
    ratio = {"value": 1.5, "low": 0.0, "high": value}
    outcome = Outcome({"rounds_ms": [(1.0, value)]}, facts={"rate": {"ratio": ratio}, "n": (1, 2)})
    new = cache.keep("key", StageResult("benchmark", outcome, 1.0))
    read = cache.lookup("benchmark", "key")
    assert new == replace(read, kept=False)
    assert new.outcome.facts["rate"]["ratio"] == {"value": 1.5, "low": 0.0, "high": None}
