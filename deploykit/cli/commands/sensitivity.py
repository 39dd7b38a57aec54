"""Rank the layers of a model by the noise that each brings in 8 bits."""

import click

from deploykit.cli import options
from deploykit.cli.options.types import PathName
from deploykit.freezing.interface import Source
from deploykit.transforms.core.int8.isa import ISAS


@click.command()
@options.source
@click.option("--calibration", "data", required=True, type=PathName("DATA"),
              help="Samples: a .npz file of arrays by input name, or a folder of TFRecords, images "
              "or CSV files; every fourth sample is held out.")  # fmt: skip
@options.preprocess
@click.option("--ranges", "ranges_file", type=PathName("FILE"), help="Ranges of the optimized "
              "model, from deploykit calibrate [default: found on the data].")  # fmt: skip
@click.option("--isa", type=click.Choice(ISAS), default="auto", show_default=True,
              help="Instruction set that the 8-bit layers are made for; auto is this "
              "machine's.")  # fmt: skip
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Show the N noisiest layers "
              "[default: all].")  # fmt: skip
@click.option("--allow-op", "allowed_ops", metavar="OP", multiple=True,
              help="Run this op although it acts on files or processes; may be "
              "repeated.")  # fmt: skip
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
    """Rank the layers of a model by the noise that each brings in 8 bits.

    Optimizes and calibrates the model as quantize does, then runs it with each layer alone in 8
    bits and measures the signal-to-noise ratio of its answers: the lower, the noisier. Layers that
    cannot be in 8 bits are listed with the reason.
    """
    import deploykit
    from deploykit.cli.report import Report, show

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
    report.more = found.document()
    show(report, as_json, text=found.lines(source.model, top), output=output, force=force)
