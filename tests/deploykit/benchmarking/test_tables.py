"""What is shown of a result: its own figures, a ratio only where it is one, what has no effect."""

import csv
import dataclasses

import pytest

from deploykit.benchmarking.measurement import Turn
from deploykit.benchmarking.results import BenchmarkResult
from deploykit.benchmarking.run_config import RunConfig
from deploykit.benchmarking.run_config_grid import RunConfigGrid
from deploykit.benchmarking.statistics import summary
from deploykit.benchmarking.system_load import Conditions
from deploykit.benchmarking.tables import (
    csv_lines,
    number,
    tables,
)
from deploykit.rendering.tables import drawn
from deploykit.system.cpu_usage import Activity
from tests.deploykit.benchmarking.made_up_results import FACTS, measurement, result
from tests.support import assert_golden


def shown(found: BenchmarkResult, width: int = 80) -> str:
    return "\n".join(drawn(tables(found), width))


def rows(found: BenchmarkResult) -> list[dict[str, str]]:
    return list(csv.DictReader(csv_lines(found)))


@pytest.mark.parametrize(
    ("value", "text"),
    [(6.1234, "6.12"), (0.012345, "0.0123"), (99.96, "100"), (12345.6, "12346"), (0.0, "0"),
     (9.996, "10.0"), (float("inf"), "inf")],
)  # fmt: skip
def test_a_number_has_three_digits(value, text):
    assert number(value) == text


def turns(*cpu_ms: float) -> tuple[Turn, ...]:
    return tuple(Turn(block, 0, block, each, 0, 0) for block, each in enumerate(cpu_ms))


def openmp(*p50s, openmp=()):
    """Return the measurements of a sweep with OpenMP variables."""
    sweep = RunConfigGrid(kmp_blocktime="0", omp_num_threads=2, batch=(1, 8)[: len(p50s) // 2])
    return result(*(
        measurement(f"{number}", p50, settings, seed=number, model="a.pb",
                    facts=FACTS | {"openmp": list(openmp)})
        for number, (p50, settings) in enumerate(zip(p50s, sweep.settings(), strict=True))
    ))  # fmt: skip


def results() -> dict[str, BenchmarkResult]:
    """Return results by what is special about them."""
    one, other = measurement(), measurement("b.pb", 3.0)
    less = {name: getattr(other, name)[:-1] for name in ("rounds_ms", "rounds_seconds")}
    short = [
        dataclasses.replace(measurement(name, p50), rounds_ms=((p50,) * 3,), rounds_seconds=(1,))
        for name, p50 in (("a.pb", 6.0), ("b.pb", 3.0))
    ]
    activity = Activity(10, busy=2.0, idle=0, iowait=0, steal=0, waiting=0.9)
    plain, omp = openmp(6.0, 6.0).measurements
    wild = tuple((each,) * 3 for each in [3.0, 12.0] * 5)
    return {
        "alone": result(one),
        "faster": result(one, measurement("fast.pb", 4.0, seed=1)),
        "no difference": result(one, measurement("again.pb", 6.001, seed=1)),
        "CPU time": result(measurement(settings=RunConfig(batch=4), turns=turns(*[328.0] * 10))),
        "a busy machine": result(
            one, conditions=Conditions(activity, own_cores=0.8, reference_ms=1.0)
        ),
        "too few rounds": result(*short),
        "a round less": result(one, dataclasses.replace(other, **less), interrupted=True),
        "unstable": result(one, measurement("b.pb", settled=False)),
        "two settings": result(one, measurement("b.pb", facts=FACTS | {"onednn": False})),
        "nothing known": BenchmarkResult((measurement(facts={}),), {}, ""),
        "OpenMP without a runtime": openmp(6.0, 6.0),
        "OpenMP, faster": openmp(6.0, 4.0, openmp=["libiomp5.so"]),
        "OpenMP, slower without a runtime": openmp(6.0, 9.0),
        "OpenMP, scattered": result(plain, dataclasses.replace(omp, rounds_ms=wild)),
        "OpenMP, two batches": openmp(6.0, 6.0, 48.0, 24.0),
    }


@pytest.mark.golden("benchmark_tables")
def test_what_is_shown():
    assert_golden(*(f"{name}\n{shown(found)}\n" for name, found in results().items()))


def test_what_it_costs():
    one = measurement(settings=RunConfig(batch=4), turns=turns(*[41 * 8.0] * 10))
    assert (summary(one).cpu_ms, summary(one).core_seconds_per_1000) == (8.0, 2.0)
    assert (rows(result(one))[0]["cpu_ms"], rows(result(one))[0]["ratio_verdict"]) == ("8.0", "")


def test_ratios_compare_what_has_the_same_batch():
    found = [
        measurement(name, p50 * batch, RunConfig(batch=batch))
        for name, p50 in (("a.pb", 6.0), ("b.pb", 3.0))
        for batch in (1, 8)
    ]
    values = [each and round(each.wall.value, 2) for each in result(*found).judgements()]
    assert values == [None, None, 2.0, 2.0]


def test_a_long_name_is_folded_and_no_figure_is():
    name = f"efficientnet_lite0.frozen.optimized.quantized.pb, {RunConfig(8, (2, 1), False)}"
    text = shown(result(measurement(name), measurement("b.pb", 3.0)))
    assert max(map(len, text.partition("b.pb: ")[0].splitlines())) <= 80
    low, high = summary(measurement(name)).p50_interval
    assert f"{number(low)}-{number(high)}" in text


def test_csv_has_a_line_for_each_with_settings_and_figures():
    settings = RunConfig(batch=8, threads=(2, 1), onednn=False)
    odd = measurement('odd, "name"\n.pb', 3.0, settings)
    found = result(measurement(settings=RunConfig(batch=8)), odd)
    lines = rows(found)
    assert len(csv_lines(found)) == 3
    first, second = lines
    figures = summary(odd)
    assert second["name"] == odd.name
    assert (second["batch"], second["threads"], second["onednn"]) == ("8", "2x1", "False")
    assert (first["threads"], first["onednn"], first["onednn_in_force"]) == ("", "", "True")
    for name in ("p50", "p90", "p99", "p99_9", "mean", "min", "max", "items_per_second", "load_ms"):
        assert float(second[name]) == getattr(figures, name)
    assert (float(second["p50_low"]), float(second["p50_high"])) == figures.p50_interval
    assert (second["verdict"], second["calls"], second["samples"]) == ("stable", "410", "8")
    assert (first["ratio_value"], first["ratio_significant"]) == ("", "")
    assert float(second["ratio_value"]) == pytest.approx(2)
    assert second["ratio_significant"] == "True"
