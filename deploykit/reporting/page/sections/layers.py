"""What became of each layer: float or 8 bits, its range, noise and time, and why."""

from collections.abc import Iterable

from deploykit.reporting.page.amounts import (
    NOTHING,
    amount,
    plain,
    ratio,
    seconds,
    span,
    whole,
)
from deploykit.reporting.page.blocks import MOST_ROWS, Pictures, Section, SectionDraft
from deploykit.reporting.page.part import DocumentPart

_MOST_LAYERS = 120
_KERNELS = {"eigen_us": "float µs", "onednn_us": "float, oneDNN µs", "float_us": "float µs here",
            "int8_us": "8 bits µs"}  # fmt: skip


def layers(part: DocumentPart, pictures: Pictures) -> Iterable[Section]:
    """Show a document of `deploykit quantize`."""
    draft = SectionDraft("Layers in 8 bits", part)
    found = part["layers"]
    if not found and not part["weights"]:
        return ()
    result, reason = part["result"].text, part["reason"].text
    if result:
        kept = "8 bits" if result == "int8" else "the float graph is kept"
        draft.say(f"{kept}: {reason}" if reason else kept, "good" if result == "int8" else "doubt")
    draft.say(part["engine_reason"].text)
    for note in part["notes"]:
        draft.say(note.text)
    gain = part["speed"]
    counted = f"{whole(part['int8_layers'].number)} of {whole(part['all_layers'].number)}"
    draft.facts(
        part,
        ("layers that can be in 8 bits", counted if part["all_layers"] else ""),
        ("speed in 8 bits", ratio(gain["times_as_fast"], gain["low"], gain["high"])),
        ("against", gain["against"].text),
        ("engine", part["engine"].text),
        ("instruction set", part["isa"].text),
        ("calibration samples", whole(part["calibration_samples"].number)),
    )
    draft.draw(pictures, part, "layer noise", "layer times")
    _table(draft, found)
    _weights(draft, part["weights"])
    rows = [(name, seconds(each.number)) for name, each in part["seconds_by_step"].named()]
    draft.grid("Time of the search", part["seconds_by_step"], ("step", "time"), rows, count=0)
    return draft.done()


def _table(draft: SectionDraft, found: DocumentPart) -> None:
    rows = []
    for _, each in zip(range(_MOST_LAYERS), found, strict=False):
        in_float = each["computes_in"].text != "int8"
        rows.append((
            (each["layer"].text, each["op"].text),
            "float" if in_float else "8 bits",
            span(each["min"].number, each["max"].number) or NOTHING,
            amount(each["sqnr_db"].number, "dB"),
            *(plain(each[key].number) for key in _KERNELS),
            each["why_float"].text or NOTHING,
        ))  # fmt: skip
    headings = ("layer", "computes in", "range", "SQNR alone", *_KERNELS.values(), "why float")
    draft.grid("Layers", found, headings, rows, texts=["computes in", "why float"])


def _weights(draft: SectionDraft, found: DocumentPart) -> None:
    rows = [
        (each["weight"].text, each["stored_in"].text, amount(each["sqnr_db"].number, "dB"),
         each["why_float"].text or NOTHING)
        for _, each in zip(range(MOST_ROWS), found, strict=False)
    ]  # fmt: skip
    headings = ("weights", "stored in", "SQNR", "why float")
    draft.grid("Weights", found, headings, rows, texts=["stored in", "why float"])
