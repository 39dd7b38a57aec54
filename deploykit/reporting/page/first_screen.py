"""What a reader sees first: what went in, what came out, five figures before and after."""

from collections.abc import Iterator
from dataclasses import dataclass

from deploykit.reporting.page.amounts import NOTHING, amount, gain, interval, plain, volume, whole
from deploykit.reporting.page.part import DocumentPart
from deploykit.text.templates import sentence

FIGURES = ("accuracy", "size", "p50", "rate", "cpu")
_TITLES = {"accuracy": "accuracy", "size": "size", "p50": "latency (p50)", "rate": "throughput",
           "cpu": "CPU time"}  # fmt: skip
_RESULTS = {"int8": "layers in 8 bits", "float": "optimized, in float"}
_ENGINES = {"tensorflow": "TensorFlow", "openvino": "OpenVINO"}


@dataclass(frozen=True)
class ValueBar:
    """A value beside the other one, in percent of the larger."""

    name: str
    value: str
    interval: str
    width: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Card:
    """A figure before and after."""

    name: str
    title: str
    value: str
    """After; where there is none, before."""
    unit: str
    change: str
    tone: str
    bars: tuple[ValueBar, ...]
    verdict: str
    place: str


def verdict(part: DocumentPart) -> str:
    """Return what it came to, in one sentence."""
    return part["verdict"].text


def ends(part: DocumentPart) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    """Return what went in and what came out, as names with values."""
    model, size = part["model"], part["figures"]["size"]
    before = (
        ("model", model["source"].text),
        ("size", volume(model["bytes"].number)),
        ("inputs", model["inputs"].words),
        ("outputs", model["outputs"].words),
        ("SHA-256", model["sha256"].text[:16]),
    )
    after = (
        ("result", _result(part)),
        ("computed by", engine_name(part)),
        ("size", volume(size["after"]["value"].number)),
        ("served as", part["name"].text),
        ("stages", _outcomes(part["stages"])),
        ("measured with", _measured(part["measured"])),
        ("machine", _machine(part["machine"])),
    )
    return _known(before), _known(after)


def engine_name(part: DocumentPart) -> str:
    """Return what runs the shipped model, as it is called."""
    engine = part["engine"].text
    return _ENGINES.get(engine, engine)


def _measured(part: DocumentPart) -> str:
    """Return the batch and the threads of the measurement, in words."""
    batch, concurrency = part["batch"].number, part["concurrency"].number
    if batch is None:
        return ""
    intra, inter = part["threads"][0].number, part["threads"][1].number
    known = intra is not None and inter is not None
    threads = f"threads {whole(intra)}x{whole(inter)}" if known else "the default threads"
    more = f", {whole(concurrency)} concurrent requests" if (concurrency or 1) > 1 else ""
    return f"batch {whole(batch)}, {threads}{more}"


def conditions(part: DocumentPart, kind: str) -> tuple[tuple[str, str], ...]:
    """Return the batches, threads and machine of a result that was measured, as far as known."""
    if kind not in ("benchmark", "input", "tuned"):
        return ()
    machine = ("machine", _machine(part["machine"]))
    if kind == "input":
        return _known((("batch", part["batch"].words), machine))
    if kind == "tuned":
        settings = dict(part["settings"].named())
        named = ((name, settings[name].words) for name in ("batch", "threads") if name in settings)
        return _known((*named, machine))
    found = list(part["measurements"])
    batches = dict.fromkeys(whole(each["samples"].number) for each in found)
    threads = dict.fromkeys(_threads(each["facts"]) for each in found)
    return _known((("batch", ", ".join(batches)), ("threads", ", ".join(threads)), machine))


def _threads(facts: DocumentPart) -> str:
    """Return the threads inside an op and the ops at the same time; 0 of both is the default."""
    known = [facts[f"{each}_op_threads"].number for each in ("intra", "inter")]
    return "x".join(map(whole, known)) if any(known) else "default"


