"""Take down which values the tensors of a model hold."""

import click

from deploykit.cli import options
from deploykit.cli.options.types import PathName
from deploykit.freezing.interface import Source


@click.command()
@options.part
@click.option("--data", required=True, type=PathName("DATA"), help="64 samples or more "
              "like those of real use: a .npz file of arrays by input name, or a folder of "
              "TFRecords, images or CSV files.")  # fmt: skip
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
    source: Source,
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
    import deploykit
    from deploykit.cli.report import Report, show

    report = Report("calibrate", source.model, output)
    found = deploykit.calibrate(
        source,
        data,
        preprocess=preprocess,
        method=method,
        batch=batch,
        allowed_ops=allowed_ops,
        output=output,
        force=force,
    )
    report.of(found.model)
    report.bytes_in = None
    report.bytes_out = found.bytes
    report.more = found.document()
    show(report, as_json, text=found.lines(output))
