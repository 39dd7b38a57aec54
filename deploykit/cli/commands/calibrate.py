"""Take down which values the tensors of a model hold."""

import click

from deploykit.cli import options
from deploykit.freezing.interface import Interface


@click.command()
@click.argument("model")
@options.interface
@click.option("--data", required=True, metavar="DATA", help="64 samples or more like those of "
              "real use: a .npz file of arrays by input name, or a folder of TFRecords, images or "
              "CSV files.")  # fmt: skip
@options.preprocess
@click.option("--method", type=click.Choice(("minmax", "mse")), default="minmax",
              show_default=True, help="The whole range of the values, or the part of it on which 8 "
              "bits err least; mse runs the samples twice.")  # fmt: skip
@click.option("--batch", type=click.IntRange(min=1), metavar="N", help="Samples at once [default: "
              "what the model demands, or 8].")  # fmt: skip
@click.option("--allow-op", "allowed_ops", metavar="OP", multiple=True,
              help="Run this op although it acts on files or processes; may be "
              "repeated.")  # fmt: skip
@options.output("ranges", ".json")
@options.limits
@options.everywhere
def calibrate(
    model: str,
    interface: Interface,
    data: str,
    preprocess: str | None,
    method: str,
    batch: int | None,
    allowed_ops: tuple[str, ...],
    output: str,
    force: bool,
    as_json: bool,
) -> None:
    """Take down which values the tensors of a model hold.

    Runs the model on the data and writes, for each float tensor, its smallest and largest value
    and each channel's mean and smallest value, to a JSON file that can be edited. Quantization
    spreads its 8 bits over these ranges.
    """
    from deploykit.cli.report import Report, show
    from deploykit.freezing.interface import Source
    from deploykit.freezing.model_path import model_sha256
    from deploykit.freezing.open_model import open_model
    from deploykit.input.samples import open_feeds
    from deploykit.quantization.calibration import calibrate
    from deploykit.storage.files import write
    from deploykit.text.progress import working
    from deploykit.transforms.core.checks.side_effects import refuse_side_effects

    report = Report("calibrate", model, output)
    graph = open_model(Source.of(model, interface)).graph
    refuse_side_effects(graph, allowed_ops)
    report.of(graph)
    feeds = open_feeds(data, graph, preprocess, batch)
    with working("calibrate") as advance:
        found = calibrate(
            graph,
            feeds,
            method=method,
            model_sha256=model_sha256(model) or "",
            advance=advance,
        )
    report.bytes_out = write(output, [found.ranges.text().encode()], force)
    report.more = found.document()
    show(report, as_json, text=found.lines(output))
