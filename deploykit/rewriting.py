"""The job that transform, optimize and quantize share: rewrite, verify, then write one file."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from deploykit.files import check_output, load_data, save_graph
from deploykit.freezing import model_bytes
from deploykit.report import Report, progress
from deploykit.transforming import run_steps
from deploykit.verification import Verification, verify
from transforms.core.errors import VerificationError
from transforms.core.graph import Graph
from transforms.core.validate import refuse_side_effects


@dataclass(frozen=True)
class Comparison:
    """How two graphs are compared: the data, or the range of made-up inputs, and the bar."""

    data: str | None = None
    input_range: tuple[float, float] = (-1.0, 1.0)
    allowed_ops: Sequence[str] = ()
    tolerance: float | None = None
    min_sqnr: float | None = None

    def run(self, reference: Graph, result: Graph) -> Verification:
        """Return what the comparison found. RefusedError: a graph acts on files or processes."""
        for graph in (reference, result):
            refuse_side_effects(graph, self.allowed_ops)
        return verify(
            reference,
            result,
            data=None if self.data is None else load_data(self.data),
            input_range=self.input_range,
            tolerance=self.tolerance,
            min_sqnr=self.min_sqnr,
        )


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
