"""A chart in a page is small, bears no ids, and takes its colours from the page."""

import re
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from deploykit.reporting.charts import inline
from deploykit.reporting.charts.bars import BarRow, draw_bars
from deploykit.reporting.charts.figures import chart
from deploykit.reporting.charts.gains import gains
from deploykit.reporting.charts.latencies import latencies
from deploykit.reporting.charts.sheet import Place, Sheet
from deploykit.reporting.charts.style import SERIES, VARIABLES
from deploykit.reporting.charts.throughput import throughput
from tests.deploykit.benchmarking.made_up_results import measurement, result

SVG = "{http://www.w3.org/2000/svg}"
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
    with pytest.raises(ValueError, match="a chart for"):
        inline.svg(figure, "x")


@pytest.mark.parametrize("calls", [1, 100_000])
def test_many_calls_make_a_small_chart(calls):
    many = tuple(0.1 + (n * 7919 % 1000) / 1e5 + (n % 50 == 0) * n / 1e3 for n in range(calls))
    rows = [measurement(f"{n}", rounds_ms=(many,), rounds_seconds=(20.0,)) for n in range(3)]
    assert len(inline.svg(latencies(result(*rows)), "x")) < 20_000


def test_forty_rows_stay_below_forty_kilobytes():
    rows = [measurement(f"models/the model of number {n}.pb", 1.0 + n) for n in range(40)]
    assert len(inline.svg(latencies(result(*rows)), "x")) < 40_000


def test_a_stretched_chart_is_drawn_in_shares_of_the_width_of_its_page():
    """Bars, whiskers and texts are where they were, but marks and letters keep their size."""
    found = gains(PAIR)
    assert found is not None
    plain = ElementTree.fromstring(inline.svg(found, "x"))
    stretched = ElementTree.fromstring(inline.svg(found, "x", stretch=True))
    assert "viewBox" not in stretched.attrib
    assert "max-width" not in stretched.attrib["style"]
    width = float(plain.attrib["viewBox"].split()[2])
    for kind in ("text", "rect", "line"):
        assert list(stretched.iter(f"{SVG}{kind}")), kind
    assert not list(stretched.iter(f"{SVG}path"))
    texts = [list(each.iter(f"{SVG}text")) for each in (plain, stretched)]
    for before, after in zip(*texts, strict=True):
        assert before.text == after.text
        assert before.attrib["y"] == after.attrib["y"]
        share = float(after.attrib["x"].removesuffix("%"))
        assert share == pytest.approx(100 * float(before.attrib["x"]) / width, abs=0.01)
    one, end = (float(re.findall(r"[\d.]+", each)[0]) for each in _bar(stretched))
    assert 0 <= one < 100
    assert 0 < end <= 100


def _bar(root: ElementTree.Element) -> tuple[str, str]:
    bar = next(root.iter(f"{SVG}rect"))
    return bar.attrib["x"], bar.attrib["width"]


def test_marks_of_a_legend_are_not_stretched():
    rows = [BarRow("a", (1.0, 2.0)), BarRow("b", (3.0, None))]
    figure = chart(lambda sheet, place: draw_bars(sheet, place, rows, ["one", "two"], "ms"))
    boxes = list(ElementTree.fromstring(inline.svg(figure, "x", stretch=True)).iter(f"{SVG}rect"))
    wide = [each.attrib["width"] for each in boxes]
    assert [each.endswith("%") for each in wide] == [False] * 4 + [True] * 3
    assert float(wide[4][:-1]) * 3 == pytest.approx(float(wide[6][:-1]), rel=0.02)


def test_only_charts_of_bars_are_stretched():
    with pytest.raises(ValueError, match="bars, lines and"):
        inline.svg(chart(_triangle), "x", stretch=True)


def _triangle(sheet: Sheet, place: Place) -> float:
    sheet.marks([(20.0, 20.0)], SERIES[0], 9, "triangle")
    return 40.0
