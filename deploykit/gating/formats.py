"""The gate as text, with a table of checks, and as JUnit XML, which CI servers show as tests."""

import math
from collections.abc import Iterator
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from deploykit.gating.result import GateResult
from deploykit.gating.verdict import COMPATIBLE, FAIL, INCONCLUSIVE, NO_LIMIT
from deploykit.rendering.tables import Table
from deploykit.transforms.common.messages import escaped

SUITE = "deploykit gate"


def lines(result: GateResult) -> Iterator[str | Table]:
    """Yield the verdict, a table of the checks, and what else to know about them."""
    yield result.headline
    headings = ("check", "verdict", "change", "limit", "baseline", "candidate")
    cells = (
        (check.name, check.verdict, check.change_text, check.limit_text, *check.values)
        for check in result.checks
    )
    yield Table(headings, [tuple(map(escaped, row)) for row in cells], (0, 1))
    unknown: dict[str, list[str]] = {}  # names of checks, by the reason
    for check in result.checks:
        is_measured = not math.isnan(check.change)
        if is_measured and not check.is_known and check.verdict != INCONCLUSIVE:
            unknown.setdefault(check.note, []).append(check.name)
        elif check.verdict == INCONCLUSIVE or check.note not in ("", COMPATIBLE):
            yield check.sentence
    if unknown:
        groups = (", ".join(names) + f" ({why})" * bool(why) for why, names in unknown.items())
        yield f"interval unknown: {'; '.join(groups)}"
    yield from result.notes
    if result.samples:
        confidence = f"{100 * result.quality_confidence:.4g} % confidence"
        yield f"predictions: {result.samples:,} samples, {confidence}"
    if result.batch:
        load = f"; {result.busy}" if result.busy else ""
        yield (f"speed and memory: batch {result.batch}, {result.machine}, "
               f"{result.seconds:.0f} s in all{load}")  # fmt: skip


def junit_xml(result: GateResult) -> bytes:
    """Return a test suite with a test case for each check.

    A failed check is a failure, an inconclusive one an error, and one without a limit is skipped.
    So servers that treat errors as failures do not accept an inconclusive gate.
    """

    def count(verdict: str) -> str:
        return str(len(result.with_verdict(verdict)))

    seconds = f"{result.seconds:.3f}"
    counts = {"tests": str(len(result.checks)), "failures": count(FAIL),
              "errors": count(INCONCLUSIVE)}  # fmt: skip
    root = Element("testsuites", {"name": SUITE, "time": seconds, **counts})
    ends = {"skipped": count(NO_LIMIT), "time": seconds, "timestamp": result.started[:19]}
    suite = SubElement(root, "testsuite", {"name": SUITE, **counts, **ends})
    properties = SubElement(suite, "properties")
    for name in ("baseline", "candidate", "machine", "verdict"):
        SubElement(properties, "property", name=name, value=escaped(str(getattr(result, name))))
    for check in result.checks:
        name, text = escaped(check.name), escaped(check.sentence)
        case = SubElement(suite, "testcase", classname="deploykit.gate", name=name, time="0")
        if check.verdict == NO_LIMIT:
            SubElement(case, "skipped", message="no limit")
        elif check.verdict in (FAIL, INCONCLUSIVE):
            kind = "failure" if check.verdict == FAIL else "error"
            SubElement(case, kind, message=text, type=check.verdict).text = text
        first, second = check.values
        measured = f"baseline {first}, candidate {second}; {text}; decided by {check.decided_by}"
        SubElement(case, "system-out").text = escaped(measured)
    indent(root)
    content: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return content + b"\n"
