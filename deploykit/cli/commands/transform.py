"""Run a transform string on a graph: the Graph Transform Tool's command."""

import logging
import os
from dataclasses import replace

import click

from deploykit.api.comparison import Comparison
from deploykit.cli import options
from deploykit.cli.options.outputs import writes
from deploykit.cli.options.types import Finite, PathName
from deploykit.freezing.interface import Interface, Source

logger = logging.getLogger("deploykit")


def _expanded(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    return None if value is None else os.path.expanduser(value)  # as the original does


def _steps(ctx: click.Context, param: click.Parameter, value: str) -> str:
    from deploykit.transforms.core.errors import PipelineError
    from deploykit.transforms.core.pipeline import parse

    if not parse(value):
        raise PipelineError("transforms-empty")
    return value


_check = options.under("Check")


@options.command(
    "Transforms",
    requires=("tensorflow",),
    examples=(
        "deploykit transform --in_graph=fashion.pb --out_graph=folded.pb \\\n"
        "      --transforms='fold_constants fold_batch_norms' --verify",
    ),
)
@options.model_option("--in_graph", "--in-graph", required=True, type=PathName("FILE"),
                      callback=_expanded, help="Graph to read.")  # fmt: skip
@writes(
    options.output_option("--out_graph", "--out-graph", "-o", "--output", "out_graph",
                          required=True, type=PathName("FILE"), callback=_expanded,
                          help="Graph to write."),
)  # fmt: skip
@options.interface
@click.option("--transforms", required=True, metavar="STRING", callback=_steps,
              help="Transforms to run in order, such as 'fold_constants(ignore_errors=true) "
              "fold_batch_norms'; package.module:function is one of your own.")  # fmt: skip
@options.output_option("--output_as_text", "--output-as-text", is_flag=False, flag_value="true",
                       default="false", type=click.BOOL, help="Write the graph as "
                       "text.")  # fmt: skip
@options.output_option("--dump", type=PathName("DIR"), callback=_expanded, help="Write the graph "
                       "after each step to this folder: DIR/01-NAME.pb and so on.")  # fmt: skip
@_check("--verify", is_flag=True, help="Run the graph before and after; if the answers differ, "
        "write nothing and name the step that caused it.")  # fmt: skip
@_check("--tolerance", type=Finite(0), metavar="T", help="Largest relative difference that "
        "--verify allows.")  # fmt: skip
@options.comparison
@options.limits
@options.everywhere
def transform(
    in_graph: str,
    out_graph: str,
    interface: Interface,
    transforms: str,
    output_as_text: bool,
    force: bool,
    dump: str | None,
    verify: bool,
    tolerance: float | None,
    comparison: Comparison,
    as_json: bool,
) -> None:
    """Run transforms on a graph, in the order given.

    Takes the flags and the transform string of the Graph Transform Tool's transform_graph.
    `deploykit transforms` lists the transforms, `deploykit transforms NAME` explains one.

    If --verify finds a difference, it names the first step that changes the answers too much,
    writes no out_graph, and exits with 5; with --dump, DIR keeps the graphs before that step.
    """
    import deploykit
    from deploykit.cli.report import Report, show
    from deploykit.rewriting.advice import advice

    report = Report("transform", in_graph)
    graph = deploykit.transform(
        Source.of(in_graph, interface),
        transforms,
        replace(comparison, tolerance=tolerance),
        output=out_graph,
        force=force,
        verify=verify,
        as_text=output_as_text,
        dump=dump,
    )
    report.rewritten(graph, out_graph)
    if dump is not None:
        report.more["dump"] = [str(path) for path in graph.report.dump]
    show(report, as_json)
    before = graph.report.model.graph
    for line in () if as_json else advice(before, graph, transforms, bool(interface.inputs)):
        logger.info("%s", line)
