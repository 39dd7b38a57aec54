"""Whether a model still computes the same: the comparison, and what each step did to the graph."""

from collections.abc import Iterable

from deploykit.reporting.page.amounts import NOTHING, amount, plain, seconds, share, volume, whole
from deploykit.reporting.page.blocks import MOST_ROWS, Pictures, Section, SectionDraft
from deploykit.reporting.page.part import DocumentPart


def verification(part: DocumentPart, pictures: Pictures) -> Iterable[Section]:
    """Show a document of `deploykit verify`, or what another command says of its comparison."""
    draft = SectionDraft("Verification", part)
    _compared(draft, part)
    return draft.done()


def by_step(part: DocumentPart) -> Iterable[Section]:
    """Show the comparison after each stage of a shipped model that has one, and all of the last."""
    named = {each["stage"].text: each["document"] for each in part["stages"]}
    found = [
        ("optimized", named.get("optimize", part)["verification"]),
        ("in 8 bits, as it was written", named.get("quantize", part)["verification"]),
        ("the shipped model", named.get("verify", part)),
    ]
    known = [(name, each) for name, each in found if each["verified"].value is not None]
    if not known:
        return ()
    draft = SectionDraft("Verification", part["stages"])
    rows = [
        (name, each["bar"].words, plain(each["max_relative_error"].number),
         amount(each["sqnr_db"].number, "dB"), each["run"].words, _outcome(each))
        for name, each in known
    ]  # fmt: skip
    headings = ("beside the model as it came", "bar", "largest difference", "SQNR", "compared on",
                "outcome")  # fmt: skip
    draft.grid("Step by step", part["stages"], headings, rows, count=0,
               texts=["bar", "compared on", "outcome"])  # fmt: skip
    last = known[-1][1]
    draft.part = last
    _compared(draft, last)
    return draft.done()


def _outcome(part: DocumentPart) -> str:
    if not part["verified"].holds:
        return "not verified"
    return "differs" if part["passed"].value is False else "holds"


def steps(part: DocumentPart, pictures: Pictures) -> Iterable[Section]:
    """Show what the steps of `deploykit optimize` did, and how its result was compared."""
    draft = SectionDraft("Optimization, step by step", part)
    inner = part["verification"]
    before, after = ("nodes_before", "nodes") if part["nodes_before"] else ("nodes_in", "nodes_out")
    bytes_before, bytes_after = (
        ("bytes_before", "bytes") if part["bytes_before"] else ("bytes_in", "bytes_out")
    )
    draft.facts(
        part,
        ("nodes before", whole(part[before].number)),
        ("nodes after", whole(part[after].number)),
        ("size before", volume(part[bytes_before].number)),
        ("size after", volume(part[bytes_after].number)),
    )
    rows = [
        (each["transform"].text, whole(each["nodes"].number), seconds(each["seconds"].number),
         _skipped(each["skipped"]))
        for _, each in zip(range(MOST_ROWS), part["steps"], strict=False)
    ]  # fmt: skip
    headings = ("transform", "nodes after it", "time", "left alone")
    draft.grid("Steps", part["steps"], headings, rows, texts=["left alone"])
    if inner["verified"].value is None:
        _compared(draft, part)
    return draft.done()


def _skipped(part: DocumentPart) -> tuple[str, str]:
    if not part:
        return "", ""
    return whole(len(part)), part[0].text if len(part) < 2 else f"{part[0].text}; and others"


def _compared(draft: SectionDraft, part: DocumentPart) -> None:
    """Add the verdict of a comparison, and the figures of each output."""
    if part["verified"].value is None:
        return
    passed, bar = part["passed"].value, part["bar"].words
    if not part["verified"].holds:
        draft.say(f"Not verified: {part['reason'].text or 'nothing was compared'}", "doubt")
    elif passed is False:
        draft.say(f"The answers differ by more than allowed ({bar}). {part['reason'].text}", "bad")
    else:
        draft.say(f"The answers hold: {bar or 'within the bar'}.", "good")
    draft.say(part["doubt"].text, "doubt")
    draft.facts(
        part,
        ("compared on", part["run"].words),
        ("values compared", whole(part["compared_values"].number)),
        ("largest difference, of the largest value", plain(part["max_relative_error"].number)),
        ("signal to noise (SQNR)", amount(part["sqnr_db"].number, "dB")),
        ("accuracy before", share(part["accuracy_before"].number)),
        ("accuracy after", share(part["accuracy_after"].number)),
        ("time", seconds((part["run_seconds"] or part["seconds"]).number)),
    )
    outputs = part["by_output"]
    rows = [
        (name, plain(each["max_relative_error"].number), plain(each["rms_relative_error"].number),
         amount(each["sqnr_db"].number, "dB") if each["sqnr_db"] else NOTHING)
        for _, (name, each) in zip(range(MOST_ROWS), outputs.named(), strict=False)
    ]  # fmt: skip
    headings = ("output", "largest difference", "RMS difference", "SQNR")
    draft.grid("By output", outputs, headings, rows, count=_count(outputs))


def _count(part: DocumentPart) -> int:
    return len(part.value) if isinstance(part.value, dict) else 0
