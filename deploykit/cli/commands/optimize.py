"""Run the standard transforms on a model."""

import click

from deploykit.cli import options
from deploykit.cli.comparison import Comparison
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
    from deploykit.cli.report import Report, show
    from deploykit.cli.rewrite_job import rewrite
    from deploykit.freezing.open_model import open_model
    from deploykit.rewriting.pipelines import OPTIMIZE

    report = Report("optimize", source.model)
    graph = open_model(source).frozen
    check = comparison if verify or comparison.data else None
    rewrite(report, graph, OPTIMIZE, output, force=force, comparison=check)
    show(report, as_json)
