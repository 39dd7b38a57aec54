"""Ask a served model."""

import click

from deploykit.cli import options
from deploykit.cli.options.types import PathName
from deploykit.serving.client.connection import Connection


@click.command()
@click.argument("address")
@click.argument("model")
@click.option("--input", "given", type=PathName("[NAME=]VALUE", named=True), multiple=True,
              required=True, help="A value such as 2.5 or [1, 2], a .npy file, an image, or a file "
              "that a model of texts takes as it is; may be repeated. The name may be left out "
              "where the model has one input.")  # fmt: skip
@options.preprocess
@click.option("--signature", metavar="NAME", help="Signature of the model [default: "
              "serving_default, or the only one].")  # fmt: skip
@options.which_version
@click.option("--outputs", "outputs", multiple=True, metavar="NAME",
              help="Ask for this output alone; may be repeated.")  # fmt: skip
@click.option("--top", type=click.IntRange(min=1), metavar="K",
              help="Show so many classes with the highest scores [default: 5, with "
              "--labels].")  # fmt: skip
@click.option("--labels", type=PathName("FILE"), help="Names of the classes, one a line.")
@options.connection
@options.result_file
@options.everywhere
def predict(
    address: str,
    model: str,
    given: tuple[str, ...],
    preprocess: str | None,
    signature: str | None,
    version: int | None,
    version_label: str,
    outputs: tuple[str, ...],
    top: int | None,
    labels: str | None,
    connection: Connection,
    output: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Ask a served model for its answer.

    Works with any server of the TensorFlow Serving API. An image is decoded and resized as
    `deploykit calibrate` and `benchmark` do it.

    \b
    deploykit predict localhost:8500 half_plus_two --input 2.0
    deploykit predict localhost:8500 flowers --input image=rose.jpg --labels labels.txt
    """  # noqa: D301  click reads the backslash
    import deploykit
    from deploykit.cli.report import Report, show
    from deploykit.text.answers import class_lines, output_lines

    report = Report("predict")
    found = deploykit.predict(
        address,
        model,
        given,
        connection=connection,
        version=version,
        version_label=version_label,
        signature=signature,
        outputs=outputs,
        preprocess=preprocess,
        labels=labels,
        top=top,
    )
    report.inputs, report.outputs = tuple(found.inputs), tuple(found.outputs)
    report.more = found.document()
    text = output_lines(found.outputs)
    if found.classes is not None:
        text = (line for each in found.classes for line in class_lines(each))
    show(report, as_json, text=text, output=output, force=force)
