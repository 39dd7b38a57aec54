"""Run the standard transforms on a model."""

import click

from deploykit.api.comparison import Comparison
from deploykit.cli import options
from deploykit.freezing.interface import Source


@click.command()
@options.source
@options.output("optimized")
@click.option("--verify", is_flag=True, help="Run both graphs and compare before writing.")
@options.comparison
@options.limits
@options.everywhere
def optimize(
    source: Source,
    output: str,
    force: bool,
    verify: bool,
    comparison: Comparison,
    as_json: bool,
) -> None:
    """Strip and fold a model; its numbers stay.

    Runs inline_functions, strip_unused_nodes, remove_nodes, fold_constants, fold_batch_norms,
    merge_duplicate_nodes and sort_by_execution_order.
    """
    import deploykit
    from deploykit.cli.report import Report, show

    report = Report("optimize", source.model)
    graph = deploykit.optimize(source, comparison, output=output, force=force, verify=verify)
    report.rewritten(graph, output)
    show(report, as_json)
