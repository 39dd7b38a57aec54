"""The gate as JUnit XML, which CI servers show as tests."""

import re
from xml.etree import ElementTree

from deploykit.gating.result import GateResult
from deploykit.gating.verdict import FAIL, INCONCLUSIVE, NO_LIMIT, Check

SUITE = "deploykit gate"
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 does not allow."""
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
                               value=_allowed(str(getattr(result, name))))  # fmt: skip
    for check in result.checks:
        _add(suite, check)
    ElementTree.indent(root)
    content: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return content + b"\n"


def _add(suite: ElementTree.Element, check: Check) -> None:
    """Add a test case."""
    case = ElementTree.SubElement(
        suite, "testcase", classname="deploykit.gate", name=_allowed(check.name), time="0"
    )
    text = _allowed(check.sentence)
    if (outcome := _OUTCOMES.get(check.verdict)) == "skipped":
        ElementTree.SubElement(case, outcome, message="no limit")
    elif outcome is not None:
        ElementTree.SubElement(case, outcome, message=text, type=check.verdict).text = text
    first, second = check.values
    measured = f"baseline {first}, candidate {second}; {text}; decided by {check.decided_by}"
    ElementTree.SubElement(case, "system-out").text = _allowed(measured)


def _allowed(text: str) -> str:
    return _NOT_XML.sub("?", text)
