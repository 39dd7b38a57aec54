"""Write the input pipeline that data call for."""

import click

from deploykit.cli import options
from deploykit.cli.options.outputs import writes
from deploykit.freezing.interface import Interface


@click.group(name="input")
def input() -> None:  # noqa: A001  the command's name
    """Write input pipelines.

    `deploykit benchmark MODEL --data DIR --input all` compares styles of input on a model.
    """


@input.command()
@click.argument("data", metavar="DIR")
@click.option("--style", type=click.Choice(("tfdata",)), default="tfdata", show_default=True,
              help="How batches are made.")  # fmt: skip
@click.option("--model", metavar="MODEL", help="The batches fit the inputs of this model [default: "
              "one tensor for each feature of the data].")  # fmt: skip
@options.interface
@click.option("--preprocess", metavar="FILE.json", help="What becomes of each feature: sizes, "
              "scales, tokens.")  # fmt: skip
@click.option("--batch", type=click.IntRange(min=1), metavar="N", help="Records at once [default: "
              "what the model demands, or 32].")  # fmt: skip
@writes(click.option("-o", "--output", metavar="FILE.py", help="File to write [default: stdout]."))
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
    from deploykit.cli.report import Report, show
    from deploykit.freezing.interface import Source
    from deploykit.freezing.open_model import open_model
    from deploykit.input.data import open_data
    from deploykit.input.input_benchmark import pipeline_for
    from deploykit.input.preprocessing import Preprocessing, load_preprocessing
    from deploykit.input.writing import written
    from deploykit.storage.files import write as write_file

    report = Report("input write", data, output)
    declared = Preprocessing() if preprocess is None else load_preprocessing(preprocess)
    found = open_data(data, declared.columns)
    graph = None if model is None else open_model(Source.of(model, interface)).graph
    text = written(pipeline_for(found, graph, preprocessing=declared, batch=batch))
    if output is not None:
        report.bytes_out = write_file(output, [text.encode()], force)
    report.more = {"style": style, "records": found.records, "text": text}
    said = text.removesuffix("\n") if output is None else f"{output}: tf.data for {data}"
    show(report, as_json, text=[said])
