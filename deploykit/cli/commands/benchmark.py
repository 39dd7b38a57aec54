"""Measure how fast models are."""

import json

import click

from deploykit.benchmarking.feeding import Feeding
from deploykit.benchmarking.scenarios.timing import Timing
from deploykit.benchmarking.sweep import Sweep
from deploykit.cli import options
from deploykit.cli.options.types import PathName, TextOutput, Whole
from deploykit.freezing.interface import Interface, Source
from deploykit.input.piping import Piping


@options.command(
    "Measuring",
    requires=("tensorflow",),
    examples=(
        "deploykit benchmark fashion.pb optimized.pb --batch 1,32 --duration 5",
        "deploykit benchmark fashion.pb --runs 50 --profile --top 5",
        "deploykit benchmark fashion.pb --scenario server --rate 200 --latency-limit 15",
    ),
)
@click.argument("models", type=PathName(), metavar="MODEL...", nargs=-1, required=True)
@options.interface
@options.feeding_or_files
@options.sweep
@options.piping
@options.timing
@click.option("--profile", is_flag=True, help="Also trace some calls: time, memory and operations "
              "by op and by node, compared with the machine's peak.")  # fmt: skip
@click.option("--top", type=Whole(0), default=10, show_default=True, metavar="N",
              help="How many nodes a profile lists.")  # fmt: skip
@options.results(
    options.output_option("--csv", "csv_file", type=TextOutput("FILE"), help="Write a line of "
                          "figures for each measurement; - is standard output."),
    options.output_option("--plot", "plot_file", type=PathName("FILE.png|svg"),
                 help="Draw latencies, throughput and batches."),
    options.output_option("--trace", "trace_file", type=TextOutput("FILE.json"),
                          help="Profile, and write a call of each model as a trace for "
                          "chrome://tracing or ui.perfetto.dev; - is standard output."),
)  # fmt: skip
@options.limits
@options.everywhere
def benchmark(
    models: tuple[str, ...],
    interface: Interface,
    feeding: Feeding,
    sweep: Sweep,
    piping: Piping,
    timing: Timing,
    csv_file: str | None,
    plot_file: str | None,
    profile: bool,
    top: int,
    trace_file: str | None,
    output: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Measure how fast models run, with one or several settings.

    Every model with every combination of settings gets several sessions, which take turns of some
    15 milliseconds in random order, so that whatever else the machine does hits all of them alike.
    Models with the same threads and environment share processes. Each is warmed up until its
    latencies are steady. It ends early once every comparison is decided.

    Each model is compared with the first one that has the same batch. It is "faster" if the wall
    clock says so, and "slower" if the wall clock or the CPU time of a call says so; otherwise there
    is "no difference" above so many percent, or the comparison is "undecided" and it says why.

    With --data DIR, files are read while the model runs: by Python, through queues and through
    tf.data, one after another. For each, the rates of reading alone and of computing alone are
    shown, and which of them is the limit.

    With --scenario, each model and setting is measured alone for --duration, as MLPerf does: single
    (one call after another; its figure is the 90th percentile of latencies), offline (all samples;
    samples a second), or server (calls arrive at random, --rate a second, and latencies count from
    when a call was due; the 99th percentile). It is said whether that is valid, and why not.

    Ctrl-C ends the rounds early: what was measured until then is written and shown.
    """
    import deploykit
    from deploykit.benchmarking.profiling.profile_tables import profile_tables
    from deploykit.benchmarking.tables import csv_lines, tables
    from deploykit.cli.report import Report, show
    from deploykit.input.input_result import InputResult
    from deploykit.storage.files import write
    from deploykit.text.results.input_styles import lines

    named = {"--csv": csv_file, "--plot": plot_file, "--trace": trace_file}
    if piping.reads_files(feeding.data, sweep.input):
        for option, path in named.items():
            if path is not None:
                raise click.UsageError(f"{option} does not go with data that are read from files")
    files = [path for path in (output, *named.values()) if path is not None]
    for path in (*models, *files):
        if (*models, *files).count(path) > 1:
            raise click.UsageError(f"{path} is given more than once")
    if plot_file is not None:
        from deploykit.reporting.plots import check_plot, plot

        check_plot(plot_file)
    report = Report("benchmark", models[0])
    found = deploykit.benchmark(
        [Source.of(model, interface) for model in models],
        sweep,
        feeding=feeding,
        piping=piping,
        timing=timing,
        profile=profile or trace_file is not None,
    )
    report.more, report.fed = found.document(), found.fed
    if isinstance(found, InputResult):
        report.of(found.model)
        show(report, as_json, text=lines(found), output=output, force=force)
    else:
        report.of(found.models[models[0]])
        text = tables(found)
        for name, each in found.profiles.items():
            text += ["", f"{name}:", *profile_tables(each, top)]
        show(report, as_json, text=text, output=output, force=force)
        if csv_file is not None:
            write(csv_file, [f"{line}\n".encode() for line in csv_lines(found)], force)
        if plot_file is not None:
            write(plot_file, [plot(found, plot_file)], force)
        if trace_file is not None and found.profiles:
            from deploykit.benchmarking.profiling.trace import trace

            calls = {name: each.events for name, each in found.profiles.items()}
            write(trace_file, [json.dumps(trace(calls)).encode()], force)
    if found.interrupted:
        raise KeyboardInterrupt
