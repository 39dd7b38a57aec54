"""Weights that the original rounds wrongly."""

import numpy as np

from deploykit.transforms.ir.graph import Graph
from tests.differential.cases.quantize_weights import sum_with
from tests.differential.defects.defect import Defect
from tests.differential.defects.quantize_weights import constant_is_output, with_one
from tests.differential.judging import gives, keeps, makes, refuses, stays
from tests.support import random

ROUND = "round_weights"
WEIGHTS = random(40, 30)
ZEROS = np.maximum(WEIGHTS, 0)
NEGATIVE = -random(100, low=0.5)


def values(graph: Graph) -> np.ndarray:
    return graph["w"].value


def half_zeros(before: Graph, after: Graph) -> bool:
    return bool((values(after)[values(before) == 0] == 0).all())


def within(before: Graph, after: Graph) -> bool:
    """Return whether the values lie in the range that they had."""
    return bool(values(before).min() <= values(after).min()
                and values(after).max() <= values(before).max())  # fmt: skip


def closer(before: Graph, after: Graph) -> bool:
    """Return whether no value is farther than half of a step between 256 values."""
    step = np.ptp(values(before)) / 255
    return bool(np.abs(values(after) - values(before)).max() <= step / 2 * 1.001)


DEFECTS = [
    Defect(ROUND, "num_steps=16", sum_with(WEIGHTS), f"{ROUND}(num_steps=16)",
           "leaves 17 values", makes(lambda before, after: len(np.unique(values(after))) == 17),
           "leaves 16", gives(lambda before, after: len(np.unique(values(after))) == 16)),
    Defect(ROUND, "the largest weight", sum_with(WEIGHTS), f"{ROUND}(num_steps=16)",
           "moves up, above the range",
           makes(lambda before, after: not within(before, after)), "stays in the range",
           gives(within)),
    Defect(ROUND, "weights of zero", sum_with(ZEROS), ROUND, "are no longer zero",
           makes(lambda before, after: not half_zeros(before, after)), "stay", gives(half_zeros)),
    Defect(ROUND, "only zeros", sum_with(np.zeros(64, np.float32)), ROUND, "become 2.3e-41",
           makes(lambda before, after: bool((values(after) != 0).all())), "stay",
           keeps(Const=1)),
    Defect(ROUND, "only weights below zero", sum_with(NEGATIVE), ROUND,
           "are rounded in steps up to zero, twice as wide",
           makes(lambda before, after: not closer(before, after)),
           "are rounded in steps of their own range", gives(closer)),
    Defect(ROUND, "num_steps=0", sum_with(WEIGHTS), f"{ROUND}(num_steps=0)",
           "all weights become infinite or NaN",
           makes(lambda before, after: not np.isfinite(values(after)).any()), "refuses it",
           refuses("out-of-range", name="num_steps", got=0)),
    Defect(ROUND, "a constant that is an output", constant_is_output, ROUND, "changes",
           makes(lambda before, after: bool((values(after) != values(before)).any())),
           "skips it with a reason", stays()),
    Defect(ROUND, "weights with an infinity", with_one(np.inf), ROUND,
           "all of them become NaN or infinite",
           makes(lambda before, after: not np.isfinite(values(after)).any()),
           "skips them with a reason",
           gives(lambda before, after: bool(after.skipped) and values(after) is not None)),
]  # fmt: skip
