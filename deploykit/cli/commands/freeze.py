"""Read a trained model, write a frozen graph."""

import click

from deploykit.cli import options


@click.command()
@options.source
@options.output("frozen")
@options.limits
@options.everywhere
def freeze(
    source: options.Source,
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
    from deploykit.cli.report import Report, show
    from deploykit.freezing.freeze import model_bytes, model_nodes
    from deploykit.freezing.graph_files import save_graph
    from deploykit.text.progress import working

    model = source.model
    report = Report("freeze", model, output)
    with working("freeze"):
        graph = source.freeze()
    report.of(graph)
    report.nodes_in, report.nodes_out = model_nodes(model, source.tags), len(graph)
    report.bytes_in = model_bytes(model)
    report.bytes_out = save_graph(graph, output, force=force)
    show(report, as_json)
