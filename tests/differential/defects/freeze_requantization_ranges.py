"""Logs that the original reads into ranges that do not run."""

import math

from deploykit.transforms.ir.graph import Graph
from tests.differential.cases.freeze_requantization_ranges import (
    LOG,
    log,
    quantized,
    record,
)
from tests.differential.defects.defect import Defect
from tests.differential.judging import does_not_run, gives, makes, refuses

FREEZE = "freeze_requantization_ranges"


def frozen(graph: Graph) -> tuple[float, ...]:
    return tuple(graph[f"range/frozen_{end}"].value.item() for end in ("min", "max"))


DEFECTS = [
    Defect(FREEZE, "a range above zero", quantized(), f"{FREEZE}({LOG})",
           "freezes it unchanged: the graph does not run", does_not_run("cannot run"),
           "lets it start at zero", gives(lambda before, after: frozen(after) == (0.0, 1.5)),
           files=log(record(0.5, 1.5))),
    Defect(FREEZE, "a range of NaN", quantized(), f"{FREEZE}({LOG})", "uses it as a range",
           makes(lambda before, after: math.isnan(frozen(after)[0])),
           "skips the line", gives(lambda before, after: frozen(after) == (-1.0, 2.0)),
           files=log(record("nan", "nan"), record(-1, 2))),
    Defect(FREEZE, "percentiles without a range between them", quantized(),
           f"{FREEZE}({LOG}, min_percentile=90, max_percentile=90)",
           "the minimum is above the maximum",
           makes(lambda before, after: frozen(after)[0] > frozen(after)[1]),
           "refuses them", refuses("ranges-log-percentiles", node="range"),
           files=log(*(record(-k - 1.0, -k - 2.0) for k in range(9)))),
]  # fmt: skip
