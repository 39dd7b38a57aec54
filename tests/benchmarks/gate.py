"""Whether the gate finds what is planted beside two processes that use all CPUs.

Pairs of equal chains of convolutions must not fail; candidates with 10 % more must not pass.
"""

import sys
from collections import Counter

import numpy as np

import deploykit as api
from deploykit.gating.verdict import FAIL, INCONCLUSIVE, PASS
from tests.benchmarks.figures import Figure
from tests.benchmarks.judge import CHANNELS, HOGS, LENGTH, SIZE, beside, chain

PLANTED = (0.0, 0.10)
PAIRS, BUDGET, LIMIT = 10, 80.0, 0.03
SAMPLES = np.random.default_rng(0).normal(size=(20, SIZE, SIZE, CHANNELS)).astype(np.float32)


def figures(pairs: int = PAIRS, budget: float = BUDGET) -> list[Figure]:
    """Run the gate on pairs of each kind, and count the verdicts on latency."""
    found = []
    with beside(HOGS):
        for planted in PLANTED:
            verdicts = Counter(latency_verdict(planted, budget) for _ in range(pairs))
            print(f"{100 * planted:g} % planted: {dict(verdicts)}", file=sys.stderr)
            wrong = FAIL if not planted else PASS
            name = f"{pairs} pairs, {100 * planted:g} % planted"
            found.append(Figure(f"{name}: wrong", "", [verdicts[wrong]], at_most=0))
            right = PASS if not planted else FAIL
            found.append(Figure(f"{name}: right", "", [verdicts[right]]))
            found.append(Figure(f"{name}: inconclusive", "", [verdicts[INCONCLUSIVE]]))
    return found


def latency_verdict(planted: float, budget: float = BUDGET) -> str:
    """Return the verdict on the latency of a chain that is longer by what is planted."""
    result = api.gate(
        chain(LENGTH), chain(round(LENGTH * (1 + planted))), {"x": SAMPLES}, budget=budget,
        max_accuracy_drop=None, max_size_increase=None, max_memory_increase=None,
        max_latency_increase=LIMIT, allow_signature_change=True,  # outputs are named by the length
    )  # fmt: skip
    (check,) = (each for each in result.checks if each.name == "latency p50")
    print(f"{100 * planted:g} %: {check.verdict}: {check.sentence}", file=sys.stderr)
    return check.verdict
