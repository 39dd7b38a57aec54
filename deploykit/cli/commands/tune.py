"""Find settings with which a model runs faster on this machine."""

import os

import click

from deploykit.benchmarking.feeding import Feeding
from deploykit.benchmarking.tuning.searching import GOALS
from deploykit.benchmarking.tuning.tune_options import TuneOptions
from deploykit.cli import options
from deploykit.cli.options.types import Counts, Finite
from deploykit.freezing.interface import Source
from deploykit.transforms.core.engines.engines import CHOICES, MOST_BATCH


@options.command("Search", requires=("tensorflow",))
@options.part
@options.feeding
@click.option("--batch", type=Counts(MOST_BATCH), default=(), help="Batches to try; the lowest "
              "latency is searched for the smallest [default: 1,8,32 if the model leaves it "
              "open].")  # fmt: skip
@click.option("--engine", type=click.Choice(CHOICES), help="Engine to search "
              "in; auto: whichever is faster for sure, if both are installed [default: the one "
              "that the model was written for, else tensorflow].")  # fmt: skip
@click.option("--goal", type=click.Choice(GOALS), default=TuneOptions.goal,
              show_default=True, help="Whether the recommended settings are for low latency or "
              "high throughput.")  # fmt: skip
@click.option("--latency-limit", type=Finite(above=0), metavar="MS", help="Latency that 99 % of "
              "the calls must keep to, also at the highest throughput.")  # fmt: skip
@click.option("--budget", type=Finite(above=0), default=TuneOptions.budget, show_default=True,
              metavar="MINUTES", help="How long the whole search may take.")  # fmt: skip
@options.output("tuned", ".json")
@options.limits
@options.everywhere
def tune(
    source: Source,
    feeding: Feeding,
    batch: tuple[int, ...],
    engine: str | None,
    goal: str,
    latency_limit: float | None,
    budget: float,
    output: str,
    force: bool,
    as_json: bool,
) -> None:
    """Find settings with which a model runs faster on this machine.

    It tries threads, oneDNN, whether the calling thread does a share of oneDNN's work, whether the
    C library keeps freed memory, batches, and calls at the same time: for the lowest median latency
    and for the most items a second. Settings that the environment has already stay as they are. At
    the end, the best settings, and the same without one of their changes, take turns with
    TensorFlow's defaults: the figures shown are of this comparison, and only what is faster for
    sure is recommended, with as few changes as it takes.

    `deploykit benchmark --tuned` takes the file. After Ctrl-C, the same command continues the
    search.

    In OpenVINO it tries threads, streams (a stream for each call at the same time), the memory and
    batches; the answers of OpenVINO are compared with those of TensorFlow first.
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
        engine=engine,
        goal=goal,
        latency_limit=latency_limit,
        budget=budget,
    )
    report.of(found.model)
    report.bytes_out = None if output == "-" else os.path.getsize(output)
    report.more, report.fed = found.document(), found.fed
    show(report, as_json, text=lines(found, output))
