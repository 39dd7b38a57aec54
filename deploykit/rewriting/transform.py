"""Run transforms on a graph: a string of them, the standard set, or the standard set in 8 bits."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deploykit.transforms.core import pipeline
from deploykit.transforms.core.errors import VerificationError
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.protos import GraphDef
from deploykit.transforms.core.tensors import Array
from deploykit.verification.verify import QUANTIZED_BAR_DB, verify

if TYPE_CHECKING:
    from collections.abc import Iterable

logger = logging.getLogger("deploykit")

OPTIMIZE = """
inline_functions
remove_unused_functions
strip_unused_nodes
remove_nodes(op=Identity, op=CheckNumerics, op=StopGradient)
fold_constants(ignore_errors=true)
fold_batch_norms
merge_duplicate_nodes
sort_by_execution_order
"""


@dataclass(frozen=True)
class StepReport:
    """What one transform did: seconds, nodes left, what it left alone and why."""

    transform: str
    seconds: float
    nodes: int
    skipped: tuple[str, ...]


def run_steps(
    graph: Graph,
    transforms: str,
    on_step: Callable[[pipeline.Result, int], object] = lambda result, count: None,
) -> tuple[Graph, list[StepReport]]:
    """Return the graph after the steps of a transform string, and a report of each.

    `on_step` is called after each step with what it did and the number of all steps.
    """
    steps = pipeline.parse(transforms)
    reports = []
    for result in pipeline.run(graph, steps):
        graph = result.graph
        skipped = result.skipped if result.error is None else (result.error, *result.skipped)
        reports.append(StepReport(result.transform, result.seconds, len(graph), skipped))
        on_step(result, len(steps))
    return graph, reports


def quantize_string(
    minimum_size: int = 1024, skip: "Iterable[str]" = (), nodes: bool = False
) -> str:
    """Return the standard set with 8-bit weights; with `nodes`, with TensorFlow's first 8-bit ops.

    Those are what the Graph Transform Tool's quantize_nodes wrote.
    """
    skipped = "".join(f', skip="{name}"' for name in skip)
    more = "quantize_nodes strip_unused_nodes" if nodes else ""
    return (
        f"{OPTIMIZE} quantize_weights(minimum_size={minimum_size}{skipped}) {more} "
        "sort_by_execution_order"
    )


def transform(graph: Graph, transforms: str) -> Graph:
    """Return the graph after a transform string, such as `"fold_constants fold_batch_norms"`.

    PipelineError: the string does not parse. GraphError: a transform cannot be applied.
    """
    return run_steps(graph, transforms)[0]


def optimize(graph: Graph) -> Graph:
    """Return the graph after the standard set of transforms, which keep its numbers."""
    return transform(graph, OPTIMIZE)


def quantize(
    graph: Graph,
    *,
    calibration: Mapping[str, Array] | None = None,
    keep_float: "Iterable[str]" = (),
    minimum_size: int = 1024,
    skip: "Iterable[str]" = (),
    data: Mapping[str, Array] | None = None,
    input_range: tuple[float, float] = (-1.0, 1.0),
    min_sqnr: float | None = None,
) -> Graph:
    """Return the optimized graph in 8 bits, checked against the graph it came from.

    With `calibration`, layers compute in 8 bits where that is right and, on this machine, faster;
    where nothing is, the optimized float graph is returned. This takes a minute or more. Without,
    weights alone are stored in 8 bits, which makes the graph smaller and no faster.

    Args:
        graph: a frozen graph.
        calibration: arrays by input name like those of real use, 64 samples or more; every fourth
            is held out to judge by.
        keep_float: with calibration: names of layers that stay float.
        minimum_size: without: weights with fewer elements stay float.
        skip: without: names of constants that stay float.
        data: without: arrays by input name for the check; default: made up within `input_range`.
        input_range: without: the range of made-up inputs.
        min_sqnr: the bar for the check, in dB; default: 24 with calibration, on the samples that
            are held out, and 15 without.

    VerificationError: the result is below the bar, with calibration below 15 dB. GraphError: the
    arrays do not fit, or lead to NaN or Inf.
    """
    if calibration is not None:
        from deploykit.quantization.keep_float import MIN_SQNR_DB
        from deploykit.quantization.search import Wanted, quantize_calibrated

        bar = MIN_SQNR_DB if min_sqnr is None else min_sqnr
        wanted = Wanted(keep_float=tuple(keep_float), min_sqnr=bar)
        found = quantize_calibrated(optimize(graph), calibration, wanted)
        logger.info("%s", found.reason)
        return found.graph
    bar = QUANTIZED_BAR_DB if min_sqnr is None else min_sqnr
    quantized = transform(graph, quantize_string(minimum_size, skip))
    checked = verify(graph, quantized, data=data, input_range=input_range, min_sqnr=bar)
    if checked.verified and not checked.passed:
        raise VerificationError(checked.reason)
    return quantized


def TransformGraph(
    input_graph_def: GraphDef,
    inputs: list[str],
    outputs: list[str],
    transforms: list[str],
) -> GraphDef:
    """Return a transformed GraphDef: the Graph Transform Tool's Python function, for old code."""
    graph = Graph.from_graph_def(input_graph_def, inputs, outputs)
    return transform(graph, " ".join(transforms)).to_graph_def()
