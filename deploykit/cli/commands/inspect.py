"""Say what is in a model."""

import click

from deploykit.cli import options
from deploykit.freezing.interface import Interface


@click.command()
@click.argument("model")
@options.interface
@click.option("--structure", is_flag=True, help="Print every node in a line of its own.")
@click.option("--top", type=click.IntRange(min=0), default=10, show_default=True, metavar="N",
              help="List this many nodes that take most memory.")  # fmt: skip
@options.result_file
@options.limits
@options.everywhere
def inspect(
    model: str,
    interface: Interface,
    structure: bool,
    top: int,
    output: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Show what is in a model, and what it costs.

    Its inputs, outputs, variables, parameters, ops, devices and functions; the batch norms that can
    be folded; floating-point operations (a multiplication and an addition each) and memory at
    batch 1, as far as shapes are known without running the model.

    A GraphDef file is shown as it stands. Any other model is frozen first, so it has no variables.
    """
    from deploykit.cli.report import Report, show
    from deploykit.freezing.freeze import model_bytes, open_graph
    from deploykit.inspection.summary import inspect_graph, lines

    report = Report("inspect", model)
    graph = open_graph(model, interface)
    report.of(graph)
    report.bytes_in = model_bytes(model)
    report.more = inspect_graph(graph, top)
    if structure:
        report.more["structure"] = str(graph).splitlines()
    show(report, as_json, text=lines(report.document()), output=output, force=force)
