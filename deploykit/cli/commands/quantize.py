"""Run the standard transforms on a model, put it in 8 bits, and verify the result."""

import logging

import click

from deploykit.api.comparison import Comparison
from deploykit.cli import options
from deploykit.cli.options.types import Finite, PathName, Threads
from deploykit.freezing.interface import Source
from deploykit.quantization.requested import MAX_DROP, MINUTES, MODES, Quantization
from deploykit.transforms.core.int8.isa import ISAS

logger = logging.getLogger("deploykit")

_HINT = (
    "with --calibration DATA, layers compute in 8 bits too, 1.5 to 2 times as fast as in "
    "float on most image networks"
)


@click.command()
@options.source
@options.output("quantized")
@click.option("--mode", type=click.Choice(MODES), default="auto", show_default=True,
              help="static: compute in 8 bits with calibrated ranges; weights: store weights in 8 "
              "bits, compute in float; nodes: as the Graph Transform Tool did; auto: static with "
              "--calibration, else weights.")  # fmt: skip
@click.option("--calibration", type=PathName("DATA"), help="static: 64 samples or more like those "
              "of real use, as a .npz file of arrays by input name or a folder of TFRecords, "
              "images or CSV files; every fourth sample is held out.")  # fmt: skip
@click.option("--eval", "evaluation", type=PathName("DATA"), help="static: samples with labels, to "
              "take the metric on.")  # fmt: skip
@click.option("--metric", default="top1", show_default=True, metavar="NAME|MODULE:FUNCTION",
              help="static: what --max-drop holds for; top1, top5, mae, or a function of outputs "
              "by name and labels.")  # fmt: skip
@click.option("--max-drop", type=Finite(min=0), default=MAX_DROP, show_default=True,
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
@click.option("--budget", type=Finite(min=0, min_open=True), default=MINUTES, show_default=True,
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
    import deploykit
    from deploykit.cli.report import Report, files_table, show
    from deploykit.rewriting.advice import SLOW

    if len(threads) > 1:
        raise click.UsageError("--threads takes one pair here, such as 2x1")
    report = Report("quantize", source.model)
    graph = deploykit.quantize(
        source,
        Quantization(
            mode=mode,
            min_sqnr=min_sqnr,
            metric=metric,
            max_drop=max_drop,
            keep_float=keep_float,
            isa=isa,
            batch=batch,
            threads=threads[0] if threads else None,
            budget=budget,
            minimum_size=minimum_size,
            skip=skip,
        ),
        comparison=comparison,
        calibration=calibration,
        evaluation=evaluation,
        output=output,
        force=force,
    )
    report.rewritten(graph, output)
    if calibration is not None:
        report.more = graph.report.document()
        show(report, as_json, text=[files_table(report), *graph.report.lines()])
        return
    show(report, as_json)
    if not as_json:
        logger.info(SLOW if mode == "nodes" else _HINT)
