"""Models that were read, written and compared, and the transforms."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from deploykit.freezing.open_model import OpenedModel
from deploykit.rewriting.rewrite import Rewriting
from deploykit.rewriting.step_report import StepReport
from deploykit.text.tables import Table, constant, facts, table
from deploykit.text.templates import said
from deploykit.transforms.core.graph import Graph
from deploykit.verification.verify import Verification

File = tuple[str, int | None, int | None]
"""A name, bytes, and the number of nodes."""


def files_table(
    title: str, files: Iterable[File], inputs: Sequence[str], outputs: Sequence[str]
) -> Table:
    """Return the table of files that were read and written."""
    ends = f"inputs: {', '.join(inputs) or '-'}   outputs: {', '.join(outputs) or '-'}"
    return table(files, {title: "{0}", "size": "{1:size}", "nodes": "{2}"}, ends)


def steps_table(steps: Sequence[StepReport]) -> Table:
    """Return the table of transforms that ran."""
    return table(
        steps,
        {
            "transform": "{transform}",
            "seconds": "{seconds:.2f}",
            "nodes": "{nodes}",
            "skipped": lambda step: str(len(step.skipped) or ""),
        },
    )


def verification_lines(found: Verification) -> Iterator[str]:
    """Yield the outcome of a comparison in words."""
    if not found.verified:
        yield f"not verified: {found.reason}"
        return
    if found.is_unchanged:
        yield "verification: passed, as no node has changed (so large a graph is not run)"
        return
    if found.seconds:
        yield f"run on {found.run} in {found.seconds:.1f} s"
    if found.differences:
        is_finite = found.sqnr_db is not None and math.isfinite(found.sqnr_db)
        noise = ", SQNR {sqnr_db:.1f} dB" if is_finite else ""
        yield from said(
            found, f"largest difference {{max_relative_error:.2g}} of the largest value{noise}"
        )
    yield from said(
        found,
        "accuracy on {samples} samples: {accuracy.0:share} before, {accuracy.1:share} after",
        "verification against {bar}: " + ("passed" if found.passed else "FAILED: {reason}"),
    )


def graph_text(graph: Graph) -> Iterator[str | Table]:
    """Yield what is in a graph, and how it was made where its report says so."""
    from deploykit.quantization.result import Quantized  # it takes longer than the other tables
    from deploykit.quantization.weights import WeightsInt8
    from deploykit.text.results import quantization

    made = graph.report
    files: list[File] = [("graph", getattr(made, "bytes", None), len(graph))]
    if getattr(made, "model", None) is not None:
        files.insert(0, (made.model.source, made.model.bytes, made.nodes))
    yield from _graph(files, graph)
    if isinstance(made, Quantized):
        yield from quantization.lines(made)
    if isinstance(made, Rewriting):
        if made.steps:
            yield steps_table(made.steps)
        if made.verification is not None:
            yield from verification_lines(made.verification)
    if isinstance(made, WeightsInt8):
        yield from quantization.weight_lines(made)


def opened_text(model: OpenedModel) -> Iterator[str | Table]:
    """Yield what is in a model that was opened."""
    yield from _graph([(model.source, model.bytes, len(model.graph))], model.graph)


def _graph(files: Iterable[File], graph: Graph) -> Iterator[str | Table]:
    yield files_table("model", files, graph.inputs, graph.outputs)
    ops = Counter(node.op for node in graph).most_common()
    yield "ops: " + (", ".join(f"{count} {op}" for op, count in ops) or "none")


def transform_lines(found: Any) -> Iterator[str | Table]:
    """Yield one transform with everything about it, or a line for each of several."""
    described = found.transforms
    if len(described) > 1:
        yield facts(None, constant({row["name"]: row["summary"] for row in described}))
        return
    for transform in described:
        yield f"{transform['name']}\n\n{transform['text']}"
        for parameter in transform["parameters"]:
            default = "required" if parameter["required"] else f"default {parameter['default']!r}"
            repeatable = ", may be repeated" if parameter["repeatable"] else ""
            yield f"\n  {parameter['name']} ({parameter['type']}, {default}{repeatable})"
            yield from said(parameter, "      {help}")
