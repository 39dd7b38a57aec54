"""What was shipped: five figures before and after, what stages came to, and what to do next."""

from collections.abc import Iterator, Mapping
from typing import Any

from deploykit.text.durations import clock_time
from deploykit.text.tables import Table, new_table, size

Known = Mapping[str, Any]


def lines(document: Known, folder: str) -> "Iterator[str | Table]":
    """Yield what is shown of a shipped folder, or of the plan of one."""
    if "plan" in document:
        yield from _plan(document, folder)
        return
    yield from precision_line(document)
    yield _figures(document["figures"])
    verdict = verdict_of(document)
    yield verdict
    marks = filter(None, (each.get("loaded") for each in document["figures"].values()))
    yield from (mark for mark in dict.fromkeys(marks) if mark not in verdict)
    missing = [e for e in document["stages"] if e["outcome"] != "done" or e["why"]]
    if missing:
        yield ""
        yield from (_stage(each) for each in missing)
    yield ""
    width = max(len(each["what"]) for each in document["commands"])
    yield from (f"{each['what']:<{width}}   {each['command']}" for each in document["commands"])


def precision_line(document: Known) -> list[str]:
    """Return why float32 is shipped, as a line; none: int8 is shipped."""
    if document.get("precision") != "float32":
        return []
    return [f"{document['name']} is shipped in float32: {document['reason']}"]


def verdict_of(document: Known) -> str:
    """Return the verdict without the precision where `precision_line` states it already."""
    verdict = str(document["verdict"])
    if not precision_line(document):
        return verdict
    said = f"{document['name']} is shipped in float32, "
    rest = verdict.removeprefix(said)
    return verdict if rest == verdict else rest[:1].upper() + rest[1:]


def _stage(stage: Known) -> str:
    outcome = "" if stage["outcome"] == "done" else f"{stage['outcome']}: "
    return f"{stage['stage']}: {outcome}{stage['why'] or 'done'}"


def _figures(figures: Known) -> Table:
    table = new_table("figure", "before", "after", "times better")
    for each in figures.values():
        title = str(each["title"]).replace(" of the model alone", ",\nmodel alone")
        cells = shown(each["before"], each["unit"]), shown(each["after"], each["unit"]), times(each)
        table.add_row(title, *(_in_lines(cell) for cell in cells))
    return table


def _in_lines(cell: str) -> str:
    """Return a value above its interval and its remarks, so that the table stays narrow."""
    value, _, rest = cell.partition(" (")
    interval, closed, unit = rest.partition(")")
    if not closed:
        return cell.replace(": ", ":\n")
    remark = unit.lstrip(",: ") if unit.startswith((",", ":")) else ""
    value += "" if remark else unit
    return "\n".join(filter(None, (value, interval, remark)))


def times(figure: Known) -> str:
    """Return how much better a figure became, with its interval, or why that is not known."""
    ratio, change = figure.get("ratio"), figure.get("change")
    if ratio is not None:
        if ratio["low"] is None or ratio["high"] is None:
            return "undecided"
        if ratio["low"] == ratio["high"]:
            return f"{ratio['value']:.2f}"
        said = f"{ratio['value']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"
        said += "" if ratio["low"] > 1 or ratio["high"] < 1 else ": undecided"
        return f"{said}, loaded machine" if figure.get("loaded") else said
    return str(figure["verdict"]) if change is not None or figure["before"] is None else "-"


def shown(value: Known | None, unit: str) -> str:
    """Return a value with its interval and unit; `-` where it is not known."""
    if value is None:
        return "-"
    low, high = value.get("low"), value.get("high")
    interval = "" if low is None or high is None else f" ({_in(low, unit)} to {_in(high, unit)})"
    suffix = {"share": " %", "bytes": "", "ms": " ms", "ms/item": " ms", "items/s": "/s"}
    return f"{_in(value['value'], unit)}{interval}{suffix.get(unit, '')}"


def _in(value: float, unit: str) -> str:
    if unit == "bytes":
        return size(int(value))
    if unit == "share":
        return f"{100 * value:.1f}"
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _plan(document: Known, folder: str) -> "Iterator[str | Table]":
    table = new_table("stage", "what", "about")
    total = 0.0
    for each in document["plan"]:
        total += each["seconds"]
        act = f"{each['act']}: {each['why']}" if each["why"] else each["act"]
        time = clock_time(each["seconds"]) if each["act"] == "run" else ""
        table.add_row(each["stage"], act, time)
    yield table
    yield f"{folder}: about {clock_time(total)}; nothing was run (--dry-run)"
