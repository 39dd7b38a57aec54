"""In no chart is a text cut off or covered, whatever the names and figures; each stays small."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from deploykit.reporting import plots
from deploykit.reporting.charts import lettering, value_plane
from deploykit.reporting.charts.classes import classes
from deploykit.reporting.charts.figures import chart
from deploykit.reporting.charts.gains import gains
from deploykit.reporting.charts.inline import svg
from deploykit.reporting.charts.latencies import latencies
from deploykit.reporting.charts.layers import layer_noise, layer_times
from deploykit.reporting.charts.profiles import nodes, ops
from deploykit.reporting.charts.replicas import replicas
from deploykit.reporting.charts.roofline import roofline
from deploykit.reporting.charts.throughput import loads, throughput, trials
from deploykit.reporting.charts.warm_ups import warm_ups
from deploykit.reporting.load_plot import plot_loads
from tests.deploykit.benchmarking.made_up_results import measurement, result
from tests.deploykit.reporting.charts import made_up_charts as made_up
from tests.deploykit.reporting.charts.legible import faults
from tests.support import Containing

SEEDS = [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 40))]
Charts = Iterator[Figure | None]


def of_benchmarks(rng: np.random.Generator) -> Charts:
    found = result(*made_up.measurements(rng))
    yield from (chart(found) for chart in (latencies, throughput, warm_ups, gains))


def of_profiles(rng: np.random.Generator) -> Charts:
    found = [made_up.a_profile(rng) for _ in range(int(rng.integers(1, 4)))]
    yield ops({"measurements": [{"name": made_up.a_name(rng), "profile": p} for p in found]})
    yield from (nodes(found[0]), roofline(found[0]))


def of_layers(rng: np.random.Generator) -> Charts:
    found = made_up.a_quantized(rng)
    yield from (layer_noise(found), layer_times(found), gains(found))


def of_others(rng: np.random.Generator) -> Charts:
    yield loads(made_up.a_load_test(rng))
    yield replicas(made_up.a_plan(rng))
    tuned = made_up.a_tuned(rng)
    yield from (trials(tuned), gains(tuned))
    yield gains(made_up.a_shipment(rng))
    yield classes(made_up.an_accuracy(rng))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("make", [of_benchmarks, of_profiles, of_layers, of_others])
def test_nothing_is_cut_off_or_covered(make: Callable[[np.random.Generator], Charts], seed):
    drawn = 0
    for figure in filter(None, make(np.random.default_rng(seed))):
        assert faults(figure) == []
        assert len(svg(figure, "x")) < 60_000
        drawn += 1
    assert drawn


@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_cut_off_in_pictures_in_files(seed, monkeypatch):
    rng, seen = np.random.default_rng(seed), []
    save = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda self, *a, **k: (seen.append(self), save(self, *a, **k))
    )
    plots.plot(result(*made_up.measurements(rng), measurement()), "a.svg")
    plot_loads(made_up.a_load_test(rng), "a.svg")
    assert [faults(figure) for figure in seen] == [[], []]


ENDS = [measurement("tiny", 1e-3), measurement("vast", 1e5)]


@pytest.mark.parametrize("draw", [latencies, throughput, warm_ups])
@pytest.mark.parametrize(
    "rows",
    [ENDS, [measurement(rounds_ms=((5.0,),), rounds_seconds=(0.005,), warm_up_ms=())],
     [measurement(f"{'a long name ' * 20}{n}") for n in range(40)]],
    ids=["a microsecond and 100 seconds", "one call", "forty long names"],
)  # fmt: skip
def test_the_ends_of_what_can_be(draw: Any, rows):
    assert faults(draw(result(*rows))) == []


def test_what_is_cut_off_or_covered_is_found():
    def draw(sheet, place):
        sheet.write(place.left, 20, "one text that is much too long for the page" * 2)
        sheet.write(place.left, 40, "one")
        sheet.write(place.left + 9, 42, "another")
        return 100.0

    found = faults(chart(draw))
    assert len(found) == 2
    assert found[0].endswith("sticks out")
    assert found[1] == Containing("'one' lies", "'another'")


def test_letters_that_are_wider_than_thought_are_found(monkeypatch):
    true = lettering._letter_width
    monkeypatch.setattr(lettering, "_letter_width", lambda letter, bold: 0.6 * true(letter, bold))
    assert faults(latencies(result(measurement("a long name, " * 9))))


def test_labels_that_do_not_keep_apart_are_found(monkeypatch):
    monkeypatch.setattr(value_plane, "_meet", lambda a, b: False)
    crowd = [{"callers": 10 + n, "rate": 0.0, "latency_ms": {"p50": 5 + n / 10, "p99": 9.0},
              "throughput": 100.0 + n, "generator_limited": False} for n in range(9)]  # fmt: skip
    assert faults(loads({"loads": crowd}))
    monkeypatch.undo()
    assert faults(loads({"loads": crowd})) == []
