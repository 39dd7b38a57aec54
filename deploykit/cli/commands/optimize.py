"""Run the standard transforms on a model."""

import logging

import click

from deploykit.api.comparison import Comparison
from deploykit.cli import options
from deploykit.freezing.interface import Source

logger = logging.getLogger("deploykit")


@options.command(
    "Check",
    requires=("tensorflow",),
    runs_graph=True,
    examples=(
        "deploykit optimize fashion.pb -o optimized.pb",
        "deploykit optimize fashion.pb -o a.pb --data models/fashion/test_1000.npz",
    ),
)
@options.source
@options.output("optimized")
@click.option("--verify", is_flag=True, hidden=True)
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
    """Make a model smaller and faster; its answers stay the same.

    Runs inline_functions, strip_unused_nodes, remove_nodes, fold_constants, fold_batch_norms,
    merge_duplicate_nodes and sort_by_execution_order.

    deploykit loads and runs the new file once. Nothing is written if its outputs differ from those
    of the model as it was read, or if they could not be compared.
    """
    import deploykit
    from deploykit.cli.report import Report, show

    if verify:
        logger.warning("--verify is deprecated: optimize always compares the result")
    report = Report("optimize", source.model)
    graph = deploykit.optimize(source, comparison, output=output, force=force)
    report.rewritten(graph, output)
    show(report, as_json)
