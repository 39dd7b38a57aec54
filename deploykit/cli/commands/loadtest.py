"""Measure how a server handles load."""

import click

from deploykit.calling.call_options import LoadTestOptions
from deploykit.cli import options
from deploykit.cli.options.types import Counts, Finite, PathName, Whole
from deploykit.serving.client.connection import Connection
from deploykit.transforms.core.engines.engines import MOST_BATCH


@options.command(
    "Load",
    name="load-test",
    examples=(
        "deploykit load-test localhost:8500 fashion \\\n"
        "      --data models/fashion/test_1000.npz --concurrency 1,2,4",
        "deploykit load-test localhost:8500 fashion --data photos \\\n"
        "      --preprocess 0..1 --search-latency-limit 50",
    ),
)
@click.argument("address")
@click.argument("model")
@options.data_option("--data", required=True, type=PathName("DATA"), help="Samples to send one "
                     "after another: a .npz file of arrays by input name, a folder of TFRecords, "
                     "images or CSV files, or DIR/NAME where DIR holds records of "
                     "several names.")  # fmt: skip
@options.preprocess
@options.data_option("--batch", type=Whole(1, MOST_BATCH), default=LoadTestOptions.batch,
                     show_default=True,
                     metavar="N", help="Samples in each call.")  # fmt: skip
@options.server_option("--signature", metavar="NAME", help="Signature of the model [default: "
              "serving_default, or the only one].")  # fmt: skip
@options.which_version
@click.option("--concurrency", type=Counts(1 << 16), default=(), help="Number of callers, each "
              "of which waits for its answer before it calls again; several numbers are measured "
              "one after another [default: 1,2,4,8].")  # fmt: skip
@click.option("--rate", type=Finite(above=0), metavar="CALLS", help="Instead, send this many calls "
              "a second at random times, whether earlier ones are answered or not.")  # fmt: skip
@click.option("--search-latency-limit", "latency_limit_ms", type=Finite(above=0), metavar="MS",
              help="Instead, find the highest rate at which all calls are answered, 99 % of them "
              "within this time.")  # fmt: skip
@click.option("--seconds", type=Finite(above=0), default=LoadTestOptions.seconds, show_default=True,
              metavar="S", help="How long each load lasts.")  # fmt: skip
@click.option("--processes", type=Whole(1, 64), default=LoadTestOptions.processes,
              show_default=True, metavar="N", help="Processes that send the calls, up to "
              "64, if one cannot send enough.")  # fmt: skip
@options.connection
@options.results(
    options.output_option("--plot", "plot_file", type=PathName("FILE.png|svg"),
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
    """Measure how a server handles load.

    Works with any server that has the TensorFlow Serving API or, with --protocol v2, the Open
    Inference Protocol (KServe v2). With --rate, the latency of a call
    starts when it should have been sent, so the time for which calls wait behind a stalled server
    counts. No call is repeated.
    """
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
        write(plot_file, [plot_loads(found.document(), plot_file)], force)
    report.inputs, report.outputs = tuple(found.takes.inputs), tuple(found.takes.outputs)
    report.more, report.fed = found.document(), found.fed
    show(report, as_json, text=load_lines(report.more), output=output, force=force)
