"""Model and settings of a document, as titles of charts and the summary of a page name them."""

from collections.abc import Iterable, Sequence

from deploykit.reporting.page.values import ENGINES, DocumentPart, shown, whole

_LONGEST_NAME = 120  # characters
_MAX_VALUES = 4  # of a setting


def subject(
    part: DocumentPart, of: DocumentPart, more: str = "", measured: Sequence[DocumentPart] = ()
) -> str:
    """Return the model, its settings and the machine in one line.

    Args:
        part: the document of the chart.
        of: the document of the page that contains it.
        more: what distinguishes the chart, such as the name of a measurement.
        measured: the measurements of the chart; default: those of `part`.
    """
    rows = list(measured) or list(part["measurements"])
    known = settings_of(rows or [part]) or settings_of([of])
    machine = machine_of(of["machine"]) or machine_of(part["machine"])
    return "; ".join(filter(None, [_model(of, rows), more, *known, machine]))


def _model(part: DocumentPart, rows: Iterable[DocumentPart]) -> str:
    """Return the name of the model; without one, those of measurements, or the file."""
    name = part["name"].text or part["model"].text
    names = [name] if name else [row["model"].text for row in rows] or [part.file]
    return _listed(shown(name, _LONGEST_NAME) for name in names)


def settings_of(rows: Sequence[DocumentPart]) -> list[str]:
    """Return precision, engine, batch, threads and concurrency of results, as far as known."""
    is_measured = any(row["summary"] for row in rows)
    engines = [_text(row["settings"]["engine"], row["engine"]) for row in rows]
    engines = ["tensorflow" if is_measured and not engine else engine for engine in engines]
    threads = [_threads(row) for row in rows]
    batches = [
        whole(next((item.number for item in _batches(row) if item.number is not None), None))
        for row in rows
    ]
    concurrent = [(row["settings"] or row["measured"])["concurrency"].number or 1 for row in rows]
    return [
        *_named("", [_text(row["settings"]["precision"], row["precision"]) for row in rows]),
        *_named("", [ENGINES.get(engine, engine) for engine in engines]),
        *_named("batch ", [batch for batch in batches if batch != whole(None)]),
        *_named("threads ", threads if any(batch != whole(None) for batch in batches) else ()),
        *_named("concurrent requests ", [whole(n) for n in concurrent if max(concurrent) > 1]),
    ]


def _text(*parts: DocumentPart) -> str:
    return next(filter(None, (part.text for part in parts)), "")


def _batches(row: DocumentPart) -> list[DocumentPart]:
    """Return the parts that may contain the batch, the most reliable first."""
    result = [row["settings"]["batch"], row["measured"]["batch"], row["batch"]]
    return [row["samples"], *result] if row["summary"] else result


def _threads(row: DocumentPart) -> str:
    """Return the threads within and between ops, such as `2x1`, or `default`."""
    facts, several = row["facts"], row["settings"]["threads"] or row["measured"]["threads"]
    inside, between = (several[n].number for n in (0, 1))
    if inside is None:
        inside, between = (facts[f"{name}_op_threads"].number for name in ("intra", "inter"))
    return f"{whole(inside)}x{whole(between)}" if inside or between else "default"


def _named(title: str, values: Iterable[str]) -> list[str]:
    listed = _listed(values)
    return [f"{title}{listed}"] if listed else []


def _listed(values: Iterable[str]) -> str:
    several = list(dict.fromkeys(filter(None, values)))
    return ", ".join(several[:_MAX_VALUES] + ["…"] * (len(several) > _MAX_VALUES))


def machine_of(machine: DocumentPart) -> str:
    """Return the processor and the number of CPUs; empty if both are unknown."""
    count = machine["cpus"].number
    cpus = "" if count is None else f"{whole(count)} CPU{'s' * (count != 1)}"
    return ", ".join(filter(None, [machine["cpu"].text, cpus]))
