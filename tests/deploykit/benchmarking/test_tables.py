"""What is shown of a result: its own figures, a ratio only where it is one, what has no effect."""

import csv
import dataclasses

import pytest

from deploykit.benchmarking.measurement import Turn
from deploykit.benchmarking.results import BenchmarkResult
from deploykit.benchmarking.run_config import RunConfig
from deploykit.benchmarking.run_config_grid import RunConfigGrid
from deploykit.benchmarking.speed_verdict import judge
from deploykit.benchmarking.statistics import summary
from deploykit.benchmarking.system_load import Conditions
from deploykit.benchmarking.tables import (
    csv_lines,
    machine_line,
    number,
    openmp_lines,
    tables,
)
from deploykit.rendering.tables import drawn
from deploykit.system.cpu_usage import Activity
from tests.deploykit.benchmarking.made_up_results import FACTS, measurement, result
from tests.support import Containing


def shown(found: BenchmarkResult, width: int = 80) -> str:
    return "\n".join(drawn(tables(found), width))


def cells(text: str, name: str) -> list[list[str]]:
    """Return the words after a name, in each of the tables."""
    lines = [line.strip() for line in text.splitlines()]
    return [line.removeprefix(name).split() for line in lines if line.startswith(f"{name} ")]


def rows(found: BenchmarkResult) -> list[dict[str, str]]:
    return list(csv.DictReader(csv_lines(found)))


@pytest.mark.parametrize(
    ("value", "text"),
    [(6.1234, "6.12"), (0.012345, "0.0123"), (99.96, "100"), (12345.6, "12346"), (0.0, "0"),
     (9.996, "10.0"), (float("inf"), "inf")],
)  # fmt: skip
def test_a_number_has_three_digits(value, text):
    assert number(value) == text


def test_the_tables_hold_the_figures():
    one = measurement()
    figures = summary(one)
    speed, start = cells(shown(result(one)), "a.pb")
    assert speed == ["6.00", number(figures.p90), number(figures.p99), number(1000 / figures.mean)]
    assert start == ["98.2", "444", "512", "MB", "stable"], "CPU time is unknown"
    low, high = figures.p50_interval
    assert f"{number(low)}-{number(high)}" in shown(result(one))


def test_below_are_the_machine_and_the_warm_up():
    text = shown(result(measurement()))
    assert text == Containing("AMD EPYC 7R13", "2 cores", "TensorFlow 2.21.0", "oneDNN")
    assert "0.04 s after" in text
    assert "ratio" not in text


def test_a_ratio_stands_beside_the_first():
    fast = measurement("fast.pb", 4.0, seed=1)
    text = shown(result(measurement(), fast))
    assert cells(text, "a.pb")[0][-1] == "1"
    found = judge(measurement(), fast)
    assert cells(text, "fast.pb")[0][-1] == f"{number(found.wall.value)}x"
    assert abs(found.wall.value - 1.5) < 0.01
    assert f"{number(found.wall.low)}-{number(found.wall.high)}" in text
    assert f"fast.pb: {found.verdict}" in " ".join(text.split())


def test_what_makes_no_difference_is_said():
    text = shown(result(measurement(), measurement("again.pb", 6.001, seed=1)))
    assert "again.pb: no difference above 0." in text


def turns(*cpu_ms: float) -> tuple[Turn, ...]:
    return tuple(Turn(block, 0, block, each, 0, 0) for block, each in enumerate(cpu_ms))


def test_what_it_costs_stands_beside_the_latency():
    one = measurement(settings=RunConfig(batch=4), turns=turns(*[41 * 8.0] * 10))
    assert (summary(one).cpu_ms, summary(one).core_seconds_per_1000) == (8.0, 2.0)
    speed, start = cells(shown(result(one)), "a.pb")
    assert (speed[3], start[4]) == ("8.00", "2.00")
    assert "core-s/1000: CPU time in seconds" in shown(result(one))
    assert (rows(result(one))[0]["cpu_ms"], rows(result(one))[0]["ratio_verdict"]) == ("8.0", "")


def test_a_busy_machine_is_told():
    activity = Activity(10, busy=2.0, idle=0, iowait=0, steal=0, waiting=0.9)
    conditions = Conditions(activity, own_cores=0.8, reference_ms=1.0)
    text = shown(result(measurement(), conditions=conditions))
    mark = "measured on a loaded machine: other processes used 1.2 of 2 cores"
    assert text == Containing(f"{mark}", "latencies are only")
    assert "busy" not in shown(result(measurement()))


