"""Exported versions, and the result of ship: metrics before and after, stages, next commands."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deploykit.exporting.export import Exported
from deploykit.rendering.progress import clock_time
from deploykit.rendering.tables import OwnLines, Table, constant, facts, table
from deploykit.rendering.templates import between, size
from deploykit.serving.protocol.signatures import photos_in_words, sizes, tensor_of
from deploykit.transforms.common.messages import escaped

Document = Mapping[str, Any]
_SUFFIX = {"share": " %", "ms": " ms", "ms/item": " ms", "items/s": "/s"}


def lines(document: Document) -> Iterator[str | Table]:
    """Yield the contents of a shipped folder, or the plan of a dry run."""
    if "plan" in document:
        yield from _plan(document)
        return
    yield from precision_line(document)
    yield table(
        document["figures"].values(),
        {
            "metric": _metric,
            "before": lambda row: _value(row["before"], row["unit"]),
            "after": lambda row: _value(row["after"], row["unit"]),
            "improvement": _improvement,
        },
        "below each value: its confidence interval",
    )
    verdict = verdict_of(document)
    yield verdict
    marks = filter(None, (row.get("loaded") for row in document["figures"].values()))
    yield from (mark for mark in dict.fromkeys(marks) if mark not in verdict)
    for stage in document["stages"]:
        if stage["outcome"] != "done" or stage["why"]:
            outcome = "" if stage["outcome"] == "done" else f"{stage['outcome']}: "
            yield f"{stage['stage']}: {outcome}{stage['why'] or 'done'}"
    yield commands(document["commands"])


def commands(rows: Sequence[Mapping[str, str]]) -> Table:
    """Return the next commands as a table."""
    return facts(None, constant({row["what"]: row["command"] for row in rows}))


def precision_line(document: Document) -> list[str]:
    """Return a line with the reason for float32; empty if int8 is shipped."""
    if document.get("precision") != "float32":
        return []
    return [f"{document['name']} is shipped in float32: {document['reason']}"]


def verdict_of(document: Document) -> str:
    """Return the verdict without the precision if `precision_line` already states it."""
    verdict = str(document["verdict"])
    if not precision_line(document):
        return verdict
    rest = verdict.removeprefix(f"{document['name']} is shipped in float32, ")
    return verdict if rest == verdict else rest[:1].upper() + rest[1:]


def _metric(row: Document) -> str:
    return OwnLines(escaped(row["title"]).replace(" of the model alone", ",\nmodel alone"))


def _improvement(row: Document) -> str | None:
    """Return the improvement of a metric; below it, its interval and remarks."""
    ratio = row.get("ratio")
    if ratio is None:
        is_known = row.get("change") is not None or row["before"] is None
        return OwnLines(escaped(row["verdict"]).replace(" (", "\n(")) if is_known else None
    low, high = ratio["low"], ratio["high"]
    if low is None or high is None:
        return "inconclusive"
    lines = [f"{ratio['value']:.2f}x"]
    if low != high:
        lines.append(between((low, high), "{:.2f}".format))
        lines += ["inconclusive"] * (low <= 1 <= high) + ["loaded machine"] * bool(
            row.get("loaded")
        )
    return OwnLines("\n".join(lines))


def _value(value: Document | None, unit: str) -> str | None:
    """Return a value with its unit; below it, its interval."""
    if value is None:
        return None

    def form(end: float) -> str:
        if unit == "bytes":
            return size(int(end))
        if unit == "share":
            return f"{100 * end:.1f}"
        return f"{end:.3g}" if end < 1000 else f"{end:.0f}"

    text, low, high = form(value["value"]), value.get("low"), value.get("high")
    ends = "" if low is None or high is None else f"\n{between((low, high), form)}"
    return OwnLines(f"{text}{_SUFFIX.get(unit, '')}{ends}")


def _plan(document: Document) -> Iterator[str | Table]:
    yield table(
        document["plan"],
        {
            "stage": "{stage}",
            "action": "{act}[[: {why}]]",
            "about": lambda row: clock_time(row["seconds"]) if row["act"] == "run" else None,
        },
    )
    total = sum(row["seconds"] for row in document["plan"])
    yield f"about {clock_time(total)} in total; nothing was run (--dry-run)"


def exported_lines(result: Exported) -> Iterator[str | Table]:
    """Yield the signatures, the folder of the version, and the next commands."""
    for name, item in sorted(result.signatures.items()):
        yield f"{name} ({item.method_name})"
        for side, infos in (("input", item.inputs), ("output", item.outputs)):
            for alias, tensor in sorted((alias, tensor_of(info)) for alias, info in infos.items()):
                images = photos_in_words(tensor)
                shape = sizes(tensor)
                known = ["any" if size is None else str(size) for size in shape or ()]
                shown = "of any shape" if shape is None else f"[{', '.join(known)}]"
                described = f"{tensor.dtype} {shown}{images and ', '}{images}"
                yield f"  {side} {alias}: {described}"
    yield from result.engine.lines()
    if result.manifests:
        yield f"written next to it: {', '.join(path.name for path in result.manifests)}"
    warm = f", {result.warm_up_requests} warm-up requests" if result.warm_up_requests else ""
    yield f"{result.folder}: {size(result.bytes)}{warm}"
    yield commands(result.commands)
