"""Where the nodes run: on which device, in which precision, and what is copied for it."""

from collections.abc import Iterable

from deploykit.reporting.page.amounts import NOTHING, volume, whole
from deploykit.reporting.page.blocks import Pictures, Section, SectionDraft
from deploykit.reporting.page.part import DocumentPart

_MOST = 40


def placement(part: DocumentPart, pictures: Pictures) -> Iterable[Section]:
    """Show a document of `deploykit placement`."""
    draft = SectionDraft("Placement", part)
    asked, copied = part["fallbacks"], part["copies"]
    if part["ops_by_device"]:
        if asked:
            draft.say(f"{len(asked)} nodes ran on another device than the model asks for.", "doubt")
        else:
            draft.say("Every node ran on the device that the model asks for.", "good")
    draft.facts(
        part,
        ("engine", f"{part['engine'].text} {part['engine_version'].text}".strip()),
        ("devices", part["devices"].words),
        ("nodes of the model", whole(part["model_nodes"].number)),
        ("nodes that ran", whole(len(part["nodes"]) or len(part["executed"]) or None)),
        ("folded or fused before", whole(len(part["folded"])) if part["folded"] else ""),
        ("layers", whole(part["layers"].number)),
        ("layers in 8 bits", whole(part["layers_in_8_bits"].number)),
        ("ops that only convert", whole(part["conversions"].number)),
        ("copied between devices, a call", volume(part["copied_bytes"].number) if copied else ""),
    )
    _counts(draft, "Ops by device", "device", part["ops_by_device"])
    _counts(draft, "Ops by precision", "precision", part["ops_by_precision"])
    rows = [
        ((each["node"].text, each["op"].text), each["asked"].text or NOTHING, each["got"].text,
         each["why"].text)
        for _, each in zip(range(_MOST), asked, strict=False)
    ]  # fmt: skip
    headings = ("node", "asks for", "got", "why")
    draft.grid("On another device", asked, headings, rows, texts=headings)
    rows_of_copies = [
        (each["tensor"].text, each["source"].text, each["target"].text,
         volume(each["bytes"].number))
        for _, each in zip(range(_MOST), copied, strict=False)
    ]  # fmt: skip
    draft.grid("Copies", copied, ("tensor", "from", "to", "bytes"), rows_of_copies,
               texts=["from", "to"])  # fmt: skip
    return draft.done()


def _counts(draft: SectionDraft, title: str, name: str, part: DocumentPart) -> None:
    rows: list[tuple[str, str, str]] = []
    count = 0
    for where, ops in part.named():
        for op, each in ops.named():
            count += 1
            if len(rows) < _MOST:
                rows.append((op, where, whole(each.number)))
    draft.grid(title, part, ("op", name, "how often"), rows, texts=[name], count=count)
