"""Read a trained model, write a frozen graph."""

import click

from deploykit.cli import options
from deploykit.cli.options.types import PathName
from deploykit.freezing.interface import Source


@click.command()
@options.source
@click.option("--preprocess", type=PathName("FILE.json"), help="What becomes of photos "
              "and other data before the model takes them; kept beside the graph, where other "
              "commands find it.")  # fmt: skip
@click.option("--labels", type=PathName("FILE"), help="Names of the classes, one a line; kept "
              "beside the graph too.")  # fmt: skip
@options.output("frozen")
@options.limits
@options.everywhere
def freeze(
    source: Source,
    preprocess: str | None,
    labels: str | None,
    output: str,
    force: bool,
    as_json: bool,
) -> None:
    """Turn the variables of a model into constants.

    MODEL is a SavedModel folder, a checkpoint prefix with its .meta file (or --graph), a .keras or
    .h5 file, or a graph that is frozen already (.pb, .pbtxt). Functions are inlined. A boolean
    placeholder named like is_training that is not fed is pinned to false. Lookup tables are filled
    within the graph.
    """
    import deploykit
    from deploykit.cli.report import Report, show

    report = Report("freeze", source.model, output)
    graph = deploykit.freeze(
        source, preprocess=preprocess, labels=labels, output=output, force=force
    )
    report.rewritten(graph, output)
    show(report, as_json)
