"""The smaller steps: whether a model is sound, calibration, the exported version, its service."""

from collections.abc import Iterable

from deploykit.reporting.page.amounts import seconds, volume, whole
from deploykit.reporting.page.blocks import MOST_ROWS, Pictures, Section, SectionDraft
from deploykit.reporting.page.part import DocumentPart


def soundness(part: DocumentPart, pictures: Pictures) -> Iterable[Section]:
    """Show a document of `deploykit check`."""
    draft = SectionDraft("Soundness", part)
    sound = part["sound"].value
    if isinstance(sound, bool):
        draft.say("The model is sound." if sound else "The model is not sound.",
                  "good" if sound else "bad")  # fmt: skip
    rows = []
    for _, each in zip(range(MOST_ROWS), part["graphs"], strict=False):
        problems = "; ".join(problem.text for problem in each["problems"])[:300]
        rows.append((each["tags"].words or "graph", whole(each["nodes"].number),
                     whole(each["functions"].number), whole(each["variables"].number),
                     volume(each["largest_constant_bytes"].number),
                     ", ".join(use["op"].text for use in each["effects"])[:300],
                     ", ".join(use["op"].text for use in each["custom_ops"])[:300],
                     problems))  # fmt: skip
    headings = ("graph", "nodes", "functions", "variables", "largest constant", "acts beyond it",
                "ops of others", "problems")  # fmt: skip
    draft.grid("Graphs", part["graphs"], headings, rows,
               texts=["acts beyond it", "ops of others", "problems"])  # fmt: skip
    return draft.done()


def calibration(part: DocumentPart, pictures: Pictures) -> Iterable[Section]:
    """Show what the calibration took."""
    draft = SectionDraft("Calibration", part)
    tensors = part["tensors"]
    draft.facts(
        part,
        ("samples", part["samples"].words),
        ("tensors", whole(len(tensors) or tensors.number)),
        ("method", part["method"].words),
    )
    return draft.done()


def exported(part: DocumentPart, pictures: Pictures) -> Iterable[Section]:
    """Show a document of `deploykit export`."""
    draft = SectionDraft("Exported version", part)
    engine = part["engine"]
    draft.facts(
        part,
        ("name", part["name"].text),
        ("version", part["version"].words),
        ("warm-up requests", whole(part["warm_up_requests"].number)),
        ("manifests", part["manifests"].words),
        ("engine", engine["name"].text),
        ("why", engine["why"].text),
    )
    signatures, rows = part["signatures"], []
    for name, each in signatures.named():
        for role in ("inputs", "outputs"):
            for tensor, facts in each[role].named():
                shape = f"{facts['dtype'].words} [{facts['shape'].words}]"
                rows.append((tensor, name, role[:-1], shape))
    headings = ("tensor", "signature", "role", "type and shape")
    draft.grid("Signatures", signatures, headings, rows[:MOST_ROWS], texts=headings,
               count=len(rows))  # fmt: skip
    return draft.done()


def served(part: DocumentPart, pictures: Pictures) -> Iterable[Section]:
    """Show the real request through a served instance."""
    draft = SectionDraft("A request to the served model", part)
    agrees = part["agrees"].value
    if isinstance(agrees, bool):
        draft.say("The served model gives the answer of the model itself." if agrees else
                  "The served model gives another answer than the model itself.",
                  "good" if agrees else "bad")  # fmt: skip
    draft.facts(
        part,
        ("address", part["address"].words),
        ("request", part["request"].words),
        ("answer", part["answer"].words),
        ("time", seconds(part["seconds"].number)),
        ("warm-up requests", whole(part["warm_up_requests"].number)),
    )
    return draft.done()
