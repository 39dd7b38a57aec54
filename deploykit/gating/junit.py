"""The gate as JUnit XML, which CI servers show as tests."""

from xml.etree import ElementTree

from deploykit.gating.result import GateResult
from deploykit.gating.verdict import FAIL, INCONCLUSIVE, NO_LIMIT, Check
from deploykit.transforms.common.messages import escaped

SUITE = "deploykit gate"
_OUTCOMES = {FAIL: "failure", INCONCLUSIVE: "error", NO_LIMIT: "skipped"}


def junit_xml(result: GateResult) -> bytes:
    """Return a test suite with a test case for each check.

    A failed check is a failure, an inconclusive one an error, and one without a limit is skipped.
    So servers that treat errors as failures do not accept an inconclusive gate.
    """
    counts = {
        "tests": str(len(result.checks)),
        "failures": str(len(result.with_verdict(FAIL))),
        "errors": str(len(result.with_verdict(INCONCLUSIVE))),
    }
    seconds = f"{result.seconds:.3f}"
    root = ElementTree.Element("testsuites", {"name": SUITE, "time": seconds, **counts})
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        {
            "name": SUITE,
            **counts,
            "skipped": str(len(result.with_verdict(NO_LIMIT))),
            "time": seconds,
            "timestamp": result.started[:19],
        },
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name in ("baseline", "candidate", "machine", "verdict"):
        ElementTree.SubElement(properties, "property", name=name,
                               value=escaped(str(getattr(result, name))))  # fmt: skip
    for check in result.checks:
        _add(suite, check)
    ElementTree.indent(root)
    content: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return content + b"\n"


def _add(suite: ElementTree.Element, check: Check) -> None:
    """Add a test case."""
    case = ElementTree.SubElement(
        suite, "testcase", classname="deploykit.gate", name=escaped(check.name), time="0"
    )
    text = escaped(check.sentence)
    if (outcome := _OUTCOMES.get(check.verdict)) == "skipped":
        ElementTree.SubElement(case, outcome, message="no limit")
    elif outcome is not None:
        ElementTree.SubElement(case, outcome, message=text, type=check.verdict).text = text
    first, second = check.values
    measured = f"baseline {first}, candidate {second}; {text}; decided by {check.decided_by}"
    ElementTree.SubElement(case, "system-out").text = escaped(measured)
