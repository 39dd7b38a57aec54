"""Charts say what their documents say: sums, shares, numbers and colours."""

import pytest
from matplotlib.text import Text

from deploykit.reporting.charts.bars import (
    BarRow,
    GainRow,
    classes,
    gain_rows,
    gains,
    layer_times,
    most_and_rest,
    nodes,
    ops,
)
from deploykit.reporting.charts.chart import Chart
from deploykit.reporting.charts.curves import loads, throughput
from deploykit.reporting.charts.strips import latencies
from deploykit.reporting.charts.style import MUTED, SERIES
from deploykit.transforms.common.errors import GraphError
from tests.deploykit.benchmarking.made_up_results import measurement, result
from tests.support import because, raises

PAIR = result(measurement("first.pb"), measurement("second.pb", 3.0))


def words(chart: Chart) -> list[str]:
    """Return the texts of a chart, from the top down and from the left."""
    figure = chart.figure()
    figure.draw_without_rendering()
    seen = [each for each in figure.findobj(Text) if each.get_text() and each.get_visible()]
    boxes = [(each.get_window_extent(), each.get_text()) for each in seen]
    middles = sorted(boxes, key=lambda each: (-round((each[0].y0 + each[0].y1) / 9), each[0].x0))
    return [text for _, text in middles]


@pytest.mark.sampled
@pytest.mark.parametrize("draw", [latencies, throughput, gains])
def test_a_result_and_its_document_give_one_chart(draw):
    assert words(draw(PAIR)) == words(draw(PAIR.document()))


@pytest.mark.parametrize("draw", [latencies, throughput])
def test_another_document_is_refused(draw):
    with raises(GraphError, "not-a"):
        draw({"kind": "else"})


def test_the_rest_is_a_sum():
    rows = [BarRow(str(n), (float(n), None if n < 9 else 1.0)) for n in range(20)]
    found = most_and_rest(rows, "ops", 12)
    assert [row.name for row in found] == [
        *map(str, range(19, 7, -1)),
        because("other-ops", count=8),
    ]
    assert found[-1].values == (28.0, None)
    assert len(most_and_rest(rows[:13], "ops", 12)) == 13  # one alone is no rest


def test_a_ratio_is_coloured_by_what_is_sure():
    sure, open_, lost = (
        GainRow.of("x", {"value": v, "low": v / 1.1, "high": v * 1.1}) for v in (2.0, 1.02, 0.5)
    )
    unknown = GainRow.of("x", {"value": 2.0, "low": None, "high": None})
    assert [each.colour for each in (sure, open_, lost, unknown)] == [
        SERIES[2], MUTED, SERIES[1], MUTED,
    ]  # fmt: skip
    assert sure.text == "2.00x (1.82-2.20)"
    assert unknown.text == because("interval-unknown", ratio="2.00x")
    for bad in (None, {"value": None}, {"value": 0.0}, {"value": float("nan")}, "x"):
        assert GainRow.of("x", bad) is None


def test_ratios_of_every_kind_of_document():
    ratio = {"value": 2.0, "low": 1.9, "high": 2.1}
    assert [row.name for row in gain_rows(PAIR)] == ["second.pb: speed"]
    assert gain_rows(PAIR)[0].value == pytest.approx(2.0, rel=0.01)
    tuned = {"kind": "tuned", "latency": {"times_faster": ratio, "times_the_items": ratio},
             "throughput": None}  # fmt: skip
    assert [row.name for row in gain_rows(tuned)] == [
        because("settings-speed", goal="latency"), because("settings-items", goal="latency"),
    ]  # fmt: skip
    quantized = {"speed": {"times_as_fast": 2.0, "low": 1.9, "high": 2.1, "against": "float",
                           "cpu_ratio": ratio}}  # fmt: skip
    assert [(row.name, row.high) for row in gain_rows(quantized)] == [
        (because("int8-speed", rival="float"), 2.1), (because("int8-cpu", rival="float"), 2.1),
    ]  # fmt: skip
    figures = {
        "p50": {"title": "p50 latency", "ratio": ratio},
        "accuracy": {"ratio": None},
        "size": {"unit": "bytes", "ratio": {"value": 4.0, "low": None, "high": None}},
    }
    ship = {"kind": "ship", "figures": figures}
    assert [row.name for row in gain_rows(ship)] == ["p50 latency", "size"]
    assert gain_rows(ship)[1].text == "4.00x"  # counted


def test_nothing_to_draw_is_none():
    nothing = {"measurements": [{"name": "a"}]}
    empty = {"nodes": [], "ops": []}
    assert [ops(nothing), nodes(empty), gains({}), layer_times({"layers": []}),
            classes({"models": [], "by_class": []}),
            loads({"loads": []})] == 6 * [None]  # fmt: skip


def test_shares_are_of_the_whole_call():
    found = {
        "name": "a",
        "profile": {"ops": [{"op": "Conv2D", "ms": 3.0}, {"op": "Add", "ms": 1.0}]},
    }
    shown = words(ops({"measurements": [found]}))
    assert {*shown[:2]} == {"Conv2D", "3.00 ms, 75.0 %"}
    assert {*shown[2:]} == {"Add", "1.00 ms, 25.0 %"}


def test_the_worst_class_comes_first():
    found = {"models": [{"name": "float"}, {"name": "8 bits"}], "by_class": [
        {"label": "shoe", "samples": 10, "models": [{"value": 0.9}, {"value": 0.8}]},
        {"label": "bag", "samples": 1, "models": [{"value": 0.7}, {"value": 0.5}]},
    ]}  # fmt: skip
    shown = words(classes(found))
    assert shown[:2] == ["float", "8 bits"]
    assert {*shown[2:5]} == {"bag (1 sample)", "70.0 %", "50.0 %"}
    assert {*shown[5:]} == {"shoe (10 samples)", "90.0 %", "80.0 %"}
