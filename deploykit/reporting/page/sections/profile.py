"""What the time of a call goes to: by op, by node, and beside what the machine could do at most."""

from collections.abc import Iterable

from deploykit.reporting.page.amounts import NOTHING, plain, share, volume, whole
from deploykit.reporting.page.blocks import Pictures, Section, SectionDraft
from deploykit.reporting.page.part import DocumentPart

_MOST_PROFILES, _MOST_OPS, _MOST_NODES = 4, 15, 20


def profiles(part: DocumentPart, pictures: Pictures) -> Iterable[Section]:
    """Show the profiles of a document of `deploykit benchmark --profile`."""
    found = [each for each in part["measurements"] if each["profile"]]
    few = found[:_MOST_PROFILES]
    draft = SectionDraft("Time by op and node", part)
    if len(found) > len(few):
        draft.say(f"{len(few)} of {len(found)} profiles are shown; all of them are in "
                  f"{part['measurements'].place} in {part.file}.")  # fmt: skip
    draft.draw(pictures, part, "ops")
    for each in few:
        profile = each["profile"]
        _by_op(draft, each["name"].text, profile)
        _by_node(draft, each["name"].text, profile)
    yield from draft.done()
    yield from _roofline(part, few, pictures)


def _by_op(draft: SectionDraft, name: str, part: DocumentPart) -> None:
    ops = part["ops"]
    rows = [
        (each["op"].text, whole(each["calls"].number), plain(each["ms"].number),
         share(each["share"].number), _if_any(each["allocated"], volume),
         _if_any(each["gflops_per_second"], plain))
        for _, each in zip(range(_MOST_OPS), ops, strict=False)
    ]  # fmt: skip
    headings = ("op", "calls", "ms", "share", "memory", "GFLOP/s")
    draft.grid(f"{name}: by op", ops, headings, rows)


def _by_node(draft: SectionDraft, name: str, part: DocumentPart) -> None:
    nodes = part["nodes"]
    rows = [
        ((each["name"].text, each["op"].text), plain(each["ms"].number),
         share(each["share"].number), _if_any(each["gflops_per_second"], plain),
         _if_any(each["share_of_peak"], share), each["bound"].text or NOTHING)
        for _, each in zip(range(_MOST_NODES), nodes, strict=False)
    ]  # fmt: skip
    headings = ("node", "ms", "share", "GFLOP/s", "of the peak", "bound by")
    draft.grid(f"{name}: by node", nodes, headings, rows, texts=["bound by"])


def _roofline(
    part: DocumentPart, few: Iterable[DocumentPart], pictures: Pictures
) -> Iterable[Section]:
    """Show how near the models come to the peak of the machine."""
    draft = SectionDraft("Roofline", part)
    rows = []
    for each in few:
        profile = each["profile"]
        peak = profile["peak"]
        rows.append((each["name"].text, plain(peak["gflops"].number),
                     plain(peak["gigabytes"].number), plain(profile["gflops_per_second"].number),
                     share(profile["share_of_peak"].number),
                     share(profile["idle_share"].number)))  # fmt: skip
    if rows:
        draft.say("The peak is what this machine reached in a multiplication of large float32 "
                  "matrices and in adding large arrays; 8 bits and caches go beyond.")  # fmt: skip
        for each in few:
            draft.draw(pictures, each["profile"], "roofline", of=each["name"].text)
    headings = ("model", "peak GFLOP/s", "peak GB/s", "reached GFLOP/s", "of the peak",
                "time without any node")  # fmt: skip
    draft.grid("Beside the peak", part["measurements"], headings, rows, count=len(rows))
    return draft.done()


def _if_any(part: DocumentPart, words: object) -> str:
    return words(part.number) if part.number and callable(words) else NOTHING
