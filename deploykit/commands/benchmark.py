"""Measure how fast models are."""

import json

import click

from deploykit import options
from deploykit.benchmarking.settings import Sweep
from deploykit.interface import Interface
from deploykit.option_types import Finite


@click.command()
@click.argument("models", metavar="MODEL...", nargs=-1, required=True)
@options.interface
@options.feeding
@options.sweep
@click.option("--duration", type=Finite(min=0, min_open=True), default=10,
              show_default=True, metavar="SECONDS", help="How long each is measured.")  # fmt: skip
@click.option("--runs", type=click.IntRange(min=1), metavar="N", help="How many calls instead.")
@click.option("--csv", "csv_file", metavar="FILE", help="Write one line of figures for each.")
@click.option("--plot", "plot_file", metavar="FILE.png|svg",
              help="Draw latencies, throughput and batches.")  # fmt: skip
@click.option("--profile", is_flag=True, help="Then trace some calls of each: time, memory and "
              "operations by op and node, against the machine's peak.")  # fmt: skip
@click.option("--top", type=click.IntRange(min=0), default=10,
              show_default=True, metavar="N", help="Nodes that a profile lists.")  # fmt: skip
@click.option("--trace", "trace_file", metavar="FILE.json", help="Profile, and write a call of "
              "each as a trace for chrome://tracing or ui.perfetto.dev.")  # fmt: skip
@options.result_file
@options.limits
@options.everywhere
def benchmark(
    models: tuple[str, ...],
    interface: Interface,
    feeding: options.Feeding,
    sweep: Sweep,
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

    Ctrl-C ends the rounds early: what was measured is written and shown.
    """
    from deploykit.benchmarking.measuring import benchmark
    from deploykit.benchmarking.profile_tables import profile_tables
    from deploykit.benchmarking.profiling import RUNS
    from deploykit.benchmarking.tables import csv_lines, tables
    from deploykit.files import check_output, write
    from deploykit.report import Report, progress, show
    from transforms.core.side_effects import refuse_side_effects

    files = [path for path in (output, csv_file, plot_file, trace_file) if path is not None]
    for path in (*models, *files):
        if (*models, *files).count(path) > 1:
            raise click.UsageError(f"{path} is given more than once")
    for path in files:
        for model in models:
            check_output(path, force, model)
    if plot_file is not None:
        from deploykit.reporting.plots import check_plot, plot

        check_plot(plot_file)
    report = Report("benchmark", models[0])
    graphs = {model: interface.open(model) for model in models}
    for graph in graphs.values():
        refuse_side_effects(graph, feeding.allowed_ops)
    report.of(graphs[models[0]])
    with progress("benchmark") as advance:
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
        from deploykit.benchmarking.trace import trace

        calls = {name: each.events for name, each in result.profiles.items()}
        write(trace_file, [json.dumps(trace(calls)).encode()], force)
    if result.interrupted:
        raise KeyboardInterrupt
