"""What the time of a call goes to: by op, by node, and beside what the machine could do at most."""

from collections.abc import Iterable, Mapping

from deploykit.reporting.page.amounts import NOTHING, plain, share, volume, whole
from deploykit.reporting.page.blocks import Pictures, Section, SectionDraft
from deploykit.reporting.page.part import DocumentPart

_MOST_PROFILES, _MOST_OPS, _MOST_NODES = 4, 15, 20


def profiles(
    part: DocumentPart, pictures: Pictures, shipped: str = "", elsewhere: str = ""
) -> Iterable[Section]:
    """Show the profiles of a document of `deploykit benchmark --profile`.

    Args:
        part: the document.
        pictures: draws.
        shipped: the name of the measurement of what is shipped, if it is among these.
        elsewhere: the engine that runs what is shipped, if that is not among these.
    """
    found = [each for each in part["measurements"] if each["profile"]]
    few = found[:_MOST_PROFILES]
    of = f", TensorFlow graphs (the shipped one runs in {elsewhere})" if elsewhere else ""
    draft = SectionDraft(f"Time by op and node{of}", part)
    if few and elsewhere:
        draft.say(f"These are the float32 graphs in TensorFlow: what is shipped runs in "
                  f"{elsewhere}, whose time is not measured by op.", "doubt")  # fmt: skip
    if len(found) > len(few):
        draft.say(f"{len(few)} of {len(found)} profiles are shown; all of them are in "
                  f"{part['measurements'].place} in {part.file}.")  # fmt: skip
    names = [_name(each, shipped) for each in few]
    draft.draw(pictures, part, "ops", of=", ".join(names) + of)
    for name, each in zip(names, few, strict=True):
        _by_op(draft, name, each["profile"])
        _by_node(draft, name, each["profile"])
    yield from draft.done()
    yield from _roofline(part, dict(zip(names, few, strict=True)), pictures, of)


def _name(part: DocumentPart, shipped: str) -> str:
    """Return what a measurement is called, and whether it is what is shipped."""
    name = part["name"].text
    return f"{name} (shipped)" if name == shipped else name


def _by_op(draft: SectionDraft, name: str, part: DocumentPart) -> None:
    ops = part["ops"]
    rows = [
        (each["op"].text, whole(each["calls"].number), plain(each["ms"].number),
         share(each["share"].number), _if_any(each["allocated"], volume),
         _if_any(each["gflops_per_second"], plain))
        for _, each in zip(range(_MOST_OPS), ops, strict=False)
    ]  # fmt: skip
    headings = ("op", "calls", "ms", "share", "memory", "GFLOP/s")
    draft.grid(f"By op: {name}", ops, headings, rows)


def _by_node(draft: SectionDraft, name: str, part: DocumentPart) -> None:
    nodes = part["nodes"]
    rows = [
        ((each["name"].text, each["op"].text), plain(each["ms"].number),
         share(each["share"].number), _if_any(each["gflops_per_second"], plain),
         _if_any(each["share_of_peak"], share), each["bound"].text or NOTHING)
        for _, each in zip(range(_MOST_NODES), nodes, strict=False)
    ]  # fmt: skip
    headings = ("node", "ms", "share", "GFLOP/s", "of the peak", "bound by")
    draft.grid(f"By node: {name}", nodes, headings, rows, texts=["bound by"])


def _roofline(
    part: DocumentPart, few: Mapping[str, DocumentPart], pictures: Pictures, of: str
) -> Iterable[Section]:
    """Show how near the models come to the peak of the machine."""
    draft = SectionDraft(f"Roofline{of}", part)
    rows = []
    for name, each in few.items():
        profile = each["profile"]
        peak = profile["peak"]
        rows.append((name, plain(peak["gflops"].number),
                     plain(peak["gigabytes"].number), plain(profile["gflops_per_second"].number),
                     share(profile["share_of_peak"].number),
                     share(profile["idle_share"].number)))  # fmt: skip
    if rows:
        draft.say("The peak is what this machine reached in a multiplication of large float32 "
                  "matrices and in adding large arrays; 8 bits and caches go beyond.")  # fmt: skip
        for name, each in few.items():
            draft.draw(pictures, each["profile"], "roofline", of=f"{name}{of}")
    headings = ("model", "peak GFLOP/s", "peak GB/s", "reached GFLOP/s", "of the peak",
                "time without any node")  # fmt: skip
    draft.grid("Beside the peak", part["measurements"], headings, rows, count=len(rows))
    return draft.done()


def _if_any(part: DocumentPart, words: object) -> str:
    return words(part.number) if part.number and callable(words) else NOTHING
