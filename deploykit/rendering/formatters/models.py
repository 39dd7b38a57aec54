"""Tables of models (read, written, compared), their transforms, and the placement of nodes."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from deploykit.importers.open_model import OpenedModel
from deploykit.inspection.placement import DEVICE, Copy, EnginePlacement, Placement
from deploykit.pipelines.rewrite import Rewriting
from deploykit.pipelines.transform import StepReport
from deploykit.rendering.formatters.accuracy import weak_class_lines
from deploykit.rendering.tables import Table, constant, facts, table
from deploykit.rendering.templates import counted, filled_lines, listed
from deploykit.transforms.engines.engines import TITLES
from deploykit.transforms.ir.graph import Graph
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


def verification_lines(verification: Verification) -> Iterator[str]:
    """Yield the outcome of a comparison as text."""
    if not verification.verified:
        yield f"not verified: {verification.reason}"
        return
    if verification.is_unchanged:
        yield "verification: passed, as no node has changed (a graph of this size is not run)"
        return
    if verification.seconds:
        yield f"run on {verification.run} in {verification.seconds:.1f} s"
    if verification.differences:
        is_finite = verification.sqnr_db is not None and math.isfinite(verification.sqnr_db)
        noise = ", SQNR {sqnr_db:.1f} dB" if is_finite else ""
        yield from filled_lines(
            verification,
            f"largest difference {{max_relative_error:.2g}} of the largest value{noise}",
        )
    yield from filled_lines(
        verification,
        "compared before non-maximum suppression and the like: {before_choices:list 5}",
        "accuracy on {samples} samples: {accuracy.0:share} before, {accuracy.1:share} after",
    )
    yield from weak_class_lines(verification.weak_classes)
    yield from filled_lines(
        verification,
        "verification against {bar}: " + ("passed" if verification.passed else "FAILED: {reason}"),
    )


def graph_text(graph: Graph) -> Iterator[str | Table]:
    """Yield the contents of a graph, and how it was made if it has a report."""
    from deploykit.quantization.result import Quantized  # a slow import
    from deploykit.quantization.weights_only import WeightsInt8
    from deploykit.rendering.formatters import quantization

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
    """Yield the contents of an opened model."""
    yield from _graph([(model.source, model.bytes, len(model.graph))], model.graph)


def _graph(files: Iterable[File], graph: Graph) -> Iterator[str | Table]:
    yield files_table("model", files, graph.inputs, graph.outputs)
    ops = Counter(node.op for node in graph).most_common()
    yield "ops: " + (", ".join(f"{count} {op}" for op, count in ops) or "none")


def transform_lines(result: Any) -> Iterator[str | Table]:
    """Yield the details of one transform, or a line for each of several."""
    described = result.transforms
    if len(described) > 1:
        yield facts(None, constant({row["name"]: row["summary"] for row in described}))
        return
    for transform in described:
        yield from (transform["name"], "", *transform["text"].split("\n"))
        for parameter in transform["parameters"]:
            default = "required" if parameter["required"] else f"default {parameter['default']!r}"
            repeatable = ", may be repeated" if parameter["repeatable"] else ""
            yield ""
            yield f"  {parameter['name']} ({parameter['type']}, {default}{repeatable})"
            yield from filled_lines(parameter, "      {help}")


_LOCAL = "/job:localhost/replica:0/task:0/device:"
_SHOWN = 10  # names in a line of text; --json lists them all


def lines(placement: Placement) -> Iterator[str | Table]:
    """Yield the placement of TensorFlow."""
    yield table(
        (node for node in placement.executed if node.op != "Const"),
        {
            "node": "{name}",
            "op": "{op}",
            "requested": lambda node: (
                "(made by TensorFlow)" if node.asked is None else _short(node.asked)
            ),
            "placed on": lambda node: _short(node.got) + "  <- fell back" * node.fell_back,
        },
    )
    if placement.copies:
        yield table(
            placement.copies,
            {
                "copied": "{tensor}",
                "from": lambda copy: _short(copy.source),
                "to": lambda copy: _short(copy.target) + " (host memory)" * copy.to_host,
                "type and shape": lambda copy: (
                    f"{copy.type} ?"
                    if copy.shape is None
                    else f"{copy.type} [{','.join(map(str, copy.shape))}]"
                ),
                "bytes per run": _bytes,
            },
        )
    yield from _fallback_lines(placement)
    for device, ops in placement.ops_by_device.items():
        yield f"{_short(device)}: {_by_count(ops, 'node')}"
    unknown = sum(copy.bytes is None for copy in placement.copies)
    yield (
        f"copies between devices: {len(placement.copies)}, {placement.copied_bytes:,} bytes per run"
        + (f" and {unknown} of unknown size" if unknown else "")
    )
    yield (
        f"{len(placement.folded)} of the model's {placement.model_nodes} nodes are folded or "
        "fused before "
        "execution"
    )


def engine_lines(engine_placement: EnginePlacement) -> Iterator[str | Table]:
    """Yield the ops into which another runtime converted a model, with precision and layer."""
    yield table(
        engine_placement.executed, {"op": "{kind}", "precision": "{precision}", "layer": "{layer}"}
    )
    title = f"{TITLES[engine_placement.engine]} {engine_placement.version}"
    yield f"{title}: one device, the {DEVICE}, runs all ops"
    for precision, kinds in engine_placement.by_precision.items():
        yield f"{precision}: {_by_count(kinds, 'op')}"
    yield f"int8 layers: {engine_placement.in_8_bits} of {len(engine_placement.layers)}"
    yield f"conversions: {engine_placement.conversions}"


def _fallback_lines(placement: Placement) -> Iterator[str]:
    """Yield a line for each pair of a requested device and the one used instead."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for node in sorted(placement.fallbacks, key=lambda node: node.op == "Const"):  # constants last
        key = (node.asked or "", node.got, placement.why(node))
        groups.setdefault(key, []).append(f"{node.name} ({node.op})")
    for (requested, got, why), names in groups.items():
        yield (
            f"fell back from {requested} to {_short(got)}, {why}: {counted(len(names), 'node')}: "
            f"{listed(names, _SHOWN)}"
        )


def _bytes(copy: Copy) -> str:
    size = "unknown" if copy.bytes is None else f"{copy.bytes:,}"
    if copy.times is None or copy.times == 1:
        return size
    return f"{size} ({copy.times} times)" if copy.times else f"{size} (not in this run)"


def _by_count(ops: Mapping[str, int], noun: str) -> str:
    names = ", ".join(f"{count} {op}" for op, count in ops.items())
    return counted(sum(ops.values()), noun) + (f": {names}" if names else "")


def _short(device: str) -> str:
    return device.removeprefix(_LOCAL)
