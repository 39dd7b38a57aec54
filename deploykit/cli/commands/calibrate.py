"""Take down which values the tensors of a model hold."""

import click

from deploykit.cli import options
from deploykit.cli.options.types import PathName, Whole
from deploykit.freezing.interface import Source
from deploykit.transforms.core.engines.engines import MOST_BATCH


@options.command(
    "Calibration",
    requires=("tensorflow",),
    runs_graph=True,
    examples=("deploykit calibrate fashion.pb --data models/fashion/test_1000.npz",),
)
@options.part
@options.data_option("--data", required=True, type=PathName("DATA"), help="At least 64 samples "
                     "like those of real use: a .npz file of arrays by input name, a folder of "
                     "TFRecords, images or CSV files, or DIR/NAME where DIR holds records of "
                     "several names.")  # fmt: skip
@options.preprocess
@click.option("--method", type=click.Choice(("minmax", "mse")), default="minmax", show_default=True,
              help="minmax: the whole range of the values; mse: the part of it that gives the "
              "smallest error in 8 bits, which runs the samples twice.")  # fmt: skip
@click.option("--batch", type=Whole(1, MOST_BATCH), metavar="N", help="Samples in a batch "
              "[default: what the model demands, or 8].")  # fmt: skip
@options.allowed_ops
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
    """Record which values each tensor of a model takes.

    Runs the model on the data and writes a JSON file that can be edited: for each float tensor its
    smallest and largest value, and the mean and smallest value of each channel. Quantization
    spreads its 8 bits over these ranges.
    """
    import deploykit
    from deploykit.cli.report import Report, show
    from deploykit.text.results.calibration import lines

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
    report.more, report.fed = found.document(), found.fed
    show(report, as_json, text=lines(found, output))
