"""Run the standard transforms on a model, write its weights in 8 bits, and verify the result."""

from dataclasses import replace

import click

from deploykit import options
from deploykit.comparison import Comparison


@click.command()
@options.source
@options.output
@click.option("--minimum-size", type=click.IntRange(min=1), default=1024, show_default=True,
              help="Weights with fewer elements stay float.")  # fmt: skip
@click.option("--skip", metavar="NODE", multiple=True, help="Keep this constant float; may be "
              "repeated.")  # fmt: skip
@click.option("--min-sqnr", type=float, default=15.0, show_default=True, metavar="DB",
              help="Refuse a result whose outputs are noisier than this.")  # fmt: skip
@options.comparison
@options.limits
@options.everywhere
def quantize(
    source: options.Source,
    output: str | None,
    force: bool,
    minimum_size: int,
    skip: tuple[str, ...],
    min_sqnr: float,
    comparison: Comparison,
    as_json: bool,
) -> None:
    """Optimize a model and store weights in 8 bits.

    The result is compared with the original before it is written.

    The file shrinks to about a quarter; the speed stays as it is, because TensorFlow computes with
    the weights in float.
    """
    from deploykit.files import default_output
    from deploykit.report import Report, show
    from deploykit.rewriting import rewrite
    from deploykit.transforming import quantize_string

    report = Report("quantize", source.model)
    graph = source.freeze()
    check = replace(comparison, min_sqnr=min_sqnr)
    target = output or default_output(source.model, "quantized")
    steps = quantize_string(minimum_size, skip)
    show(rewrite(report, graph, steps, target, force=force, comparison=check), as_json)
