"""A chart in a page is small, bears no ids, and takes its colours from the page."""

import re
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from deploykit.reporting.charts import inline
from deploykit.reporting.charts.latencies import latencies
from deploykit.reporting.charts.style import VARIABLES
from deploykit.reporting.charts.throughput import throughput
from tests.deploykit.benchmarking.made_up_results import measurement, result

PAIR = result(measurement("first.pb"), measurement("second.pb", 3.0))


def test_it_is_an_image_with_a_name_and_no_ids():
    found = inline.svg(latencies(PAIR), 'before & "after" <b>')
    root = ElementTree.fromstring(found)
    assert root.tag.endswith("svg")
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == 'before & "after" <b>'
    assert not any("id" in each.attrib for each in root.iter())
    assert "url(" not in found
    assert "href" not in found


def test_all_colours_can_be_set_by_the_page():
    for figure in (latencies(PAIR), throughput(PAIR)):
        found = inline.svg(figure, "x")
        colours = re.findall(r"(?:fill|stroke):([^;\"]+)", found)
        assert {each for each in colours if not each.startswith("var(--")} <= {"none"}
        assert not re.search(r"(?<!,)#[0-9a-f]{6}", found)
    for variable in VARIABLES.values():
        assert inline.CSS.count(f"{variable}:") == 2  # light and dark


def test_the_texts_of_the_figure_are_in_it():
    figure = latencies(PAIR)
    root = ElementTree.fromstring(inline.svg(figure, "x"))
    written = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert sorted(written) == sorted(each.get_text() for each in figure.texts)


def test_the_same_chart_is_the_same_text_and_the_figure_stays_as_it_is():
    figure = latencies(PAIR)
    assert inline.svg(figure, "x") == inline.svg(figure, "x") == inline.svg(latencies(PAIR), "x")


def test_a_figure_with_clip_paths_is_refused():
    figure = Figure()
    figure.add_subplot().plot([1, 2])
    with pytest.raises(ValueError, match="a chart for a page has no"):
        inline.svg(figure, "x")


@pytest.mark.parametrize("calls", [1, 100_000])
def test_many_calls_make_a_small_chart(calls):
    many = tuple(0.1 + (n * 7919 % 1000) / 1e5 + (n % 50 == 0) * n / 1e3 for n in range(calls))
    rows = [measurement(f"{n}", rounds_ms=(many,), rounds_seconds=(20.0,)) for n in range(3)]
    assert len(inline.svg(latencies(result(*rows)), "x")) < 20_000


def test_forty_rows_stay_below_forty_kilobytes():
    rows = [measurement(f"models/the model of number {n}.pb", 1.0 + n) for n in range(40)]
    assert len(inline.svg(latencies(result(*rows)), "x")) < 40_000
