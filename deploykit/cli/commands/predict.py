"""Ask a served model."""

import click

from deploykit.cli import options
from deploykit.cli.options.types import PathName, Whole
from deploykit.serving.client.connection import Connection

_answer = options.under("Answer")


@options.command(
    "Request",
    examples=(
        "deploykit predict localhost:8500 fashion boot.png",
        "deploykit predict localhost:8500 fashion --input boot.png --preprocess 0..1",
        "deploykit predict localhost:8500 half_plus_two --input 2.0",
        "deploykit predict http://localhost:8000 resnet --protocol v2 \\\n"
        "      --input x=images.npy",
    ),
)
@click.argument("address")
@click.argument("model")
@click.argument("values", type=PathName("[NAME=]VALUE", named=True), nargs=-1)
@click.option("--input", "given", type=PathName("[NAME=]VALUE", named=True), multiple=True,
              help="What to ask: a value such as 2.5 or [1, 2], a .npy file, an "
              "image, or any file for a model that takes text. May be repeated; NAME may be left "
              "out if the model has one input.")  # fmt: skip
@options.preprocess
@options.server_option("--signature", metavar="NAME", help="Signature of the model [default: "
              "serving_default, or the only one].")  # fmt: skip
@options.which_version
@click.option("--outputs", "outputs", multiple=True, metavar="NAME",
              help="Ask for this output only; may be repeated.")  # fmt: skip
@_answer("--top", type=Whole(1), metavar="K", help="Show this many classes with the highest scores "
         "[default: 5, if --labels is given].")  # fmt: skip
@_answer("--labels", type=PathName("FILE"), help="File with the names of the "
         "classes, one a line.")  # fmt: skip
@options.connection
@options.result_file
@options.everywhere
def predict(
    address: str,
    model: str,
    values: tuple[str, ...],
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

    Works with any server that has the TensorFlow Serving API or, with --protocol v2, the Open
    Inference Protocol (KServe v2). VALUES are what --input takes. A
    photo is sent as the file it is where the model decodes it itself (deploykit export
    --preprocess); else it is decoded and resized here, as by `deploykit calibrate` and `benchmark`.
    """
    if not (values or given):
        raise click.UsageError("nothing is asked: give a value or a file, such as photo.jpg")
    import deploykit
    from deploykit.cli.report import Report, show
    from deploykit.text.answers import prediction_lines

    report = Report("predict")
    found = deploykit.predict(
        address,
        model,
        (*values, *given),
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
    report.more, report.fed = found.document(), found.fed
    text = prediction_lines(found.outputs, found.classes, found.sources)
    show(report, as_json, text=text, output=output, force=force)
