"""Find settings with which a model runs faster on this machine."""

import click

from deploykit.cli import options
from deploykit.cli.options.types import Counts, Finite
from deploykit.freezing.interface import Interface


@click.command()
@click.argument("model")
@options.interface
@options.feeding
@click.option("--batch", type=Counts(), default=(), help="Samples at once to try; the "
              "lowest latency is sought for the smallest [default: 1,8,32 where the model leaves "
              "it open].")  # fmt: skip
@click.option("--goal", type=click.Choice(("latency", "throughput")), default="latency",
              show_default=True, help="What the recommended settings are for.")  # fmt: skip
@click.option("--latency-limit", type=Finite(min=0, min_open=True), metavar="MS",
              help="What 99 % of the calls must keep to at the highest throughput.")  # fmt: skip
@click.option("--budget", type=Finite(min=0, min_open=True), default=2.8,
              show_default=True, metavar="MINUTES", help="How long all may take.")  # fmt: skip
@options.output("tuned", ".json")
@options.limits
@options.everywhere
def tune(
    model: str,
    interface: Interface,
    feeding: options.Feeding,
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
    from deploykit.benchmarking.tuning.tuning import tune
    from deploykit.cli.report import Report, show
    from deploykit.freezing.interface import Source
    from deploykit.freezing.open_model import open_model
    from deploykit.text.progress import working
    from deploykit.transforms.core.checks.side_effects import refuse_side_effects
    from deploykit.transforms.core.errors import CrashError, LimitError

    report = Report("tune", model, output)
    graph = open_model(Source.of(model, interface)).graph
    refuse_side_effects(graph, feeding.allowed_ops)
    report.of(graph)
    with working("tune") as advance:
        try:
            found = tune(
                model,
                graph,
                batch=batch,
                **feeding.arguments(),
                goal=goal,
                latency_limit=latency_limit,
                minutes=budget,
                state=f"{output}.state",
                advance=advance,
            )
        except CrashError as error:
            raise LimitError(f"{model}: {error}") from None
    report.more = found.document()
    show(report, as_json, text=found.lines(output), output=output, force=force)