def _machine(part: DocumentPart) -> str:
    """Return the processor and how many of its CPUs could be used."""
    cpu, usable = part["cpu"].text, part["cpus"].number
    count = "" if usable is None else f"{whole(usable)} CPU{'s' * (usable != 1)}"
    return ", ".join(filter(None, (cpu, count)))


def _result(part: DocumentPart) -> str:
    """Return the precision of what came out, and why that is float32."""
    result, precision = part["result"].text, part["precision"].text
    if precision != "float32":
        return _RESULTS.get(result, result)
    return f"{precision}: {part['reason'].text}"


def _known(rows: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in rows if value not in ("", NOTHING))


def _outcomes(stages: DocumentPart) -> str:
    counts: dict[str, int] = {}
    for each in stages:
        outcome = each["outcome"].text
        counts[outcome] = counts.get(outcome, 0) + 1
    return ", ".join(f"{whole(count)} {name}" for name, count in list(counts.items())[:4])


def figure_cards(part: DocumentPart) -> tuple[Card, ...]:
    """Return a card for each of the five figures."""
    return tuple(_card(name, part["figures"][name]) for name in FIGURES)


def _card(name: str, part: DocumentPart) -> Card:
    unit = part["unit"].text
    before, after = part["before"], part["after"]
    values = [each["value"].number for each in (before, after)]
    known = [value for value in values if value is not None]
    shown = known[-1] if known else None
    said = part["verdict"].text or ("" if known else "not measured")
    change, tone = _change(part, unit)
    if loaded := part["loaded"].text:
        change, tone = f"{change}, loaded machine" if change else "", tone and "doubt"
        said = said if loaded in said else f"{said}, {loaded}"
    if not tone and said.startswith("undecided"):
        tone = "doubt"
    value, sign = amount(shown, unit), ""
    if shown is not None and unit not in ("share", "bytes"):
        value, sign = amount(shown, ""), unit
    return Card(name, part["title"].text or _TITLES[name], value, sign, change, tone,
                tuple(_bars(before, after, unit)), sentence(said), part.place)  # fmt: skip


def _bars(before: DocumentPart, after: DocumentPart, unit: str) -> Iterator[ValueBar]:
    """Yield both values beside each other; none where either is not known, or is negative."""
    parts = (("before", before), ("after", after))
    highs = [part[end].number for _, part in parts for end in ("value", "high")]
    most = max((each for each in highs if each is not None), default=0.0)
    for name, part in parts:
        value = part["value"].number
        if value is None:
            continue
        width, low, high = (
            None if each is None or most <= 0 else min(100.0, max(0.0, 100 * each / most))
            for each in (value, part["low"].number, part["high"].number)
        )
        yield ValueBar(name, amount(value, unit), interval(part, unit), width or 0.0, low, high)


def _change(part: DocumentPart, unit: str) -> tuple[str, str]:
    """Return how much better it is in words, and whether that is good."""
    ratio, change = part["ratio"], part["change"]
    value = ratio["value"].number
    if value is not None:
        low, high = ratio["low"].number, ratio["high"].number
        found = f"{plain(value)} \N{MULTIPLICATION SIGN}"
        ends_of = interval(ratio)
        tone = _tone(value if low is None else low, value if high is None else high, 1.0)
        return (f"{found} ({ends_of})" if ends_of else found), tone
    if change["value"].number is None:
        return "", ""
    low, high = (change[end].number for end in ("low", "high"))
    is_share = unit == "share"
    said = f"{gain(change)} points" if is_share else f"{change['value'].number:+.3g}"
    if low is None or high is None:
        return said, ""
    tone = _tone(low, high, 0.0)
    flipped = {"good": "bad", "bad": "good"} if part["better"].text == "lower" else {}
    return said, flipped.get(tone, tone)


def _tone(low: float, high: float, even: float) -> str:
    return "good" if low > even else "bad" if high < even else ""
