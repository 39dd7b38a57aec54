"""Say what is in a model."""

import click

from deploykit import options


@click.command()
@options.model
@click.option("--structure", is_flag=True, help="Print every node in a line of its own.")
@options.limits
@options.everywhere
def inspect(
    model: str, inputs: tuple[str, ...], outputs: tuple[str, ...], structure: bool, as_json: bool
) -> None:
    """Show inputs, outputs, parameters and ops of a model."""
    import json

    from deploykit.freezing import model_bytes, open_model
    from deploykit.inspection import inspect_graph, lines
    from deploykit.report import Report

    report = Report("inspect", model)
    graph = open_model(model, inputs, outputs)
    report.of(graph)
    report.bytes_in = model_bytes(model)
    report.more = inspect_graph(graph)
    if structure:
        report.more["structure"] = str(graph).splitlines()
    print(json.dumps(report.document(), indent=2) if as_json else "\n".join(lines(report)))
