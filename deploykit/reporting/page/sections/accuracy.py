"""How many answers are right, before and after, and where the two differ most."""

import re
from collections.abc import Iterable

from deploykit.reporting.page.amounts import NOTHING, amount, gain, interval, share, whole
from deploykit.reporting.page.blocks import Photo, Photos, Pictures, Section, SectionDraft, rest
from deploykit.reporting.page.part import DocumentPart

_PICTURE = re.compile(r"data:image/(png|jpeg);base64,[A-Za-z0-9+/]+={0,2}")
_LARGEST = 16_000  # letters of a picture
_MOST, _MOST_CLASSES = 12, 30
_SHARES = ("top1", "top5", "accuracy")


def accuracy(part: DocumentPart, pictures: Pictures) -> Iterable[Section]:
    """Show a document of `deploykit accuracy`."""
    draft = SectionDraft("Accuracy", part)
    metric = part["metric"].text
    unit = "share" if metric in _SHARES else ""
    _change(draft, part, unit)
    facts = [("metric", metric), ("samples", whole(part["samples"].number)),
             ("classes", part["class_order"].words),
             ("of", part["source"].words),
             ("the same answer from both", _with_interval(part["agreement"], "share"))]  # fmt: skip
    draft.facts(part, *facts)
    models = part["models"]
    rows = [
        (each["name"].text, _of(each, unit), interval(each["interval"], unit) or NOTHING)
        for _, each in zip(range(_MOST), models, strict=False)
    ]
    draft.grid("Models", models, ("model", metric or "value", "95 % interval"), rows)
    draft.draw(pictures, part, "classes")
    _groups(draft, "By group", part["by_group"])
    _classes(draft, part, unit)
    _worst(draft, part["worst"])
    for note in part["notes"]:
        draft.say(note.text)
    return draft.done()


def judged(part: DocumentPart, pictures: Pictures) -> Iterable[Section]:
    """Show how `deploykit quantize` judged the 8-bit graph: on held-out samples, on those given."""
    draft = SectionDraft("Accuracy of the 8-bit graph", part)
    of = (("held-out calibration samples", "judgement"), ("evaluation data", "evaluation"))
    rows = []
    for name, key in of:
        each = part[key]
        unit = "share" if each["metric"].text in _SHARES else ""
        noise = amount(each["sqnr_db"].number, "dB")
        if each:
            before, after = (_score(each[end], unit) for end in ("before", "after"))
            rows.append((name, whole(each["samples"].number), each["metric"].text, before, after,
                         _pair(each, "agreement", "share"), noise))  # fmt: skip
    headings = ("on", "samples", "metric", "before", "after", "the same answer", "SQNR")
    draft.grid("Before and after", part, headings, rows, texts=["metric"], count=0)
    for name, key in of:
        _groups(draft, f"By group, on {name}", part[key]["groups"])
    return draft.done()


def _groups(draft: SectionDraft, title: str, groups: DocumentPart) -> None:
    """Add a row for each group of samples: its noise, and how often both give the same answer."""
    rows = [
        (each["group"].words, whole(each["samples"].number), amount(each["sqnr_db"].number, "dB"),
         amount(each["sqnr_low_db"].number, "dB"), _pair(each, "agreement", "share"))
        for _, each in zip(range(_MOST_CLASSES), groups, strict=False)
    ]  # fmt: skip
    headings = ("group", "samples", "SQNR", "95 % lower bound", "the same answer")
    draft.grid(title, groups, headings, rows)


def _change(draft: SectionDraft, part: DocumentPart, unit: str) -> None:
    change = part["change"]
    value = change["value"].number
    if value is None:
        return
    low, high = change["low"].number, change["high"].number
    points = " points" if unit == "share" else ""
    said = gain(change) if unit == "share" else _with_interval(change, "")
    sure = low is not None and high is not None and not low <= 0 <= high
    draft.say(f"The last model beside the first, on the same samples: {said}{points}"
              + ("." if sure else "; that may be chance."))  # fmt: skip


def _classes(draft: SectionDraft, part: DocumentPart, unit: str) -> None:
    """Add a row for each class, with the share of each model."""
    classes, models = part["by_class"], [each["name"].text for each in part["models"]][:_MOST]
    rows: list[tuple[str | tuple[str, str], ...]] = []
    for _, each in zip(range(_MOST_CLASSES), classes, strict=False):
        values: list[tuple[str, str]] = [
            (_of(value, unit), interval(value, unit))
            for _, value in zip(models, each["models"], strict=False)
        ]
        values += [(NOTHING, "")] * (len(models) - len(values))
        name = each["label"].words or each["class"].words
        rows.append((name, whole(each["samples"].number), *values))
    draft.grid("By class", classes, ("class", "samples", *models), rows)


def _worst(draft: SectionDraft, part: DocumentPart) -> None:
    photos = []
    for _, each in zip(range(_MOST), part, strict=False):
        source = each["picture"].value
        fits = isinstance(source, str) and len(source) <= _LARGEST and _PICTURE.fullmatch(source)
        lines = [f"label: {each['label'].words}" if each["label"] else ""]
        lines += [_answer("before", each["first"]), _answer("after", each["last"])]
        name = each["file"].text or f"sample {each['sample'].words}"
        photos.append(Photo(name, str(source) if fits else "", tuple(filter(None, lines))))
    if photos:
        title, said = "Where the two differ most", rest(part, len(photos), len(part))
        draft.blocks.append(Photos(title, tuple(photos), said, part.place))


def _answer(when: str, part: DocumentPart) -> str:
    if not part:
        return ""
    score = part["score"].number
    name = part["class"].words or part.words
    return f"{when}: {name}" + (f", {share(score)}" if score is not None else "")


def _of(part: DocumentPart, unit: str) -> str:
    return amount(part["value"].number, unit)


def _with_interval(part: DocumentPart, unit: str) -> str:
    ends = interval(part, unit)
    value = _of(part, unit)
    return f"{value} ({ends})" if ends else value


def _score(part: DocumentPart, unit: str) -> tuple[str, str]:
    return _of(part, unit), interval(part["interval"], unit)


def _pair(part: DocumentPart, key: str, unit: str) -> tuple[str, str]:
    return amount(part[key].number, unit), interval(part[f"{key}_interval"], unit)
