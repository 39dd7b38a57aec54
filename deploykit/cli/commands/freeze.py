"""Read a trained model, write a frozen graph."""

import click

from deploykit.api.comparison import Comparison
from deploykit.cli import options
from deploykit.cli.options.types import PathName
from deploykit.freezing.interface import Source


@options.command(
    "Kept beside the graph",
    requires=("tensorflow",),
    runs_graph=True,
    examples=(
        "deploykit freeze models/fashion/fashion.keras -o fashion.pb",
        "deploykit freeze models/fashion/tf1/model.ckpt -o checkpoint.pb",
    ),
)
@options.source
@click.option("--preprocess", type=PathName("FILE.json|LO..HI"), help="How photos and other data "
              "become inputs, in the form that calibrate and benchmark take; other commands then "
              "find it there.")  # fmt: skip
@click.option("--labels", type=PathName("FILE"), help="File with the names of the classes, one a "
              "line; label then finds them there.")  # fmt: skip
@options.output("frozen")
@options.frozen_check
@options.limits
@options.everywhere
def freeze(
    source: Source,
    preprocess: str | None,
    labels: str | None,
    output: str,
    force: bool,
    comparison: Comparison,
    as_json: bool,
) -> None:
    """Turn the variables of a model into constants.

    MODEL is a SavedModel folder, a checkpoint prefix with its .meta file (or --graph), a .keras or
    .h5 file, or a graph that is frozen already (.pb, .pbtxt). Functions are inlined, and the
    contents of lookup tables go into the graph. A boolean placeholder with a name like is_training
    becomes false, unless it is an input.

    deploykit loads and runs the new file once, and compares it with the graph as it was read.
    Nothing is written if they differ, or if they could not be compared.
    """
    import deploykit
    from deploykit.cli.report import Report, show

    report = Report("freeze", source.model, output)
    graph = deploykit.freeze(
        source,
        comparison,
        preprocess=preprocess,
        labels=labels,
        output=output,
        force=force,
    )
    report.rewritten(graph, output)
    show(report, as_json)
