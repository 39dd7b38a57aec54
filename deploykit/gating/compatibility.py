"""Checks that need no run: compatible signatures, and the size of the model files."""

import math
from collections.abc import Iterator, Mapping

from deploykit.gating.verdict import COMPATIBLE, FAIL, NO_LIMIT, PASS, UNKNOWN, Check
from deploykit.importers.open_model import OpenedModel
from deploykit.inspection.summary import shape_text, tensor_summary
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.shapes.static_shapes import Shapes

_SHOWN = 3


def signature_check(baseline: OpenedModel, candidate: OpenedModel, is_limited: bool) -> Check:
    """Return whether the candidate accepts all requests of the baseline and returns its outputs.

    Names, dtypes and shapes are compared. The candidate may accept more shapes and return more
    outputs.
    """
    problems = [*incompatibilities(baseline, candidate)]
    shown = "; ".join(problems[:_SHOWN])
    if len(problems) > _SHOWN:
        shown += f"; and {len(problems) - _SHOWN} more"
    verdict = (FAIL if problems else PASS) if is_limited else NO_LIMIT
    return Check("signatures", None, None, "", math.nan, UNKNOWN, None, verdict,
                 "names, dtypes, shapes", shown or COMPATIBLE)  # fmt: skip


def incompatibilities(baseline: OpenedModel, candidate: OpenedModel) -> Iterator[str]:
    """Yield why requests to the baseline would fail, or return other outputs, at the candidate."""
    graphs = baseline.graph, candidate.graph
    shapes = Shapes(graphs[0]), Shapes(graphs[1])
    for name, signature in baseline.signatures.items():
        other = candidate.signatures.get(name)
        if other is None:
            yield f"signature '{name}' is missing"
            continue
        for role in ("input", "output"):
            ours, theirs = getattr(signature, f"{role}s"), getattr(other, f"{role}s")
            yield from (f"{role} '{alias}' is missing" for alias in ours if alias not in theirs)
            if role == "input":
                yield from (f"input '{alias}' is new, so existing requests lack it"
                            for alias in theirs if alias not in ours)  # fmt: skip
            for alias in ours:
                if alias in theirs:
                    pair = ours[alias], theirs[alias]
                    found = [_tensor(*item) for item in zip(graphs, shapes, pair, strict=True)]
                    yield from _differences(f"{role} '{alias}'", role == "input", *found)


def _tensor(graph: Graph, shapes: Shapes, tensor: str) -> Mapping[str, object]:
    known = shapes.shape(tensor)
    return {
        "type": tensor_summary(graph, tensor)["type"],
        "shape": None if known is None else list(known),
    }


def _differences(
    what: str, is_input: bool, ours: Mapping[str, object], theirs: Mapping[str, object]
) -> Iterator[str]:
    """Yield the incompatible differences of a tensor; unknown types and shapes are compatible."""
    types = ours["type"], theirs["type"]
    if None not in types and types[0] != types[1]:
        yield f"{what} is {types[1]} instead of {types[0]}"
    first, second = ours["shape"], theirs["shape"]
    if isinstance(first, list) and isinstance(second, list):
        fits = len(first) == len(second) and all(
            b < 0 or a == b or (a < 0 and not is_input) for a, b in zip(first, second, strict=True)
        )
        if not fits:
            yield f"{what} has shape {shape_text(second)} instead of {shape_text(first)}"


def size_check(baseline: OpenedModel, candidate: OpenedModel, limit: float | None) -> Check:
    """Compare the sizes of the model files; of models in memory, those of the graphs."""
    first, second = (_bytes(model) for model in (baseline, candidate))
    change = second / first - 1
    return Check.of("size", (first, second), "bytes", change, (change, change), limit, "exact size")


def _bytes(model: OpenedModel) -> int:
    if model.bytes is not None:
        return model.bytes
    return sum(len(piece) for piece in model.graph.serialized())
