"""Say what two models do not have in common."""

import click

from deploykit.cli import options
from deploykit.cli.options.types import PathName
from deploykit.freezing.interface import Interface, Source


@options.command("")
@click.argument("first", type=PathName())
@click.argument("second", type=PathName())
@options.interface
@options.result_file
@options.limits
@options.everywhere
def diff(
    first: str,
    second: str,
    interface: Interface,
    output: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Show the nodes that two models do not share.

    Exits with 0 if the graphs are equal, and with 5 if they differ. A summary comes first: nodes,
    ops by count, weights, inputs and outputs. Then each difference follows. A line starts with -
    for a node that only FIRST has, with + for one that only SECOND has, and with ~ for a node whose
    op, inputs, device or attributes differ.

    The order of nodes, attributes whose names start with an underscore, and versions are not
    compared. `deploykit verify` compares what the models compute.
    """
    import deploykit
    from deploykit.cli.report import Report, show
    from deploykit.inspection.diff import lines
    from deploykit.transforms.core.errors import VerificationError

    report = Report("diff", first, second)
    found = deploykit.diff(Source.of(first, interface), Source.of(second, interface))
    report.between(found.first, found.second)
    report.more = found.document()
    text = lines(report.more, found.first.graph, found.second.graph)
    show(report, as_json, text=text, output=output, force=force)
    if not found.equal:
        raise click.exceptions.Exit(VerificationError.exit_status)
