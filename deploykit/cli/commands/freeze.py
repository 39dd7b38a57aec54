"""Read a trained model, write a frozen graph."""

import os

import click

from deploykit.cli import options
from deploykit.freezing.interface import Source


@click.command()
@options.source
@options.output("frozen")
@options.limits
@options.everywhere
def freeze(
    source: Source,
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
    graph = deploykit.freeze(source, output=output, force=force)
    report.of(graph.report)
    report.inputs, report.outputs = graph.inputs, graph.outputs
    report.nodes_in, report.nodes_out = graph.report.nodes, len(graph)
    report.bytes_out = os.path.getsize(output)
    show(report, as_json)
