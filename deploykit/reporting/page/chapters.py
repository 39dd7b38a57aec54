"""What a document of each kind is shown as: a chapter, with the sections that its values fill."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from deploykit.reporting.page.blocks import (
    CommandLines,
    Drawer,
    Pictures,
    Section,
    SectionDraft,
    Words,
)
from deploykit.reporting.page.first_screen import (
    Card,
    conditions,
    ends,
    engine_name,
    figure_cards,
    verdict,
)
from deploykit.reporting.page.part import DocumentPart, shown
from deploykit.reporting.page.sections.accuracy import accuracy, judged
from deploykit.reporting.page.sections.input import input_styles
from deploykit.reporting.page.sections.layers import layers
from deploykit.reporting.page.sections.machine import machine
from deploykit.reporting.page.sections.others import calibration, exported, served, soundness
from deploykit.reporting.page.sections.placement import placement
from deploykit.reporting.page.sections.plan import plan
from deploykit.reporting.page.sections.profile import profiles
from deploykit.reporting.page.sections.settings import tuned
from deploykit.reporting.page.sections.speed import load, speed
from deploykit.reporting.page.sections.stages import stages
from deploykit.reporting.page.sections.verification import by_step, steps, verification
from deploykit.text.durations import date
from deploykit.text.templates import sentence
from deploykit.transforms.core.display.documents import FORMAT
from deploykit.transforms.core.errors import GraphError


@dataclass(frozen=True)
class DocumentKind:
    """How a document is called and shown."""

    title: str
    drawers: tuple[Drawer, ...]
    keys: tuple[frozenset[str], ...] = ()
    """By all of one of these a document is known that does not say its kind."""


def _kind(title: str, *drawers: Drawer, keys: tuple[str, ...] = ()) -> DocumentKind:
    return DocumentKind(title, drawers, tuple(frozenset(each.split()) for each in keys))


SHIP = "ship"
KINDS: Mapping[str, DocumentKind] = {
    SHIP: _kind("Shipped model"),
    "accuracy": _kind("Accuracy", accuracy),
    "benchmark": _kind("Benchmark", speed, profiles, machine),
    "input": _kind("Input benchmark", input_styles, machine),
    "tuned": _kind("Settings", tuned, machine),
    "quantize": _kind("Quantization", judged, verification, layers, keys=("int8_layers layers",)),
    "load-test": _kind("Load test", load, keys=("loads address",)),
    "plan": _kind("Plan", plan, keys=("outcomes needed",)),
    "placement": _kind(
        "Placement", placement, keys=("devices model_nodes", "devices ops_by_precision")
    ),
    "optimize": _kind("Optimization", steps, keys=("steps verified",)),
    "verify": _kind("Verification", verification, keys=("verified by_output",)),
    "check": _kind("Soundness", soundness, keys=("sound graphs",)),
    "export": _kind("Export", exported, keys=("signatures version",)),
}
"""Kinds in the order in which a document that does not say its kind is held against their keys."""
_COMMANDS = {"tune": "tuned", "transform": "optimize", "freeze": "verify"}
_LONGEST_FILE = 120  # characters of its name
_SCHEMA = 1  # of what commands print

# Stages in the order of the page, which is that of what a reader asks first.
_STAGES: Mapping[str, tuple[str, tuple[Drawer, ...]]] = {
    "accuracy": ("Accuracy", (accuracy,)),
    "verify": ("Verification", ()),
    "optimize": ("Optimization, step by step", (steps,)),
    "benchmark": ("Speed", ()),
    "quantize": ("Layers in 8 bits", (judged, layers)),
    "calibrate": ("Calibration", (calibration,)),
    "placement": ("Placement", (placement,)),
    "tune": ("Threads and settings", (tuned,)),
    "check": ("Soundness", (soundness,)),
    "export": ("Exported version", (exported,)),
    "serve": ("A request to the served model", (served,)),
}


@dataclass(frozen=True)
class Chapter:
    """A document as it is shown."""

    title: str
    file: str
    kind: str
    started: str
    sections: tuple[Section, ...]
    verdict: str = ""
    before: tuple[tuple[str, str], ...] = ()
    """What went in."""
    after: tuple[tuple[str, str], ...] = ()
    """What came out."""
    cards: tuple[Card, ...] = ()
    measured: tuple[tuple[str, str], ...] = ()
    """Batch, threads and machine, of a single result."""


def kind_of(document: Any, file: str) -> str:
    """Return the kind of a document. GraphError: it is not one of KINDS, or of another format."""
    if not isinstance(document, Mapping):
        raise GraphError("document-not-object", source=file)
    kind, command = document.get("kind"), document.get("command")
    if kind is not None:
        number, wanted, said = document.get("format"), FORMAT, "format"
    elif command is not None:
        number, wanted, said = document.get("schema"), _SCHEMA, "schema"
        kind = _COMMANDS.get(command, command) if isinstance(command, str) else command
    else:
        kind = _by_keys(document)
        number = wanted = None
        said = ""
    if not isinstance(kind, str) or kind not in KINDS:
        raise GraphError("report-kind-unknown", source=file, kind=kind, known=sorted(KINDS))
    if number != wanted:
        raise GraphError("document-format", source=file, what=said, got=number, known=wanted)
    return kind


def _by_keys(document: Mapping[str, Any]) -> str | None:
    """Return the kind of a document by the keys that it has."""
    for name, each in KINDS.items():
        if any(keys <= document.keys() for keys in each.keys):
            return name
    return None


def chapter(document: Mapping[str, Any], file: str, pictures: Pictures) -> Chapter:
    """Return a document as it is to be shown. GraphError: it is of a kind that is not."""
    kind = kind_of(document, file)
    file = shown(file, _LONGEST_FILE)
    part = DocumentPart(document, "", file)
    started = date(part["started"].text)
    if kind == SHIP:
        sections = tuple(_ship(part, pictures))
        before, after = ends(part)
        return Chapter(part["name"].text or KINDS[kind].title, file, kind, started,
                       sections, verdict(part), before, after, figure_cards(part))  # fmt: skip
    found = KINDS[kind]
    sections = tuple(chain.from_iterable(drawer(part, pictures) for drawer in found.drawers))
    if not sections:
        sections = (_empty(part, "This document holds no figures."),)
    return Chapter(found.title, file, kind, started, sections, measured=conditions(part, kind))


def _ship(part: DocumentPart, pictures: Pictures) -> Iterator[Section]:
    """Yield the sections of a report of `deploykit ship`."""
    by_name = {each["stage"].text: each for each in part["stages"]}
    for name, (title, drawers) in _STAGES.items():
        stage = by_name.get(name)
        if stage is None:
            continue
        document = stage["document"]
        drawn = [drawer(document, pictures) for drawer in drawers]
        if name == "verify":
            drawn = [by_step(part)]
        if name == "benchmark":
            drawn = [_benchmark(document, pictures, engine_name(part))]
        yield from _stage(stage, title, chain.from_iterable(drawn))
    yield from stages(part, pictures)
    yield from machine(part, pictures)
    rows = tuple((each["what"].text, each["command"].text) for each in part["commands"])
    if rows:
        yield Section("Commands to repeat it", (CommandLines(rows[:30], part["commands"].place),),
                      part.file, part["commands"].place)  # fmt: skip


def _stage(stage: DocumentPart, title: str, sections: Iterable[Section]) -> Iterator[Section]:
    """Yield the sections of a stage; where it has none, one that says why."""
    outcome, why = stage["outcome"].text, stage["why"].text
    found = False
    for section in sections:
        if why and not found and title == "Speed":
            section = replace(section, blocks=(Words(sentence(why)), *section.blocks))
        found = True
        yield section
    if not found:
        said = f"{outcome}: {why}" if why else outcome
        words = "no figures were kept" if outcome in ("", "done") and not why else said
        yield _empty(stage, f"{words[:1].upper()}{words[1:]}", title)


def _benchmark(part: DocumentPart, pictures: Pictures, engine: str) -> Iterator[Section]:
    """Yield the sections of the stage that measures models alone, and behind files."""
    models = part["models"] if part["models"] else part
    yield from speed(models, pictures)
    measured = models["measurements"]
    shipped = measured[len(measured) - 1]["name"].text if measured else ""
    yield from profiles(models, pictures, shipped)
    yield from profiles(part["profiled"], pictures, elsewhere=engine)
    yield from input_styles(part["input"], pictures)


def _empty(part: DocumentPart, words: str, title: str = "Figures") -> Section:
    draft = SectionDraft(title, part)
    draft.say(words, "doubt")
    return next(iter(draft.done()))
