"""Write the input pipeline that data call for."""

import os

import click

from deploykit.cli import options
from deploykit.cli.options.outputs import writes
from deploykit.cli.options.types import PathName, TextOutput, Whole
from deploykit.freezing.interface import Interface, Source
from deploykit.input.piping import Piping
from deploykit.transforms.core.engines.engines import MOST_BATCH


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
@options.written_piping
@click.option("--batch", type=Whole(1, MOST_BATCH), metavar="N", help="Records in a batch "
              "[default: what the model demands, or 32].")  # fmt: skip
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
    piping: Piping,
    batch: int | None,
    output: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write the recommended tf.data function for data, to stdout or a file.

    DIR is a folder of TFRecords (deploykit records), of CSV files or of images, or an .npz file.
    The code is short, imports only TensorFlow (and NumPy for .npz), and builds the very dataset
    that `deploykit benchmark --input tfdata` measures with the same options on this machine.
    `deploykit benchmark MODEL --data DIR --pipeline FILE:dataset` measures the file, here without
    its .py.
    """
    import deploykit
    from deploykit.cli.report import Report, show

    report = Report("input write", data, output)
    found = deploykit.write_input(
        data,
        model=None if model is None else Source.of(model, interface),
        piping=piping,
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
