"""Say what is in a model."""

import click

from deploykit import options
from deploykit.interface import Interface


@click.command()
@click.argument("model")
@options.interface
@click.option("--structure", is_flag=True, help="Print every node in a line of its own.")
@options.result_file
@options.limits
@options.everywhere
def inspect(
    model: str,
    interface: Interface,
    structure: bool,
    output: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Show inputs, outputs, parameters and ops of a model."""
    from deploykit.freezing import model_bytes
    from deploykit.inspection import inspect_graph, lines
    from deploykit.report import Report, show

    report = Report("inspect", model)
    graph = interface.open(model)
    report.of(graph)
    report.bytes_in = model_bytes(model)
    report.more = inspect_graph(graph)
    if structure:
        report.more["structure"] = str(graph).splitlines()
    show(report, as_json, text=lines(report), output=output, force=force)
