"""The gate as JUnit XML, which CI servers show as tests."""

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from deploykit.gating.result import GateResult
from deploykit.gating.verdict import FAIL, INCONCLUSIVE, NO_LIMIT
from deploykit.transforms.common.messages import escaped

SUITE = "deploykit gate"


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
