"""Say what is in a model."""

import click

from deploykit.cli import options
from deploykit.cli.options.types import Whole
from deploykit.freezing.interface import Source
from deploykit.transforms.core.display.documents import document


@options.command("What is shown")
@options.part
@click.option("--structure", is_flag=True, help="Also print every node, one a line.")
@click.option("--top", type=Whole(0), default=10, show_default=True, metavar="N",
              help="How many of the largest nodes are listed.")  # fmt: skip
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
    be folded; the floating-point operations (multiplications and additions are counted one by one)
    and the memory at batch 1, as far as shapes are known without running the model.

    A GraphDef file is shown as it is. Any other model is frozen first, so it has no variables.
    """
    import deploykit
    from deploykit.cli.report import Report, show
    from deploykit.inspection.summary import lines

    report = Report("inspect", source.model)
    found = deploykit.inspect(source, top=top, structure=structure)
    report.of(found.model)
    report.more = found.document()
    show(report, as_json, text=lines(document(report)), output=output, force=force)
