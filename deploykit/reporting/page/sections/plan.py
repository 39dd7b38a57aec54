"""How many replicas a load takes, and what becomes of them when some are lost."""

from collections.abc import Iterable

from deploykit.reporting.page.amounts import NOTHING, plain, share, span, whole
from deploykit.reporting.page.blocks import MOST_ROWS, Pictures, Section, SectionDraft
from deploykit.reporting.page.part import DocumentPart

_HEADINGS = ("lost", "replicas", "load of each", "p99 ms", "to the least busy, ms", "holds")


def plan(part: DocumentPart, pictures: Pictures) -> Iterable[Section]:
    """Show a document of `deploykit plan`."""
    draft = SectionDraft("Replicas for a load", part)
    measured, check, cost = part["measured"], part["check"], part["cost"]
    replicas = part["replicas"].number
    draft.say(part["problem"].text, "bad")
    if not part["problem"] and replicas is not None:
        draft.say(f"{whole(replicas)} replicas answer {plain(part['rate'].number)} calls/s with "
                  f"p99 within {plain(part['p99_limit_ms'].number)} ms.", "good")  # fmt: skip
    draft.draw(pictures, part, "replicas")
    few = zip(range(MOST_ROWS), part["outcomes"], strict=False)
    draft.grid("What is left", part["outcomes"], _HEADINGS, [_row(each) for _, each in few],
               texts=["holds"])  # fmt: skip
    draft.facts(
        part,
        ("model", part["model"].text),
        ("measured at", measured["source"].text),
        ("cores of a replica", whole(part["cores"].number)),
        ("calls/s of one at most", plain(measured["highest_rate"].number)),
        ("calls/s of one within the limit", plain(part["rate_of_one"].number)),
        ("a lone call, p50 ms", plain(measured["lone_p50_ms"].number)),
        ("p99 ms tried on the server", plain(check["p99_ms"].number)),
        ("p99 ms foreseen for it", plain(check["foreseen_ms"].number)),
        ("cost an hour", plain(cost["hour"].number)),
        ("cost of a million calls", plain(cost["million_calls"].number)),
    )
    for _, each in zip(range(12), part["notes"], strict=False):
        draft.say(each.text, "doubt")
    return draft.done()


def _row(part: DocumentPart) -> tuple[str | tuple[str, str], ...]:
    p99 = part["p99_ms"].number
    figure = (plain(p99), span(part["p99_low_ms"].number, part["p99_high_ms"].number))
    return (
        part["lost"].text,
        whole(part["replicas"].number),
        share(part["load"].number),
        NOTHING if p99 is None else figure,
        plain(part["p99_least_busy_ms"].number),
        "yes" if part["holds"].holds else "no",
    )
