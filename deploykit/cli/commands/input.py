"""Write the input pipeline that data call for."""

import os

import click

from deploykit.cli import options
from deploykit.cli.options.outputs import writes
from deploykit.cli.options.types import PathName, TextOutput, Whole
from deploykit.freezing.interface import Interface, Source


@click.group(name="input")
def input() -> None:  # noqa: A001  the command's name
    """Write input pipelines.

    `deploykit benchmark MODEL --data DIR --input all` compares styles of input on a model.
    """


@input.command(cls=options.Helped, heading="Pipeline")
@click.argument("data", type=PathName(), metavar="DIR")
@click.option("--style", type=click.Choice(("tfdata",)), default="tfdata", show_default=True,
              help="Kind of input pipeline.")  # fmt: skip
@options.model_option("--model", type=PathName("MODEL"), help="Make batches that fit the inputs of "
                      "this model [default: a tensor for each feature of the data].")  # fmt: skip
@options.interface
@options.data_option("--preprocess", type=PathName("FILE.json|LO..HI"),
                     help="How each feature becomes an input: sizes, ranges, tokens.")  # fmt: skip
@click.option("--batch", type=Whole(1), metavar="N", help="Records in a batch [default: what the "
              "model demands, or 32].")  # fmt: skip
@writes(
    options.output_option(
        "-o", "--output", type=TextOutput("FILE.py"), help="File to write [default: stdout]."
    )
)
@options.everywhere
def write(
    data: str,
    style: str,
    model: str | None,
    interface: Interface,
    preprocess: str | None,
    batch: int | None,
    output: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write the recommended tf.data function for data, to stdout or a file.

    DIR is a folder of TFRecords (deploykit records), of CSV files or of images, or an .npz file.
    The code is short, imports only TensorFlow (and NumPy for .npz), and gives the same batches as
    `deploykit benchmark --input tfdata`.
    """
    import deploykit
    from deploykit.cli.report import Report, show

    report = Report("input write", data, output)
    found = deploykit.write_input(
        data,
        model=None if model is None else Source.of(model, interface),
        preprocess=preprocess,
        batch=batch,
        style=style,
        output=output,
        force=force,
    )
    report.more = found.document()
    if output is None:
        said = found.text.removesuffix("\n")
    else:
        report.bytes_out = os.path.getsize(output)
        said = f"{output}: tf.data for {data}"
    show(report, as_json, text=[said])
