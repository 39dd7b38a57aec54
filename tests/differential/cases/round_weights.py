"""Large float constants are rounded: to other values than there, within a step of theirs."""

import numpy as np

from tests.differential.case import Case, Refusal, error_of
from tests.differential.cases.quantize_weights import layers, sum_with
from tests.differential.graphs import fashion_tf1
from tests.support import random

NAME = "round_weights"


def steps(count: int, layers: int = 1) -> dict:
    """Return what a case allows whose weights take so many values: a step, for each layer."""
    return {"deviations": ("zero and both ends stay",), "tolerance": 2.1 * layers / (count - 1)}


CASES = [
    Case("15 values", sum_with(random(15)), NAME),
    Case("16 values", sum_with(random(16)), NAME, **steps(256)),
    Case("many", sum_with(random(40, 30)), NAME, **steps(256)),
    Case("few steps", sum_with(random(40, 30)), f"{NAME}(num_steps=16)", **steps(16)),
    Case("more steps than values", sum_with(random(100)), f"{NAME}(num_steps=4096)", **steps(4096)),
    Case("all positive", sum_with(random(100, low=0.5)), NAME, **steps(256)),
    Case("layers", layers, NAME, **steps(256, 3)),
    Case("whole numbers", sum_with(np.arange(100, dtype=np.int32)), NAME),
    Case("float64", sum_with(random(100).astype(np.float64)), NAME),
    Case("frozen Fashion, TF1", fashion_tf1, NAME, **steps(256)),
    Refusal("num_steps is no number", layers, f"{NAME}(num_steps=few)",
            "Couldn't interpret the num_steps argument as a number:few",
            error_of("parameter-value", name="num_steps", got="few")),
]  # fmt: skip
