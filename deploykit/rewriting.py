"""The job that transform, optimize and quantize share: rewrite, verify, then write one file."""

import os

from deploykit.comparison import Comparison
from deploykit.files import check_output, save_graph
from deploykit.freezing import model_bytes
from deploykit.report import Report, progress
from deploykit.transforming import run_steps
from transforms.core.errors import VerificationError
from transforms.core.graph import Graph


def rewrite(
    report: Report,
    graph: Graph,
    transforms: str,
    output: str | os.PathLike[str],
    *,
    force: bool = False,
    as_text: bool = False,
    comparison: Comparison | None = None,
) -> Report:
    """Transform a graph, compare it with the original, write it, and return the finished report.

    VerificationError: the result is below the bar; then nothing is written.
    """
    assert report.input_file is not None
    check_output(output, force, report.input_file)
    report.bytes_in = model_bytes(report.input_file)
    report.of(graph)
    with progress(report.command) as on_step:
        result, report.steps = run_steps(graph, transforms, on_step)
    if comparison is not None:
        report.verification = comparison.run(graph, result)
        if report.verification.verified and not report.verification.passed:
            raise VerificationError(
                f"{report.input_file}: {report.verification.reason}; nothing was written"
            )
    report.bytes_out = save_graph(result, output, force=force, as_text=as_text)
    report.output_file, report.nodes_out = os.fspath(output), len(result)
    return report
