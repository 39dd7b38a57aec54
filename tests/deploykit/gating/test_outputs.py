"""What the gate writes for CI servers: JUnit XML and the table."""

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as some

from deploykit.gating.formats import junit_xml, lines
from deploykit.gating.result import GateResult
from deploykit.gating.verdict import FAIL, INCONCLUSIVE, NO_LIMIT, PASS, UNKNOWN, Check
from deploykit.rendering.tables import drawn
from tests.support import assert_golden

CHECKS = (
    Check("signatures", None, None, "", float("nan"), UNKNOWN, None, PASS, "names", "compatible"),
    Check.of("size", (255_089.0, 310_000.0), "bytes", 0.215, (0.215, 0.215), 0.1, "exact size"),
    Check.of("accuracy (top1)", (0.905, 0.9), "", 0.005, (-0.001, 0.012), 0.01, "1,000 labels"),
    Check.of("changed predictions", (0.0, 0.02), "", 0.02, (0.012, 0.034), None, "1,000 samples"),
    Check.of("latency p50", (1.23, 1.24), "ms", 0.0081, (-0.01, 0.02), 0.05, "CPU time", "noisy"),
    Check.of("latency p99", (4.0, 4.1), "ms", 0.025, UNKNOWN, 0.1, "wall time", "too few calls"),
    Check.of("throughput", (812.0, 805.0), "samples/s", 0.009, (-0.02, 0.04), None, "wall time"),
    Check.of("memory peak", (4.2e8, 4.3e8), "bytes", 0.024, (0.02, 0.028), 0.1, "4 pairs"),
    Check.of("start-up", (1.2, 1.0), "s", -0.17, UNKNOWN, None, "2 pairs", "only 2 pairs"),
)
RESULT = GateResult("old.pb", "new.pb", CHECKS, 1000, 1, 0.99, "2026-11-27T23:00:00+00:00", 71.3,
                    120.0, "Some CPU, 2 cores", "other processes use 1.9 cores",
                    ("a note",))  # fmt: skip


@pytest.mark.golden("gate/outputs")
def test_the_table_in_80_columns():
    table = "\n".join(drawn(lines(RESULT), 80))
    assert max(map(len, table.split("\n\n")[1].splitlines())) <= 80
    assert_golden(table)


def named(name, verdict=FAIL, note=""):
    interval = {FAIL: (0.2, 0.2), INCONCLUSIVE: (0.0, 0.2), PASS: (0, 0)}[verdict]
    found = Check.of(name, (1.0, 1.2), "", 0.2, interval, 0.1, "exact", note)
    return GateResult(name, name, (found,), 0, 0, 0.99, "2026-11-27T23:00:00", 1.0, 1.0, name)


TEXT = some.text(some.characters(codec="utf-8"), max_size=30)


@pytest.mark.sampled
@given(TEXT)
def test_junit_is_xml_with_the_counts_of_its_cases(text):
    root = ElementTree.fromstring(junit_xml(named(text)))
    assert [each.tag for each in root] == ["testsuite"]
    assert len(root.findall(".//failure")) == 1


def test_junit_follows_the_schema():
    """The rules of Jenkins' and Ant's schemas: tags in order, and attributes with their types."""
    content = junit_xml(RESULT)
    assert content.startswith(b"<?xml version=")
    root = ElementTree.fromstring(content)
    (suite,) = root
    assert (root.tag, suite.tag) == ("testsuites", "testsuite")
    assert suite[0].tag == "properties"
    assert {each.tag for each in suite[0]} == {"property"}
    assert all({*each.attrib} == {"name", "value"} for each in suite[0])
    cases = suite[1:]
    assert {each.tag for each in cases} == {"testcase"}
    for case in cases:
        assert {*case.attrib} == {"classname", "name", "time"}
        tags = [each.tag for each in case]
        assert tags[-1] == "system-out"
        assert tags[:-1] in ([], ["failure"], ["error"], ["skipped"])
        assert float(case.attrib["time"]) >= 0
    counts = {name: int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": 9, "failures": 1, "errors": 2, "skipped": 3}
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert len(suite.findall(f"testcase/{tag}")) == counts[name]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.attrib["timestamp"])
    assert float(suite.attrib["time"]) == 71.3
    assert len({case.attrib["name"] for case in cases}) == len(cases)


@pytest.mark.parametrize(
    ("unit", "change", "interval", "text"),
    [
        ("ms", -0.739, (-0.75, -0.73), "0.261x, faster (-75.0 to -73.0 %)"),
        ("ms", 0.08, (0.06, 0.09), "1.08x, slower (+6.00 to +9.00 %)"),
        ("ms CPU", 0.01, (-0.01, 0.02), "1.01x (-1.00 to +2.00 %)"),
        ("s", -0.2, UNKNOWN, "0.8x"),
        ("s", 1.0, (0.5, math.inf), "2x, slower (+50.0 to unknown %)"),
        ("s", -0.2, (-math.inf, 0.1), "0.8x (unknown to +10.0 %)"),
        ("bytes", -0.686, (-0.686, -0.686), "0.314x, smaller (-68.6 %)"),
        ("bytes", 0.0, (0.0, 0.0), "1x (+0.00 %)"),
        ("samples/s", -0.234, (-0.588, -0.1), "1.23x, higher (+10.0 to +58.8 %)"),
        ("mae", 0.5, (0.2, 0.9), "1.5x, worse (+20.0 to +90.0 %)"),
        ("", 0.02, (0.012, 0.034), "+2.00 points, worse (+1.20 to +3.40)"),
        ("ms", math.nan, UNKNOWN, "-"),
    ],
)
def test_a_change_is_named_only_if_its_interval_excludes_none(unit, change, interval, text):
    assert Check.of("x", (1, 1), unit, change, interval, None, "y").change_text == text


def test_a_lower_accuracy_is_negative():
    found = Check.of("accuracy (top1)", (0.9, 0.89), "", 0.01, (0.002, 0.02), None, "y")
    assert found.change_text == "-1.00 points, worse (-2.00 to -0.20)"


def test_a_check_without_a_limit_is_never_a_failure():
    assert CHECKS[3].verdict == NO_LIMIT
