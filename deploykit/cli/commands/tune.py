"""Find settings with which a model runs faster on this machine."""

import os

import click

from deploykit.benchmarking.feeding import Feeding
from deploykit.benchmarking.tuning.searching import GOALS
from deploykit.benchmarking.tuning.tune_options import TuneOptions
from deploykit.cli import options
from deploykit.cli.options.types import Counts, Finite
from deploykit.freezing.interface import Source


@click.command()
@options.part
@options.feeding
@click.option("--batch", type=Counts(), default=(), help="Samples at once to try; the "
              "lowest latency is sought for the smallest [default: 1,8,32 where the model leaves "
              "it open].")  # fmt: skip
@click.option("--goal", type=click.Choice(GOALS), default=TuneOptions.goal,
              show_default=True, help="What the recommended settings are for.")  # fmt: skip
@click.option("--latency-limit", type=Finite(min=0, min_open=True), metavar="MS",
              help="What 99 % of the calls must keep to at the highest throughput.")  # fmt: skip
@click.option("--budget", type=Finite(min=0, min_open=True), default=TuneOptions.budget,
              show_default=True, metavar="MINUTES", help="How long all may take.")  # fmt: skip
@options.output("tuned", ".json")
@options.limits
@options.everywhere
def tune(
    source: Source,
    feeding: Feeding,
    batch: tuple[int, ...],
    goal: str,
    latency_limit: float | None,
    budget: float,
    output: str,
    force: bool,
    as_json: bool,
) -> None:
    """Find settings with which a model runs faster on this machine.

    Tried are threads, oneDNN, whether the calling thread takes a share of its work, whether the C
    library keeps freed memory, batches and calls in flight: for the lowest latency (median), and
    for the most items a second. What is set in the environment already is left as it is. The best
    are then measured in turn with TensorFlow's defaults; the figures come from that alone.

    The file can be given to `deploykit benchmark --tuned`. After Ctrl-C, the same command goes on.
    """
    import deploykit
    from deploykit.cli.report import Report, show
    from deploykit.text.results.tuning import lines

    report = Report("tune", source.model, output)
    found = deploykit.tune(
        source,
        feeding=feeding,
        output=output,
        force=force,
        batch=batch,
        goal=goal,
        latency_limit=latency_limit,
        budget=budget,
    )
    report.of(found.model)
    report.bytes_out = None if output == "-" else os.path.getsize(output)
    report.more = found.document()
    show(report, as_json, text=lines(found, output))
