"""What it was measured on: processor, memory, versions."""

from collections.abc import Iterable

from deploykit.reporting.page.amounts import plain, volume, whole
from deploykit.reporting.page.blocks import Pictures, Section, SectionDraft
from deploykit.reporting.page.part import DocumentPart


def machine(part: DocumentPart, pictures: Pictures) -> Iterable[Section]:
    """Show the machine of a document."""
    found = part["machine"]
    draft = SectionDraft("Environment", found)
    flags = found["flags"]
    draft.facts(
        found,
        ("processor", found["cpu"].text),
        ("cores", whole(found["cores"].number)),
        ("usable processors", whole(found["cpus"].number)),
        ("limit of CPUs", plain(found["cpu_limit"].number)),
        ("memory", volume(found["memory_bytes"].number)),
        ("limit of memory", volume(found["memory_limit_bytes"].number)),
        ("platform", found["platform"].text),
        ("frequency governor", found["governor"].words),
        ("load before", found["load"].words),
        ("instruction sets", flags.words),
        *((name, each.words) for name, each in found["versions"].named()),
    )
    return draft.done()