def test_too_few_rounds_are_said():
    short = [
        dataclasses.replace(measurement(name, p50), rounds_ms=((p50,) * 3,), rounds_seconds=(1,))
        for name, p50 in (("a.pb", 6.0), ("b.pb", 3.0))
    ]
    assert "too few rounds" in shown(result(*short))
    assert "b.pb: inconclusive: too few sessions" in shown(result(*short))
    assert rows(result(*short))[1]["ratio_high"] == "inf"


def test_ratios_compare_what_has_the_same_batch():
    found = [
        measurement(name, p50 * batch, RunConfig(batch=batch))
        for name, p50 in (("a.pb", 6.0), ("b.pb", 3.0))
        for batch in (1, 8)
    ]
    values = [each and round(each.wall.value, 2) for each in result(*found).judgements()]
    assert values == [None, None, 2.0, 2.0]


def test_a_round_that_one_lacks_is_left_out():
    first, other = measurement(), measurement("b.pb", 3.0)
    other = dataclasses.replace(
        other, rounds_ms=other.rounds_ms[:-1], rounds_seconds=other.rounds_seconds[:-1]
    )
    found = result(first, other, interrupted=True)
    assert found.judgements()[1].significant
    assert "interrupted" in shown(found)


def test_a_long_name_is_folded_and_no_figure_is():
    name = f"efficientnet_lite0.frozen.optimized.quantized.pb, {RunConfig(8, (2, 1), False)}"
    text = shown(result(measurement(name), measurement("b.pb", 3.0)))
    assert max(map(len, text.partition("b.pb: ")[0].splitlines())) <= 80
    low, high = summary(measurement(name)).p50_interval
    assert f"{number(low)}-{number(high)}" in text


def test_unstable_says_why():
    text = shown(result(measurement(), measurement("b.pb", settled=False)))
    assert cells(text, "b.pb")[1][-1] == "unstable"
    assert text == Containing("b.pb: unstable", "3 calls")
    assert "a.pb: " not in text


def test_the_machine_line_names_both_of_two_settings():
    off = measurement("b.pb", facts=FACTS | {"onednn": False})
    assert machine_line(result(measurement(), off)).endswith("off and on")
    assert machine_line(BenchmarkResult((measurement(facts={}),), {}, "")) == (
        Containing("CPU", "TensorFlow unknown")
    )


def openmp(*p50s, openmp=()):
    """Return the measurements of a sweep with OpenMP variables."""
    sweep = RunConfigGrid(kmp_blocktime="0", omp_num_threads=2, batch=(1, 8)[: len(p50s) // 2])
    return result(*(
        measurement(f"{number}", p50, settings, seed=number, model="a.pb",
                    facts=FACTS | {"openmp": list(openmp)})
        for number, (p50, settings) in enumerate(zip(p50s, sweep.settings(), strict=True))
    ))  # fmt: skip


def test_openmp_variables_without_a_runtime_have_no_effect():
    (line,) = openmp_lines(openmp(6.0, 6.0))
    assert line.startswith("KMP_BLOCKTIME, OMP_NUM_THREADS: no difference above ")
    assert line == Containing("; this", "no OpenMP runtime")
    assert line in shown(openmp(6.0, 6.0))


@pytest.mark.parametrize(("p50", "change"), [(4.0, "faster: 1.50x"), (9.0, "slower: 0.67x")])
def test_openmp_variables_with_an_effect(p50, change):
    (line,) = openmp_lines(openmp(6.0, p50, openmp=["libiomp5.so"]))
    assert f"OMP_NUM_THREADS: {change}" in line
    assert line.endswith("; this TensorFlow loads libiomp5.so")
    (line,) = openmp_lines(openmp(6.0, p50))
    assert line == Containing(", although this", "no OpenMP runtime")


def test_a_wide_interval_does_not_show_that_there_is_no_effect():
    first, other = openmp(6.0, 6.0).measurements
    wild = tuple((each,) * 3 for each in [3.0, 12.0] * 5)
    (line,) = openmp_lines(result(first, dataclasses.replace(other, rounds_ms=wild)))
    assert "high variance" in line


def test_openmp_variables_are_compared_within_a_batch():
    first, second = openmp_lines(openmp(6.0, 6.0, 48.0, 24.0))
    assert first.startswith("0, KMP_BLOCKTIME, OMP_NUM_THREADS: no difference")
    assert second.startswith("2, KMP_BLOCKTIME, OMP_NUM_THREADS: faster: ")
    assert not openmp_lines(result(measurement(), measurement("b.pb")))


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
