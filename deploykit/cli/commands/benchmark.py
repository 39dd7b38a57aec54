"""Measure how fast models are."""

import json
import os

import click

from deploykit.benchmarking.settings import Sweep
from deploykit.cli import options
from deploykit.cli.options.types import Finite
from deploykit.freezing.interface import Interface


@click.command()
@click.argument("models", metavar="MODEL...", nargs=-1, required=True)
@options.interface
@options.feeding_or_files
@options.sweep
@options.piping
@click.option("--duration", type=Finite(min=0, min_open=True), default=10,
              show_default=True, metavar="SECONDS", help="How long each is measured.")  # fmt: skip
@click.option("--runs", type=click.IntRange(min=1), metavar="N", help="How many calls instead.")
@click.option("--profile", is_flag=True, help="Then trace some calls of each: time, memory and "
              "operations by op and node, against the machine's peak.")  # fmt: skip
@click.option("--top", type=click.IntRange(min=0), default=10,
              show_default=True, metavar="N", help="Nodes that a profile lists.")  # fmt: skip
@options.results(
    click.option("--csv", "csv_file", metavar="FILE", help="Write one line of figures for each."),
    click.option("--plot", "plot_file", metavar="FILE.png|svg",
                 help="Draw latencies, throughput and batches."),
    click.option("--trace", "trace_file", metavar="FILE.json", help="Profile, and write a call of "
                 "each as a trace for chrome://tracing or ui.perfetto.dev."),
)  # fmt: skip
@options.limits
@options.everywhere
def benchmark(
    models: tuple[str, ...],
    interface: Interface,
    feeding: options.Feeding,
    sweep: Sweep,
    piping: options.Piping,
    duration: float,
    runs: int | None,
    csv_file: str | None,
    plot_file: str | None,
    profile: bool,
    top: int,
    trace_file: str | None,
    output: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Measure how fast models are, with which settings.

    Every model with every combination of the settings runs in a process of its own. They have their
    turns in rounds (A B B A ...), so that a drift of the machine hits all alike. Each first runs
    until its latencies are steady. A ratio is of the medians, with a 99 % interval.

    With --data DIR, the model runs behind files that are read as it computes: by Python, through
    queues and through tf.data, in turn. Each is shown with the rates of reading alone and of
    computing alone, and with what limits it.

    Ctrl-C ends the rounds early: what was measured is written and shown.
    """
    if _over_files(feeding.data, sweep, piping):
        unused = {"--runs": runs, "--csv": csv_file, "--plot": plot_file, "--trace": trace_file,
                  "--profile": profile, "--shape": feeding.shapes}  # fmt: skip
        for option, value in unused.items():
            if value:
                raise click.UsageError(f"{option} does not go with data that are read from files")
        _behind_files(models, interface, feeding, sweep, piping, duration, output, force, as_json)
        return
    from deploykit.benchmarking.measuring import benchmark
    from deploykit.benchmarking.profiling.profile_tables import profile_tables
    from deploykit.benchmarking.profiling.traced_calls import RUNS
    from deploykit.benchmarking.tables import csv_lines, tables
    from deploykit.cli.report import Report, show
    from deploykit.freezing.interface import Source
    from deploykit.freezing.open_model import open_model
    from deploykit.storage.files import write
    from deploykit.text.progress import working
    from deploykit.transforms.core.checks.side_effects import refuse_side_effects

    files = [path for path in (output, csv_file, plot_file, trace_file) if path is not None]
    for path in (*models, *files):
        if (*models, *files).count(path) > 1:
            raise click.UsageError(f"{path} is given more than once")
    if plot_file is not None:
        from deploykit.reporting.plots import check_plot, plot

        check_plot(plot_file)
    report = Report("benchmark", models[0])
    graphs = {model: open_model(Source.of(model, interface)).graph for model in models}
    for graph in graphs.values():
        refuse_side_effects(graph, feeding.allowed_ops)
    report.of(graphs[models[0]])
    with working("benchmark") as advance:
        result = benchmark(
            graphs,
            sweep.settings(),
            **feeding.arguments(),
            seconds=duration,
            runs=runs,
            profile_runs=RUNS if profile or trace_file else 0,
            advance=advance,
        )
    report.more = result.document()
    text = tables(result)
    for name, each in result.profiles.items():
        text += ["", f"{name}:", *profile_tables(each, top)]
    show(report, as_json, text=text, output=output, force=force)
    if csv_file is not None:
        write(csv_file, [f"{line}\n".encode() for line in csv_lines(result)], force)
    if plot_file is not None:
        write(plot_file, [plot(result, plot_file)], force)
    if trace_file is not None and result.profiles:
        from deploykit.benchmarking.profiling.trace import trace

        calls = {name: each.events for name, each in result.profiles.items()}
        write(trace_file, [json.dumps(trace(calls)).encode()], force)
    if result.interrupted:
        raise KeyboardInterrupt


def _over_files(data: str | None, sweep: Sweep, piping: options.Piping) -> bool:
    """Say whether data are read while the model computes. UsageError: there are none."""
    from deploykit.benchmarking.settings import INPUTS

    asked = piping.given or sweep.input not in (None, *INPUTS)
    if asked and data is None:
        if sweep.input not in (None, *INPUTS):
            known = ", ".join(map(repr, INPUTS))
            raise click.BadParameter(
                f"'{sweep.input}' is not one of {known}, which are those without --data",
                param_hint="'--input'",
            )
        raise click.UsageError("options of input from files need --data")
    return data is not None and (asked or os.path.isdir(data) or data.endswith(".csv"))


def _behind_files(
    models: tuple[str, ...],
    interface: Interface,
    feeding: options.Feeding,
    sweep: Sweep,
    piping: options.Piping,
    duration: float,
    output: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Measure a model behind each style of input."""
    from deploykit.cli.report import Report, show
    from deploykit.input.input_benchmark import measure_input
    from deploykit.input.pipeline import STYLES
    from deploykit.input.runnable import open_runnable
    from deploykit.input.service import serving
    from deploykit.text.progress import working

    settings = sweep.settings()
    if len(models) > 1 or len(settings) > 1 or settings[0].concurrency > 1:
        raise click.UsageError("input from files is measured with one model and one combination of "
                               "settings at a time")  # fmt: skip
    (model,) = models
    if piping.served and sweep.input != "tfdata":
        raise click.UsageError("a tf.data service feeds tf.data alone; give --input tfdata")
    if piping.for_tfdata and sweep.input not in (None, "all", "tfdata"):
        raise click.UsageError("--cache, --buckets and --private-threads are for --input tfdata")
    if piping.workers is not None and piping.address is not None:
        raise click.UsageError("give either --service or --service-address")
    arguments = piping.arguments()
    report = Report("benchmark", model)
    graph = open_runnable(model, interface, piping.fetches, piping.init, feeding.allowed_ops)
    report.of(graph)
    with (
        serving(piping.workers, piping.address) as address,
        working("benchmark") as advance,
    ):
        result = measure_input(
            graph,
            str(feeding.data),
            STYLES if sweep.input in (None, "all") else (str(sweep.input),),
            batch=settings[0].batch,
            settings=settings[0],
            seconds=duration,
            service=address,
            advance=advance,
            **arguments,
        )
    report.more = result.document()
    show(report, as_json, text=result.lines(), output=output, force=force)
    if result.interrupted:
        raise KeyboardInterrupt
