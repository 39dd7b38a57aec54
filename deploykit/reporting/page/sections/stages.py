"""What was done, how long it took, and what was left out."""

from collections.abc import Iterable

from deploykit.reporting.page.amounts import seconds
from deploykit.reporting.page.blocks import MOST_ROWS, Pictures, Section, SectionDraft
from deploykit.reporting.page.part import DocumentPart
from deploykit.text.templates import sentence


def stages(part: DocumentPart, pictures: Pictures) -> Iterable[Section]:
    """Show the stages of a report of `deploykit ship`, and the options it was called with."""
    found = part["stages"]
    draft = SectionDraft("Stages", found)
    rows = [
        (each["stage"].text, each["outcome"].text, seconds(each["seconds"].number),
         "kept from before" if each["kept"].holds else "", sentence(each["why"].text))
        for _, each in zip(range(MOST_ROWS), found, strict=False)
    ]  # fmt: skip
    headings = ("stage", "outcome", "time", "result", "why")
    draft.grid("What was done", found, headings, rows, texts=["outcome", "result", "why"])
    given = [(name.replace("_", " "), each.words) for name, each in part["options"].named()]
    draft.facts(part["options"], *given[:MOST_ROWS])
    return draft.done()
