"""Run the standard transforms on a model, put it in 8 bits, and verify the result."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from deploykit.cli import options
from deploykit.cli.comparison import Comparison
from deploykit.cli.options.types import Finite, Threads
from deploykit.freezing.interface import Source
from deploykit.transforms.core.int8.isa import ISAS

if TYPE_CHECKING:
    from deploykit.transforms.core.graph import Graph
    from deploykit.transforms.core.tensors import Array

logger = logging.getLogger("deploykit")

MODES = ("auto", "static", "weights", "nodes")
_HINT = (
    "with --calibration DATA, layers compute in 8 bits too, 1.5 to 2 times as fast as in "
    "float on most image networks"
)
_STATIC = ("evaluation", "metric", "max_drop", "keep_float", "isa", "batch", "threads", "budget")
_OTHERS = ("minimum_size", "skip", "data", "input_range")


@click.command()
@options.source
@options.output("quantized")
@click.option("--mode", type=click.Choice(MODES), default="auto", show_default=True,
              help="static: compute in 8 bits with calibrated ranges; weights: store weights in 8 "
              "bits, compute in float; nodes: as the Graph Transform Tool did; auto: static with "
              "--calibration, else weights.")  # fmt: skip
@click.option("--calibration", metavar="DATA", help="static: 64 samples or more like those of real "
              "use, as a .npz file of arrays by input name or a folder of TFRecords, images or CSV "
              "files; every fourth sample is held out.")  # fmt: skip
@click.option("--eval", "evaluation", metavar="DATA", help="static: samples with labels, to "
              "take the metric on.")  # fmt: skip
@click.option("--metric", default="top1", show_default=True, metavar="NAME|MODULE:FUNCTION",
              help="static: what --max-drop holds for; top1, top5, mae, or a function of outputs "
              "by name and labels.")  # fmt: skip
@click.option("--max-drop", type=Finite(min=0), default=0.01, show_default=True,
              help="static: how much the metric may fall.")  # fmt: skip
@click.option("--min-sqnr", type=Finite(), metavar="DB", help="Refuse a result whose outputs are "
              "noisier; static keeps layers float until they are not [default: 15, static "
              "24].")  # fmt: skip
@click.option("--keep-float", metavar="NODE", multiple=True,
              help="static: keep this layer float; may be repeated.")  # fmt: skip
@click.option("--isa", type=click.Choice(ISAS), default="auto", show_default=True,
              help="static: instruction set to be exact on; auto is this machine's.")  # fmt: skip
@click.option("--batch", type=click.IntRange(min=1), metavar="N",
              help="static: samples at once to be fast for [default: 1].")  # fmt: skip
@click.option("--threads", type=Threads(), default=(), metavar="AxB",
              help="static: threads inside an op x ops at once to be fast for.")  # fmt: skip
@click.option("--budget", type=Finite(min=0, min_open=True), default=4, show_default=True,
              metavar="MINUTES", help="static: when the search is to end.")  # fmt: skip
@click.option("--minimum-size", type=click.IntRange(min=1), default=1024, show_default=True,
              help="weights: those with fewer elements stay float.")  # fmt: skip
@click.option("--skip", metavar="NODE", multiple=True, help="weights: keep this constant float; "
              "may be repeated.")  # fmt: skip
@options.comparison
@options.limits
@options.everywhere
def quantize(
    source: Source,
    output: str,
    force: bool,
    mode: str,
    calibration: str | None,
    evaluation: str | None,
    metric: str,
    max_drop: float,
    min_sqnr: float | None,
    keep_float: tuple[str, ...],
    isa: str,
    batch: int | None,
    threads: tuple[tuple[int, int], ...],
    budget: float,
    minimum_size: int,
    skip: tuple[str, ...],
    comparison: Comparison,
    as_json: bool,
) -> None:
    """Optimize a model and put it in 8 bits.

    With --calibration, layers compute in 8 bits: the noisiest are turned back to float until the
    answers hold, then those that are no faster; and if the whole is no faster, the optimized float
    graph is written. Without, weights alone are stored in 8 bits: the file shrinks to about a
    quarter, and the speed stays as it is.

    The result is compared with the original before it is written. After Ctrl-C, the same command
    goes on.
    """
    from deploykit.cli.report import Report, show
    from deploykit.cli.rewrite_job import rewrite
    from deploykit.freezing.open_model import open_model
    from deploykit.rewriting.advice import SLOW
    from deploykit.rewriting.pipelines import quantize_string
    from deploykit.verification.verify import QUANTIZED_BAR_DB

    if mode == "auto":
        mode = "static" if calibration else "weights"
    if mode == "static" and calibration is None:
        raise click.UsageError("--mode static needs --calibration DATA")
    if mode != "static" and calibration is not None:
        raise click.UsageError(f"--calibration is for --mode static, not {mode}")
    if calibration is None:
        _refuse_given(_STATIC, "needs --calibration DATA")
    else:
        _refuse_given(_OTHERS, "is for quantizing without --calibration")
    if calibration is not None and evaluation is None:
        _refuse_given(("metric", "max_drop"), "needs --eval DATA")
    if len(threads) > 1:
        raise click.UsageError("--threads takes one pair here, such as 2x1")
    report = Report("quantize", source.model)
    graph = open_model(source).frozen
    if calibration is None:
        bar = QUANTIZED_BAR_DB if min_sqnr is None else min_sqnr
        steps = quantize_string(minimum_size, skip, nodes=mode == "nodes")
        rewrite(report, graph, steps, output, force=force,
                comparison=replace(comparison, min_sqnr=bar))  # fmt: skip
        show(report, as_json)
        if not as_json:
            logger.info(_HINT if mode == "weights" else SLOW)
        return
    from deploykit.benchmarking.settings import Settings
    from deploykit.cli.report import files_table
    from deploykit.freezing.graph_files import save_graph
    from deploykit.quantization.keep_float import MIN_SQNR_DB
    from deploykit.quantization.preconditions import refuse_quantized
    from deploykit.quantization.search import Quantization, quantize_calibrated
    from deploykit.rewriting.transform import optimize
    from deploykit.text.progress import working
    from deploykit.transforms.core.checks.side_effects import refuse_side_effects

    refuse_quantized(graph)
    refuse_side_effects(graph, comparison.allowed_ops)
    report.of(graph)
    if min_sqnr is None:
        min_sqnr = MIN_SQNR_DB if evaluation is None else QUANTIZED_BAR_DB
    settings = Settings(batch=batch, threads=threads[0] if threads else None)
    requested = Quantization(isa, keep_float, min_sqnr, metric, max_drop, settings, budget)
    data = _read(calibration, graph, comparison.preprocess)
    labelled = None if evaluation is None else _read(evaluation, graph, comparison.preprocess)
    with working("quantize") as advance:
        found = quantize_calibrated(
            optimize(graph), data, requested,
            evaluation=labelled, state=f"{output}.state", advance=advance,
        )  # fmt: skip
    report.bytes_out = save_graph(found.graph, output, force=force)
    report.output_file, report.nodes_out = output, len(found.graph)
    report.more = found.document()
    show(report, as_json, text=[files_table(report), *found.lines()])


def _refuse_given(names: tuple[str, ...], why: str) -> None:
    """Raise UsageError where one of these options was given, as it would do nothing."""
    context = click.get_current_context()
    for parameter in context.command.params:
        source = context.get_parameter_source(str(parameter.name))
        if parameter.name in names and source is not ParameterSource.DEFAULT:
            raise click.UsageError(f"{parameter.opts[0]} {why}")


def _read(path: str, graph: "Graph", preprocess: str | None) -> "Mapping[str, Array]":
    """Return arrays by name. GraphError, with the file: they do not fit the graph's inputs."""
    from deploykit.input.samples import load_samples
    from deploykit.quantization.preconditions import refuse_gaps
    from deploykit.storage.files import naming
    from deploykit.verification.sample_inputs import feeds_from

    data = load_samples(path, graph, preprocess)
    with naming(path):
        feeds_from(graph, data)
        refuse_gaps(graph, data)
    return data
