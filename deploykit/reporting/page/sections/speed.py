"""How fast models are: latencies, throughput, and which is faster."""

from collections.abc import Iterable

from deploykit.reporting.page.amounts import (
    NOTHING,
    interval,
    plain,
    seconds,
    share,
    times,
    volume,
    whole,
)
from deploykit.reporting.page.blocks import MOST_ROWS, Pictures, Section, SectionDraft
from deploykit.reporting.page.part import DocumentPart

_SPEED = ("model", "p50 ms", "p90 ms", "p99 ms", "items/s", "CPU ms a call", "beside the first")
_START = ("model", "calls", "load ms", "first call ms", "warm-up", "memory at most", "stable?")
TONES = {"faster": "good", "slower": "bad", "undecided": "doubt"}


def speed(part: DocumentPart, pictures: Pictures) -> Iterable[Section]:
    """Show a document of `deploykit benchmark`."""
    draft = SectionDraft("Speed", part)
    measured, compared = part["measurements"], part["comparisons"]
    beside = {each["b"].text: each for each in compared}
    for _, each in zip(range(12), compared, strict=False):
        verdict = each["verdict"].text
        tone = TONES.get(verdict.partition(":")[0], "")
        draft.say(f"Speed of {each['b'].text} beside {each['a'].text}: {verdict}", tone)
    if part["interrupted"].holds:
        draft.say("It was interrupted: this is what was measured until then.", "doubt")
    if busy := part["conditions"]["busy"].text:
        draft.say(f"{busy}; latencies are only valid on a machine this loaded.", "doubt")
    draft.draw(pictures, part, "latencies", "throughput", "gains", "warm-ups")
    few = [each for _, each in zip(range(MOST_ROWS), measured, strict=False)]
    draft.grid("Latency and throughput", measured, _SPEED,
               [_speed_row(each, beside.get(each["name"].text)) for each in few])  # fmt: skip
    _scenarios(draft, measured, few)
    draft.grid("How it was measured", measured, _START, [_start_row(each) for each in few],
               texts=["stable?"])  # fmt: skip
    return draft.done()


def _speed_row(
    part: DocumentPart, beside: DocumentPart | None
) -> tuple[str | tuple[str, str], ...]:
    figures = part["summary"]
    ratio = NOTHING if beside is None else times(beside["ratio"])
    return (
        part["name"].text,
        (plain(figures["p50"].number), interval(figures["p50_interval"])),
        plain(figures["p90"].number),
        plain(figures["p99"].number),
        plain(figures["items_per_second"].number),
        plain(figures["cpu_ms"].number),
        ratio,
    )


def _start_row(part: DocumentPart) -> tuple[str | tuple[str, str], ...]:
    figures = part["summary"]
    warm_up = figures["warm_up_ms"].number
    return (
        part["name"].text,
        whole(figures["calls"].number),
        plain(figures["load_ms"].number),
        plain(figures["first_run_ms"].number),
        NOTHING if warm_up is None else seconds(warm_up / 1000),
        volume(figures["bytes_peak"].number),
        figures["verdict"].text,
    )


def _scenarios(draft: SectionDraft, measured: DocumentPart, few: Iterable[DocumentPart]) -> None:
    rows = []
    for each in few:
        found = each["scenario"]
        if found:
            figure = f"{found['figure'].text} {plain(found['value'].number)} {found['unit'].text}"
            valid = "yes" if found["valid"].holds else f"no: {found['why'].words}"
            rows.append((each["name"].text, found["name"].text, figure,
                         plain(found["rate_asked"].number), plain(found["rate_reached"].number),
                         valid))  # fmt: skip
    headings = ("model", "scenario", "figure", "calls/s asked", "calls/s reached", "valid?")
    draft.grid("Scenario", measured, headings, rows, texts=["scenario", "figure", "valid?"],
               count=len(rows))  # fmt: skip


def load(part: DocumentPart, pictures: Pictures) -> Iterable[Section]:
    """Show a document of `deploykit load-test`."""
    draft = SectionDraft("Load on a server", part)
    limit, highest = part["latency_limit_ms"].number, part["highest_rate"].number
    if limit is not None:
        draft.say(f"Highest rate with 99 % of calls within {plain(limit)} ms: "
                  f"{plain(highest)} calls/s.")  # fmt: skip
    draft.facts(part, ("server", part["address"].text), ("model", part["model"].text),
                ("signature", part["signature"].text),
                ("samples a call", whole(part["batch"].number)))  # fmt: skip
    draft.draw(pictures, part, "loads")
    loads = part["loads"]
    rows = []
    for _, each in zip(range(MOST_ROWS), loads, strict=False):
        latency = each["latency_ms"]
        rate, callers = each["rate"].number, whole(each["callers"].number)
        name = f"{plain(rate)} calls/s" if rate else f"{callers} at once"
        note = "limited by the generator" if each["generator_limited"].holds else ""
        rows.append((name, plain(each["throughput"].number),
                     *(plain(latency[key].number) for key in ("p50", "p90", "p99", "p99.9")),
                     whole(each["failed"].number), share(each["generator_busy"].number),
                     note))  # fmt: skip
    headings = ("load", "answers/s", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "failed",
                "generator busy", "note")  # fmt: skip
    draft.grid("Loads", loads, headings, rows, texts=["note"])
    return draft.done()
