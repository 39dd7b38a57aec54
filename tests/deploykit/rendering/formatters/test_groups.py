"""The table of groups begins with the noisiest, and leaves out the rest where there are many."""

import math

from deploykit.rendering.formatters.accuracy import group_table
from deploykit.verification.confidence import GroupCloseness
from tests.support import shows


def rows(groups):
    return group_table(groups, "samples by group").rows


def test_the_noisiest_group_comes_first():
    groups = [
        GroupCloseness("day", 40, 26.04, 25.0, 0.975, (0.87, 0.995)),
        GroupCloseness("few", 3, 24.0, None, 1.0, (0.44, 1.0)),
        GroupCloseness("same", 5, math.inf, math.inf, 1.0, (0.57, 1.0)),
        GroupCloseness("night", 9, 19.8, 18.1, 0.889, (0.57, 0.98)),
    ]
    assert rows(groups) == [
        ("night", "9", "19.8 dB", "18.1 dB", "88.9 % (57.0-98.0 %)"),
        ("few", "3", "24.0 dB", "-", "100.0 % (44.0-100.0 %)"),
        ("day", "40", "26.0 dB", "25.0 dB", "97.5 % (87.0-99.5 %)"),
        ("same", "5", "equal", "equal", "100.0 % (57.0-100.0 %)"),
    ]


def test_what_is_not_known_has_no_column():
    table = group_table(
        [GroupCloseness("a", 2), GroupCloseness("b", 3)], "",
        [("top1 of m", lambda group: {"a": "50.0 %", "b": "100.0 %"}[group.name])],
    )  # fmt: skip
    assert table.headings == ("group", "samples", "top1 of m")
    assert table.rows == [("a", "2", "50.0 %"), ("b", "3", "100.0 %")]


def test_of_many_groups_the_worst_are_shown():
    groups = [GroupCloseness(f"g{n}", 5, 40.0 - n, 39.0 - n) for n in range(21)]
    table = group_table(groups, "samples by group")
    assert [row[0] for row in table.rows] == [f"g{n}" for n in range(20, 10, -1)]
    assert shows(table.caption, "worst-groups", count=10, every=21)
    assert len(rows(groups[:20])) == 20
