"""Say what two models do not have in common."""

import click

from deploykit.cli import options
from deploykit.freezing.interface import Interface


@click.command()
@click.argument("first")
@click.argument("second")
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

    Exits with 0 where the graphs are equal, and with 5 where they differ: a line starts with - for
    a node that only FIRST has, with + for one that only SECOND has, and with ~ for a change of a
    node's op, inputs, device or attributes.

    The order of nodes does not matter, nor do attributes whose names start with an underscore, nor
    versions. `deploykit verify` compares what the models compute.
    """
    from deploykit.cli.report import Report, show
    from deploykit.freezing.freeze import model_bytes
    from deploykit.inspection.diff import differences, lines, read, summary
    from deploykit.transforms.core.errors import VerificationError

    report = Report("diff", first, second)
    graphs = read(first, interface), read(second, interface)
    report.of(graphs[0])
    report.nodes_out = len(graphs[1])
    report.bytes_in, report.bytes_out = model_bytes(first), model_bytes(second)
    report.more = differences(*graphs)
    show(report, as_json, text=lines(report.more, *graphs), output=output, force=force)
    if not report.more["equal"]:
        raise VerificationError(f"{second} differs from {first}: {summary(report.more)}")
