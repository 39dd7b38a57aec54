"""A chart in a page is small, has ids of its own, and takes its colours from the page."""

import re
from xml.etree import ElementTree

import pytest

from deploykit.reporting.charts import inline
from deploykit.reporting.charts.bars import BarRow, bar_chart, gains
from deploykit.reporting.charts.curves import throughput
from deploykit.reporting.charts.strips import latencies
from deploykit.reporting.charts.style import VARIABLES
from tests.deploykit.benchmarking.made_up_results import measurement, result

PAIR = result(measurement("first.pb"), measurement("second.pb", 3.0))
HOSTILE = ['<b>&"', ' id="m1" href="#m1"', "_$x_1$", "fill: #0072b2", "</text><script>"]


@pytest.mark.sampled
def test_it_is_an_image_with_a_name_and_loads_nothing():
    found = inline.svg(latencies(PAIR).figure(), 'before & "after" <b>')
    root = ElementTree.fromstring(found)
    assert root.tag.endswith("svg")
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == 'before & "after" <b>'
    assert "url(" not in found
    assert "<style" not in found


@pytest.mark.sampled
def test_ids_of_two_charts_in_a_page_differ_and_are_those_that_are_used():
    figure = throughput(PAIR).figure()
    ids = []
    for label in ("one", "two"):
        root = ElementTree.fromstring(inline.svg(figure, label))
        used = {each.attrib["href"][1:] for each in root.iter() if "href" in each.attrib}
        own = [each.attrib["id"] for each in root.iter() if "id" in each.attrib]
        assert used == set(own)
        ids += own
    assert len(ids) == len(set(ids)) > 0


@pytest.mark.sampled
def test_all_colours_can_be_set_by_the_page():
    for chart in (latencies(PAIR), throughput(PAIR), gains(PAIR)):
        found = inline.svg(chart.figure(), "x")
        colours = re.findall(r"(?:fill|stroke):([^;\"]+)", found)
        assert {each for each in colours if not each.startswith("var(--")} <= {"none"}
        assert not re.search(r"(?<!,)(?<!href=.)#[0-9a-f]{6}", found)
    for variable in VARIABLES.values():
        assert inline.CSS.count(f"{variable}:") == 2  # light and dark


def test_names_are_in_it_as_they_are():
    rows = [BarRow(name, (1.0, 2.0)) for name in HOSTILE]
    found = inline.svg(bar_chart(rows, HOSTILE[:2], "ms").figure(), "x")
    written = [each.text for each in ElementTree.fromstring(found).iter() if each.text]
    assert set(HOSTILE) <= set(written)
    assert written.count(HOSTILE[0]) == 2


@pytest.mark.sampled
def test_the_same_chart_is_the_same_text_and_the_figure_stays_as_it_is():
    figure, again = (latencies(PAIR).figure() for _ in range(2))
    assert inline.svg(figure, "x") == inline.svg(figure, "x") == inline.svg(again, "x")


@pytest.mark.sampled
@pytest.mark.parametrize("calls", [1, 100_000])
def test_many_calls_make_a_small_chart(calls):
    many = tuple(0.1 + (n * 7919 % 1000) / 1e5 + (n % 50 == 0) * n / 1e3 for n in range(calls))
    rows = [measurement(f"{n}", rounds_ms=(many,), rounds_seconds=(20.0,)) for n in range(3)]
    assert len(inline.svg(latencies(result(*rows)).figure(), "x")) < 25_000


@pytest.mark.sampled
def test_forty_rows_stay_below_sixty_kilobytes():
    rows = [measurement(f"models/the model of number {n}.pb", 1.0 + n) for n in range(40)]
    assert len(inline.svg(latencies(result(*rows)).figure(), "x")) < 60_000
