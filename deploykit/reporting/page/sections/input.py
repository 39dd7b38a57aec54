"""Whether the model or its input is the limit, for each style of input."""

from collections.abc import Iterable

from deploykit.reporting.page.amounts import NOTHING, plain, share, whole
from deploykit.reporting.page.blocks import Pictures, Section, SectionDraft
from deploykit.reporting.page.part import DocumentPart

_MOST = 12


def input_styles(part: DocumentPart, pictures: Pictures) -> Iterable[Section]:
    """Show a document of `deploykit benchmark --data DIR`."""
    draft = SectionDraft("Input", part)
    styles = part["styles"]
    few = [each for _, each in zip(range(_MOST), styles, strict=False)]
    for each in few:
        words = f"{each['style'].text}: {each['verdict'].text}"
        reason = "; ".join(filter(None, (each["reason"].text, each["next"].text)))
        draft.say(f"{words}. {reason}" if reason else words)
    data = part["data"]
    draft.facts(
        part,
        ("data", data["path"].text),
        ("kind", data["kind"].text),
        ("records", whole(data["records"].number)),
        ("batch", whole(part["batch"].number)),
        ("damaged files left out", whole(len(part["skipped"])) if part["skipped"] else ""),
    )
    rows = []
    for each in few:
        cpu, cores = each["cpu"].number, each["cores"].number
        busy = NOTHING if cpu is None else f"{plain(cpu)} of {plain(cores)}"
        rows.append((each["style"].text, plain(each["items_per_second"].number),
                     plain(each["compute_only"].number), plain(each["input_only"].number),
                     share(each["share_of_ceiling"].number), busy,
                     each["unstable"].words or NOTHING))  # fmt: skip
    headings = ("style", "items/s", "model alone", "input alone", "of what is possible",
                "busy cores", "unstable")  # fmt: skip
    draft.grid("Items a second", styles, headings, rows, texts=["unstable"])
    return draft.done()
