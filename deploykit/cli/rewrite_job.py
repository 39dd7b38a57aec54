"""The job that transform, optimize and quantize share: rewrite, verify, then write one file."""

import os
from pathlib import Path

from deploykit.cli.bisect import failed, first_failure
from deploykit.cli.comparison import Comparison
from deploykit.cli.report import Report
from deploykit.freezing.graph_files import save_graph
from deploykit.rewriting.dump import Dump
from deploykit.rewriting.transform import run_steps
from deploykit.text.progress import working
from deploykit.transforms.core.errors import VerificationError
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.pipeline import Result


def rewrite(
    report: Report,
    graph: Graph,
    transforms: str,
    output: str | os.PathLike[str],
    *,
    force: bool = False,
    as_text: bool = False,
    comparison: Comparison | None = None,
    dump: str | os.PathLike[str] | None = None,
) -> Graph:
    """Transform a graph, compare it with the original, write it, finish the report, and return it.

    With `dump`, the graph after each step is written to that folder.

    VerificationError: the result is below the bar. It names the first step that breaks it; the
    output is not written, and of the dump only the graphs before that step are kept.
    """
    assert report.input_file is not None
    dumped = None if dump is None else Dump(Path(dump))
    report.of(graph)
    with working(report.command) as advance:

        def on_step(step: Result, count: int) -> None:
            advance(step.transform, count)
            if dumped is not None:
                dumped.add(step.transform, step.graph)

        result, report.steps = run_steps(graph, transforms, on_step)
    if comparison is not None:
        report.verification = comparison.run(graph, result)
        if failed(report.verification):
            place, found = first_failure(graph, transforms, comparison, report.verification)
            step = f"step {place + 1} of {len(report.steps)}, {report.steps[place].transform},"
            raise VerificationError(
                f"{report.input_file}: {step} breaks the bar: {found.reason}; "
                f"{_kept(dumped, place, output)}"
            )
    report.bytes_out = save_graph(result, output, force=force, as_text=as_text)
    report.output_file, report.nodes_out = os.fspath(output), len(result)
    if dumped is not None:
        report.more["dump"] = [str(path) for path in dumped.files]
    return result


def _kept(dump: Dump | None, place: int, output: str | os.PathLike[str]) -> str:
    """Drop the graphs of a dump from a step on, and say what is left."""
    if dump is None:
        return "nothing was written"
    dump.drop_from(place)
    before = dump.files[-1] if dump.files else "the input"
    return f"{output} was not written, the graph before it is {before}"
