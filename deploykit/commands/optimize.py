"""Run the standard transforms on a model."""

import click

from deploykit import options


@click.command()
@options.source
@options.output
@click.option("--verify", is_flag=True, help="Run both graphs and compare before writing.")
@options.comparison
@options.limits
@options.everywhere
def optimize(
    model: str,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    pins: tuple[tuple[str, str], ...],
    graph_file: str | None,
    output: str | None,
    force: bool,
    verify: bool,
    data: str | None,
    input_range: tuple[float, float],
    allowed_ops: tuple[str, ...],
    as_json: bool,
) -> None:
    """Strip and fold a model; its numbers stay.

    Runs inline_functions, strip_unused_nodes, remove_nodes, fold_constants, fold_batch_norms,
    merge_duplicate_nodes and sort_by_execution_order.
    """
    from deploykit.files import default_output
    from deploykit.freezing import freeze
    from deploykit.report import Report, show
    from deploykit.rewriting import Comparison, rewrite
    from deploykit.transforming import OPTIMIZE

    report = Report("optimize", model)
    graph = freeze(model, graph=graph_file, inputs=inputs, outputs=outputs, pins=dict(pins))
    comparison = Comparison(data, input_range, allowed_ops) if verify or data else None
    target = output or default_output(model, "optimized")
    show(rewrite(report, graph, OPTIMIZE, target, force=force, comparison=comparison), as_json)
