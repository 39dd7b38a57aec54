"""An axis holds its values, and its ticks are round, apart, and named in the unit that suits."""

import itertools

import numpy as np
import pytest

from deploykit.reporting.charts.lettering import text_width
from deploykit.reporting.charts.scale import Scale
from deploykit.reporting.charts.style import SMALL

RANGES = [
    (float(a), float(a * b)) for a in 10.0 ** np.arange(-3, 6) for b in (1, 1.001, 2, 50, 1e8)
]


@pytest.mark.parametrize(("low", "high"), RANGES)
@pytest.mark.parametrize("length", [60.0, 330.0])
def test_ticks_lie_inside_and_apart(low, high, length):
    scale = Scale.over([low, high], "ms")
    assert 0 <= scale.at(low) <= scale.at(high) <= 1
    ticks = scale.ticks_across(length, 0, 0)
    assert ticks or length < 100
    spans = [
        (t.share * length - text_width(t.label, SMALL) / 2,
         t.share * length + text_width(t.label, SMALL) / 2) for t in ticks
    ]  # fmt: skip
    assert all(start >= 0 and end <= length for start, end in spans)
    assert all(after[0] > before[1] for before, after in itertools.pairwise(spans))
    assert len({t.label for t in ticks}) == len(ticks)
    assert scale.ticks_along(200.0)


def test_a_tick_is_where_its_value_lies():
    long = Scale(1.0, 100.0, True, "ms")
    assert [(t.label, round(t.share, 3)) for t in long.ticks_across(330, 30, 30)] == [
        ("1 ms", 0), ("2 ms", 0.151), ("5 ms", 0.349), ("10 ms", 0.5), ("20 ms", 0.651),
        ("50 ms", 0.849), ("100 ms", 1),
    ]  # fmt: skip
    plain = Scale(0.0, 400.0, False, "count")
    assert [(t.label, t.share) for t in plain.ticks_along(100)] == [
        ("0", 0), ("100", 0.25), ("200", 0.5), ("300", 0.75), ("400", 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "kind", "label"),
    [(0.001, "ms", "1 µs"), (1.0, "ms", "1 ms"), (1e5, "ms", "100 s"), (25000.0, "count", "25k"),
     (0.5, "share", "50 %"), (0.5, "plain", "0.5"), (1500.0, "us", "1.5 ms")],
)  # fmt: skip
def test_a_label_has_the_unit_that_suits(value, kind, label):
    assert Scale(value, 2 * value, True, kind).label(value) == label


def test_whole_numbers_have_whole_ticks():
    ticks = Scale.even([1, 3], "number").ticks_across(330, 10, 10)
    assert [each.label for each in ticks] == ["1", "2", "3"]
