"""Say what is in a model."""

import click

from deploykit.cli import options
from deploykit.freezing.interface import Source


@click.command()
@options.part
@click.option("--structure", is_flag=True, help="Print every node in a line of its own.")
@click.option("--top", type=click.IntRange(min=0), default=10, show_default=True, metavar="N",
              help="List this many nodes that take most memory.")  # fmt: skip
@options.result_file
@options.limits
@options.everywhere
def inspect(
    source: Source,
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
    import deploykit
    from deploykit.cli.report import Report, show
    from deploykit.inspection.summary import lines

    report = Report("inspect", source.model)
    found = deploykit.inspect(source, top=top, structure=structure)
    report.of(found.model)
    report.more = found.document()
    show(report, as_json, text=lines(report.document()), output=output, force=force)
