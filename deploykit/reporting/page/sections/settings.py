"""With which threads, MKL and memory settings a model runs best here."""

from collections.abc import Iterable

from deploykit.reporting.page.amounts import NOTHING, plain, times
from deploykit.reporting.page.blocks import Pictures, Section, SectionDraft
from deploykit.reporting.page.part import DocumentPart

_MOST_TRIALS = 30
_CHOICES = ("default", "latency", "throughput")


def tuned(part: DocumentPart, pictures: Pictures) -> Iterable[Section]:
    """Show a document of `deploykit tune`."""
    draft = SectionDraft("Threads and settings", part)
    for words in (part["impossible"].text, *(each.text for each in part["undecided"])):
        draft.say(f"Undecided: {words}" if words else "", "doubt")
    if part["complete"].value is False:
        draft.say("The time for it was up before all settings were tried.", "doubt")
    settings = part["settings"]
    draft.facts(
        part,
        ("goal", part["goal"].text),
        ("engine", part["engine"].text),
        *((name.replace("_", " "), each.words) for name, each in settings.named()),
        *((name, each.words) for name, each in part[part["goal"].text]["environment"].named()),
    )
    rows = [_choice(name, part[name]) for name in _CHOICES if part[name]]
    headings = ("choice", "settings", "p50 ms", "p99 ms", "items/s", "CPU ms", "latency beside",
                "items beside")  # fmt: skip
    draft.grid("What did best", part, headings, rows, texts=["settings"], count=0)
    draft.draw(pictures, part, "gains", of="tuned settings")
    trials = part["trials"]
    rows_of_trials = [
        (_settings(each["settings"]), plain(each["p50_ms"].number), plain(each["p99_ms"].number),
         plain(each["items_per_second"].number), times(each["faster"]), times(each["more"]))
        for _, each in zip(range(_MOST_TRIALS), trials, strict=False)
    ]  # fmt: skip
    columns = ("settings", "p50 ms", "p99 ms", "items/s", "latency beside", "items beside")
    draft.grid("Trials", trials, columns, rows_of_trials)
    rows_lacking = [(name, each.words) for name, each in part["lacking"].named()]
    rows_lacking += [(name, f"set by you: {each.words}")
                     for name, each in part["not_searched"].named()]  # fmt: skip
    draft.grid("Not tried", part, ("what", "why"), rows_lacking[:_MOST_TRIALS], texts=["why"],
               count=0)  # fmt: skip
    return draft.done()


def _choice(name: str, part: DocumentPart) -> tuple[str, ...]:
    return (
        name,
        _settings(part["settings"]),
        plain(part["p50_ms"].number),
        plain(part["p99_ms"].number),
        plain(part["items_per_second"].number),
        plain(part["cpu_ms"].number),
        times(part["times_faster"]) if name != "default" else NOTHING,
        times(part["times_the_items"]) if name != "default" else NOTHING,
    )


def _settings(part: DocumentPart) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {each.words}" for name, each in part.named())
