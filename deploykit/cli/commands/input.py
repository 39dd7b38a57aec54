"""Write the input pipeline that data call for."""

import os

import click

from deploykit.cli import options
from deploykit.cli.options.outputs import writes
from deploykit.cli.options.types import PathName, TextOutput
from deploykit.freezing.interface import Interface, Source


@click.group(name="input")
def input() -> None:  # noqa: A001  the command's name
    """Write input pipelines.

    `deploykit benchmark MODEL --data DIR --input all` compares styles of input on a model.
    """


@input.command()
@click.argument("data", type=PathName(), metavar="DIR")
@click.option("--style", type=click.Choice(("tfdata",)), default="tfdata", show_default=True,
              help="How batches are made.")  # fmt: skip
@click.option("--model", type=PathName("MODEL"), help="The batches fit the inputs of this model "
              "[default: one tensor for each feature of the data].")  # fmt: skip
@options.interface
@click.option("--preprocess", type=PathName("FILE.json"), help="What becomes of each feature: "
              "sizes, scales, tokens.")  # fmt: skip
@click.option("--batch", type=click.IntRange(min=1), metavar="N", help="Records at once [default: "
              "what the model demands, or 32].")  # fmt: skip
@writes(
    click.option(
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
    What is written is short, imports TensorFlow alone (and NumPy for .npz), and gives the batches
    that `deploykit benchmark --input tfdata` measures.
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
