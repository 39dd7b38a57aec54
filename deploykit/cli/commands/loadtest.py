"""Measure how a server bears a load."""

import click

from deploykit.calling.call_options import LoadTestOptions
from deploykit.cli import options
from deploykit.cli.options.types import Counts, Finite, PathName
from deploykit.serving.client.connection import Connection


@click.command("load-test")
@click.argument("address")
@click.argument("model")
@click.option("--data", required=True, type=PathName("DATA"), help="Samples that are sent in turn: "
              "a .npz file of arrays by input name, or a folder of TFRecords, images "
              "or CSV files.")  # fmt: skip
@options.preprocess
@click.option("--batch", type=click.IntRange(min=1), default=LoadTestOptions.batch,
              show_default=True, metavar="N", help="Samples in a call.")  # fmt: skip
@click.option("--signature", metavar="NAME", help="Signature of the model [default: "
              "serving_default, or the only one].")  # fmt: skip
@options.which_version
@click.option("--concurrency", type=Counts(), default=(), help="Callers, each of which waits for "
              "its answer; several numbers are measured in turn [default: 1,2,4,8].")  # fmt: skip
@click.option("--rate", type=Finite(min=0, min_open=True), metavar="CALLS", help="Instead, so many "
              "calls a second, at random times and whether others are answered or "
              "not.")  # fmt: skip
@click.option("--search-latency-limit", "latency_limit_ms", type=Finite(min=0, min_open=True),
              metavar="MS", help="Instead, find the highest rate at which all calls are answered "
              "and 99 % within this.")  # fmt: skip
@click.option("--seconds", type=Finite(min=0, min_open=True), default=LoadTestOptions.seconds,
              show_default=True, metavar="S", help="How long each load lasts.")  # fmt: skip
@click.option("--processes", type=click.IntRange(1, 64), default=LoadTestOptions.processes,
              show_default=True, metavar="N", help="Processes that send the calls, "
              "where one cannot make the load.")  # fmt: skip
@options.connection
@options.results(
    click.option("--plot", "plot_file", type=PathName("FILE.png|svg"),
                 help="Draw latency over throughput."),
)  # fmt: skip
@options.everywhere
def load_test(
    address: str,
    model: str,
    data: str,
    preprocess: str | None,
    batch: int,
    signature: str | None,
    version: int | None,
    version_label: str,
    concurrency: tuple[int, ...],
    rate: float | None,
    latency_limit_ms: float | None,
    seconds: float,
    processes: int,
    plot_file: str | None,
    connection: Connection,
    output: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Measure how a server bears a load.

    Works with any server of the TensorFlow Serving API. With --rate, a latency counts from when a
    call was due, so a server that stalls is charged for the calls that waited. No call is repeated.

    \b
    deploykit load-test localhost:8500 flowers --data samples.npz --concurrency 1,2,4,8
    deploykit load-test localhost:8500 flowers --data photos/ --search-latency-limit 50
    """  # noqa: D301  click reads the backslash
    import deploykit
    from deploykit.cli.report import Report, show
    from deploykit.reporting.load_plot import plot_loads
    from deploykit.reporting.plots import check_plot
    from deploykit.storage.files import write
    from deploykit.text.loads import load_lines

    if plot_file is not None:
        check_plot(plot_file)
    report = Report("load-test", data, output)
    found = deploykit.load_test(
        address,
        model,
        data,
        connection=connection,
        preprocess=preprocess,
        batch=batch,
        signature=signature,
        version=version,
        version_label=version_label,
        concurrency=concurrency,
        rate=rate,
        latency_limit_ms=latency_limit_ms,
        seconds=seconds,
        processes=processes,
    )
    if plot_file is not None:
        write(plot_file, [plot_loads(found.loads, f"{model} at {address}", plot_file)], force)
    report.inputs, report.outputs = tuple(found.takes.inputs), tuple(found.takes.outputs)
    report.more = found.document()
    show(report, as_json, text=load_lines(report.more), output=output, force=force)
