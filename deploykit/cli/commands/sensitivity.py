"""Rank the layers of a model by the noise that each brings in 8 bits."""

import click

from deploykit.cli import options
from deploykit.cli.options.types import PathName, Whole
from deploykit.freezing.interface import Source
from deploykit.transforms.core.int8.isa import ISAS


@options.command("Ranking", requires=("tensorflow",), runs_graph=True)
@options.source
@options.data_option("--calibration", "data", required=True, type=PathName("DATA"),
                     help="Samples: a .npz file of arrays by input name, a folder of TFRecords, "
                     "images or CSV files, or DIR/NAME where DIR holds records of several names. "
                     "Every fourth sample is kept aside to measure the noise on.")  # fmt: skip
@options.preprocess
@click.option("--ranges", "ranges_file", type=PathName("FILE"), help="Ranges of the optimized "
              "model that deploykit calibrate wrote [default: found on the samples].")  # fmt: skip
@click.option("--isa", type=click.Choice(ISAS), default="auto", show_default=True,
              help="Instruction set that the 8-bit layers are made for; auto is that of this "
              "machine.")  # fmt: skip
@click.option("--top", type=Whole(1), metavar="N", help="Show only the N noisiest layers [default: "
              "all].")  # fmt: skip
@options.allowed_ops
@options.result_file
@options.limits
@options.everywhere
def sensitivity(
    source: Source,
    data: str,
    preprocess: str | None,
    ranges_file: str | None,
    isa: str,
    top: int | None,
    allowed_ops: tuple[str, ...],
    output: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Rank the layers by the noise that each adds in 8 bits.

    Optimizes and calibrates the model as quantize does, then runs it with one layer at a time in 8
    bits and measures the signal-to-noise ratio of the answers: the lower it is, the noisier is the
    layer. Layers that cannot be in 8 bits are listed with the reason.
    """
    import deploykit
    from deploykit.cli.report import Report, show
    from deploykit.text.results.sensitivity import lines

    report = Report("sensitivity", source.model, output)
    found = deploykit.sensitivity(
        source,
        data,
        preprocess=preprocess,
        ranges=ranges_file,
        isa=isa,
        allowed_ops=allowed_ops,
    )
    report.of(found.model)
    report.nodes_out = found.nodes
    report.more, report.fed = found.document(), found.fed
    show(report, as_json, text=lines(found, source.model, top), output=output, force=force)
