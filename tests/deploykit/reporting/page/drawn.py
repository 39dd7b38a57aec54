"""Documents with made-up figures that can be drawn, and names of any kind."""

from typing import Any

import numpy as np

from tests.deploykit.benchmarking.made_up_results import result
from tests.deploykit.reporting.charts import made_up_charts as made_up
from tests.deploykit.reporting.page.samples import accuracy, sample


def leaf(path: str) -> float:
    return 0.25


def documents(seed: int) -> list[dict[str, Any]]:
    """Return a benchmark with profiles, a load test, a quantized model, an accuracy."""
    rng = np.random.default_rng(seed)
    benchmark = result(*made_up.measurements(rng)).document()
    for each in benchmark["measurements"][:2]:
        each["profile"] = made_up.a_profile(rng)
    found = [
        benchmark,
        sample("load-test", leaf) | made_up.a_load_test(rng),
        sample("quantize", leaf) | made_up.a_quantized(rng),
        accuracy(leaf) | made_up.an_accuracy(rng),
    ]
    for model in found[-1]["models"]:
        model["name"] = model["name"][:20]  # a longer word in a heading would widen the page
    return found
