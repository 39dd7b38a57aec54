"""Models that were read, made and compared."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from deploykit.freezing.open_model import OpenedModel
from deploykit.rewriting.rewrite import Rewriting
from deploykit.rewriting.step_report import StepReport
from deploykit.text.tables import Table, new_table, size
from deploykit.transforms.core.graph import Graph
from deploykit.verification.verify import Verification

File = tuple[str, int | None, int | None]
"""A name, bytes, and the number of nodes."""


def files_table(
    title: str, files: Iterable[File], inputs: Sequence[str], outputs: Sequence[str]
) -> Table:
    """Return the table of what was read and written."""
    table = new_table(title, "size", "nodes")
    for name, count, nodes in files:
        table.add_row(name, size(count), "-" if nodes is None else str(nodes))
    table.caption = f"inputs: {', '.join(inputs) or '-'}   outputs: {', '.join(outputs) or '-'}"
    return table


def steps_table(steps: Sequence[StepReport]) -> Table:
    """Return the table of transforms that ran."""
    table = new_table("transform", "seconds", "nodes", "left alone")
    for step in steps:
        skipped = str(len(step.skipped)) if step.skipped else ""
        table.add_row(step.transform, f"{step.seconds:.2f}", str(step.nodes), skipped)
    return table


def verification_lines(found: Verification) -> list[str]:
    """Return the outcome of a comparison in words."""
    if not found.verified:
        return [f"not verified: {found.reason}"]
    if found.is_unchanged:
        return ["verification: passed, as no node has changed (so large a graph is not run)"]
    lines = [f"run on {found.run} in {found.seconds:.1f} s"] if found.seconds else []
    if found.differences:
        error, sqnr = found.max_relative_error, found.sqnr_db
        quality = f", SQNR {sqnr:.1f} dB" if sqnr is not None and math.isfinite(sqnr) else ""
        lines.append(f"largest difference {error:.2g} of the largest value{quality}")
    if found.accuracy is not None:
        before, after = (f"{100 * value:.1f} %" for value in found.accuracy)
        lines.append(f"accuracy on {found.samples} samples: {before} before, {after} after")
    outcome = "passed" if found.passed else f"FAILED: {found.reason}"
    return [*lines, f"verification against {found.bar}: {outcome}"]


def graph_text(graph: Graph) -> Iterator[str | Table]:
    """Yield what is in a graph, and how it was made where its report says so."""
    from deploykit.quantization.result import Quantized  # it takes longer than the other tables
    from deploykit.quantization.weights import WeightsInt8
    from deploykit.text.results import quantized

    made = graph.report
    files: list[File] = [("graph", getattr(made, "bytes", None), len(graph))]
    if getattr(made, "model", None) is not None:
        files.insert(0, (made.model.source, made.model.bytes, made.nodes))
    yield files_table("model", files, graph.inputs, graph.outputs)
    yield _ops_line(graph)
    if isinstance(made, Quantized):
        yield from quantized.lines(made)
    if isinstance(made, Rewriting):
        if made.steps:
            yield steps_table(made.steps)
        if made.verification is not None:
            yield from verification_lines(made.verification)
    if isinstance(made, WeightsInt8):
        yield from quantized.weight_lines(made)


def opened_text(model: OpenedModel) -> Iterator[str | Table]:
    """Yield what is in a model that was opened."""
    graph = model.graph
    files = [(model.source, model.bytes, len(graph))]
    yield files_table("model", files, graph.inputs, graph.outputs)
    yield _ops_line(graph)


def _ops_line(graph: Graph) -> str:
    ops = Counter(node.op for node in graph).most_common()
    return "ops: " + (", ".join(f"{count} {op}" for op, count in ops) or "none")
