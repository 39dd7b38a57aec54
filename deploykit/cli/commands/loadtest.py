"""Measure how a server bears a load."""

from typing import Any

import click

from deploykit.cli import options
from deploykit.cli.options.types import Counts, Finite
from deploykit.serving.client.connection import Connection


@click.command("load-test")
@click.argument("address")
@click.argument("model")
@click.option("--data", required=True, metavar="DATA", help="Samples that are sent in turn: a .npz "
              "file of arrays by input name, or a folder of TFRecords, images or CSV "
              "files.")  # fmt: skip
@options.preprocess
@click.option("--batch", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
              help="Samples in a call.")  # fmt: skip
@click.option("--signature", metavar="NAME", help="Signature of the model [default: "
              "serving_default, or the only one].")  # fmt: skip
@options.which_version
@click.option("--concurrency", type=Counts(), default=(), help="Callers, each of which waits for "
              "its answer; several numbers are measured in turn [default: 1,2,4,8].")  # fmt: skip
@click.option("--rate", type=Finite(min=0, min_open=True), metavar="CALLS", help="Instead, so many "
              "calls a second, at random times and whether others are answered or "
              "not.")  # fmt: skip
@click.option("--search-latency-limit", "limit_ms", type=Finite(min=0, min_open=True),
              metavar="MS", help="Instead, find the highest rate at which all calls are answered "
              "and 99 % within this.")  # fmt: skip
@click.option("--seconds", type=Finite(min=0, min_open=True), default=10, show_default=True,
              metavar="S", help="How long each load lasts.")  # fmt: skip
@click.option("--processes", type=click.IntRange(1, 64), default=1, show_default=True, metavar="N",
              help="Processes that send the calls, where one cannot make the load.")  # fmt: skip
@options.connection
@options.results(
    click.option("--plot", "plot_file", metavar="FILE.png|svg",
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
    limit_ms: float | None,
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
    if sum((bool(concurrency), rate is not None, limit_ms is not None)) > 1:
        raise click.UsageError(
            "give one of --concurrency, --rate and --search-latency-limit, each makes its own load"
        )
    from dataclasses import replace

    from deploykit.calling.request_inputs import chosen_signature, feeds_from_data
    from deploykit.calling.server_load import Generators, document, notes, search, table
    from deploykit.cli.report import Report, show
    from deploykit.reporting.load_plot import plot_loads
    from deploykit.reporting.plots import check_plot
    from deploykit.serving.client.client import Client
    from deploykit.serving.client.endpoint import Endpoint
    from deploykit.serving.client.load_generator import LoadStep
    from deploykit.serving.client.requests import predict_request
    from deploykit.storage.files import write
    from deploykit.text.progress import working

    if plot_file is not None:
        check_plot(plot_file)
    report = Report("load-test", data, output)
    with working("load-test") as advance:
        with Client(address, connection) as client:
            found = client.metadata(model, version=version, label=version_label)
            name, chosen = chosen_signature(found, signature)
            feeds = feeds_from_data(data, chosen, preprocess, batch)
            # What is wrong with it is said before the load.
            client.predict(model, feeds[0], version=version, label=version_label, signature=name)
        requests = [
            predict_request(model, feed, version, version_label, name).SerializeToString()
            for feed in feeds
        ]
        highest = None
        with Generators(
            Endpoint(address, replace(connection, retries=0)), requests, processes
        ) as generators:
            if limit_ms is not None:
                loads, highest = search(generators, seconds, limit_ms, advance)
            elif rate is not None:
                loads = [generators.measure(LoadStep(seconds, rate=rate), advance)]
            else:
                steps = [LoadStep(seconds, callers=each) for each in concurrency or (1, 2, 4, 8)]
                loads = [generators.measure(each, advance) for each in steps]
    if plot_file is not None:
        write(plot_file, [plot_loads(loads, f"{model} at {address}", plot_file)], force)
    report.inputs, report.outputs = tuple(chosen.inputs), tuple(chosen.outputs)
    report.more = {
        "address": address,
        "model": model,
        "signature": name,
        "batch": batch,
        "loads": document(loads),
        "latency_limit_ms": limit_ms,
        "highest_rate": highest,
    }
    text: list[Any] = [table(loads), *notes(loads)]
    if limit_ms is not None:
        text.append(
            f"highest rate with 99 % of calls within {limit_ms:g} ms: {highest:.4g} calls/s"
        )
    show(report, as_json, text=text, output=output, force=force)
