"""In no chart is a text cut off or covered, whatever the names and figures; each stays small."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from deploykit.reporting.charts import plots
from deploykit.reporting.charts.bars import classes, gains, layer_times, nodes, ops
from deploykit.reporting.charts.chart import Chart
from deploykit.reporting.charts.curves import loads, throughput
from deploykit.reporting.charts.inline import MAX_BYTES, svg
from deploykit.reporting.charts.strips import latencies
from deploykit.reporting.charts.style import distinct, shortened, text_width
from tests import pairwise
from tests.deploykit.benchmarking.made_up_results import measurement, result
from tests.deploykit.reporting.charts import made_up_charts as made_up
from tests.deploykit.reporting.charts.legible import faults
from tests.support import Containing

SEEDS = pairwise.drawn(__name__, range(20), 6)
Charts = Iterator[Chart | None]


def of_benchmarks(rng: np.random.Generator) -> Charts:
    found = result(*made_up.measurements(rng))
    yield from (chart(found) for chart in (latencies, throughput, gains))


def of_profiles(rng: np.random.Generator) -> Charts:
    found = [made_up.a_profile(rng) for _ in range(int(rng.integers(1, 4)))]
    yield ops({"measurements": [{"name": made_up.a_name(rng), "profile": p} for p in found]})
    yield nodes(found[0])


def of_layers(rng: np.random.Generator) -> Charts:
    found = made_up.a_quantized(rng)
    yield from (layer_times(found), gains(found))


def of_others(rng: np.random.Generator) -> Charts:
    yield loads(made_up.a_load_test(rng))
    yield gains(made_up.a_tuned(rng))
    yield gains(made_up.a_shipment(rng))
    yield classes(made_up.an_accuracy(rng))


@pytest.mark.sampled
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("make", [of_benchmarks, of_profiles, of_layers, of_others])
def test_nothing_is_cut_off_or_covered(make: Callable[[np.random.Generator], Charts], seed):
    drawn = 0
    for chart in filter(None, make(np.random.default_rng(seed))):
        figure = chart.figure()
        assert faults(figure) == []
        assert len(svg(figure, "x")) < MAX_BYTES
        drawn += 1
    assert drawn


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_cut_off_in_pictures_in_files(seed, monkeypatch):
    rng, seen = np.random.default_rng(seed), []
    save = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda self, *a, **k: (seen.append(self), save(self, *a, **k))
    )
    plots.plot(result(*made_up.measurements(rng), measurement()), "a.svg")
    plots.plot_loads(made_up.a_load_test(rng), "a.svg")
    assert [faults(figure) for figure in seen] == [[], []]


ENDS = [measurement("tiny", 1e-3), measurement("vast", 1e5)]


@pytest.mark.sampled
@pytest.mark.parametrize("draw", [latencies, throughput])
@pytest.mark.parametrize(
    "rows",
    [ENDS, [measurement(rounds_ms=((5.0,),), rounds_seconds=(0.005,))],
     [measurement(f"{'a long name ' * 20}{n}") for n in range(40)]],
    ids=["a microsecond and 100 seconds", "one call", "forty long names"],
)  # fmt: skip
def test_the_ends_of_what_can_be(draw: Any, rows):
    assert faults(draw(result(*rows)).figure()) == []


LONG = "efficientnet-lite0/blocks_24/depthwise_conv2d, batch 8, 2 threads, oneDNN on " * 3


@pytest.mark.sampled
@pytest.mark.parametrize(
    "name", ["$x_1$", "_x", "<b>&", "a" * 80, "W" * 300, "模型" * 60, LONG, ""]
)
def test_odd_names_are_shown_as_they_are_or_without_their_middle(name):
    pair = result(measurement(name), measurement(f"{name}2", 3.0))
    node = {"name": name, "op": name, "ms": 1.0}
    profile = {"ops": [node], "nodes": [node]}
    drawn = [latencies(pair), throughput(pair), gains(pair), nodes(profile),
             ops({"measurements": [{"name": name, "profile": profile}] * 2})]  # fmt: skip
    for chart in drawn:
        figure = chart.figure()
        assert faults(figure) == []
        texts = "\n".join(each.get_text() for each in figure.findobj(Text))
        assert "/" in name or name[:9] in texts  # of a path, a legend has the end
        assert name[-9:] in texts


@pytest.mark.parametrize("text", [LONG, "W" * 300, "模型" * 60, "a b " * 80, "x", ""])
@pytest.mark.parametrize("width", [60.0, 370.0])
def test_a_text_fits_and_loses_its_middle_only(text, width):
    found = shortened(text, 12, width)
    assert text_width(found, 12) <= width
    start, dots, end = found.partition("…")
    assert found == text if not dots else text.startswith(start) and text.endswith(end)


def test_names_that_differ_in_the_middle_stay_apart():
    found = distinct([f"{'start ' * 20}{n}{' end' * 30}" for n in range(3)], 12, 300)
    assert [name[:2] for name in found] == ["1.", "2.", "3."]
    assert shortened("a\x07\ud800", 12, 300) == "a\\x07\\ud800"


def test_what_is_cut_off_or_covered_is_found():
    def draw(figure):
        figure.text(0.1, 0.5, "one text that is much too long for the page" * 4)
        figure.text(0.1, 0.1, "one")
        figure.text(0.11, 0.12, "another")
        return figure.add_subplot(visible=False)

    found = [each for each in faults(Chart(100.0, draw).figure()) if "shape" not in each]
    assert len(found) == 2
    assert found[0].endswith("sticks out")
    assert found[1] == Containing("'one'", "'another'")


def test_labels_of_points_keep_apart_or_are_hidden():
    crowd = [{"callers": 10 + n, "rate": 0.0, "latency_ms": {"p50": 5 + n / 10, "p99": 9.0},
              "throughput": 100.0 + n, "generator_limited": False} for n in range(9)]  # fmt: skip
    figure = loads({"loads": crowd}).figure()
    assert faults(figure) == []
    shown = [each for each in figure.findobj(Text) if each.get_visible()]
    assert {"10 clients", "18 clients"} <= {each.get_text() for each in shown}
