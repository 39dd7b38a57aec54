"""A result is called valid where MLPerf's rules are met, and where that is known."""

from dataclasses import replace

import pytest

from deploykit.benchmarking.measurement import ScenarioResult
from deploykit.benchmarking.results import result_of
from deploykit.benchmarking.run_config import BenchmarkOptions
from deploykit.benchmarking.scenario_load import Played
from deploykit.benchmarking.scenario_runs import latencies_of, result_of_scenario
from deploykit.transforms.common.documents import converted, document
from deploykit.transforms.common.errors import GraphError
from tests.deploykit.benchmarking import made_up_results
from tests.deploykit.benchmarking.made_up_load import played, scattered, steady

SERVER = BenchmarkOptions(10.0, scenario="server", rate=200.0)


def result(timing, load, *, samples=1, threads=1, whole=True, settled=True):
    return result_of_scenario(timing, load, samples, threads, whole=whole, settled=settled)


def server(share, takes=steady, threads=1, timing=SERVER, **options):
    """Return what is said where calls take this share of the time that there is."""
    mean = share * threads / timing.rate
    load = played(timing.rate, timing.seconds, takes(mean), threads=threads, **options)
    return result(timing, load, threads=threads)


def stream(count, milliseconds=20.0, name="single"):
    """Return a load of calls one after another."""
    each = round(1e6 * milliseconds)
    calls = tuple((n * each, n * each, n * each, (n + 1) * each) for n in range(count))
    return Played(True, count, calls, 0, count * each), BenchmarkOptions(10.0, scenario=name)


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("takes", [steady, scattered])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_a_rate_that_is_kept_is_valid(share, takes, threads):
    for seed in range(5):
        found = server(share, takes, threads, seed=seed)
        assert (found.valid, found.why) == (True, ())
        assert found.rate_reached == pytest.approx(200, rel=0.1)
        assert found.value < found.at_most


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("takes", [steady, scattered])
@pytest.mark.parametrize("share", [1.05, 1.2, 3.0])
def test_a_rate_that_is_not_kept_is_never_valid(share, takes, threads):
    for seed in range(20):
        found = server(share, takes, threads, seed=seed)
        assert not found.valid
        assert any("rate" in each for each in found.why)


@pytest.mark.parametrize("takes", [steady, scattered])
def test_just_as_much_as_there_is_passes_in_one_of_a_hundred(takes):
    assert sum(server(1.0, takes, seed=seed).valid for seed in range(100)) <= 3


def test_calls_that_were_left_leave_the_figure_unknown():
    found = server(3.0)
    assert found.left > 0
    assert (found.value, found.at_most, found.valid) == (None, None, False)


def test_a_backlog_that_is_never_worked_off_is_told_from_one_that_is():
    """The machine stops for half a second, early or near the end."""
    load = played(200, 10, steady(0.002))

    def stalled(begin):
        calls, free = [], 0
        for due, _, _, _ in load.calls:
            if due >= begin and not any(call[0] >= begin for call in calls):
                free = max(free, int(begin + 0.5e9))
            start = max(due, free)
            calls.append((due, free, start, start + 4_500_000))
            free = start + 4_500_000
        return result(SERVER, replace(load, calls=tuple(calls), elapsed_ns=calls[-1][3]))

    assert stalled(2e9).valid
    late = stalled(7.4e9)
    assert not late.valid
    assert "calls always waited" in late.why[0]


@pytest.mark.parametrize(
    ("limit", "valid", "word"),
    [(1000, True, ""), (1, False, "above the limit"), ("between", False, "may be")],
)
def test_the_limit_has_to_be_kept_for_sure(limit, valid, word):
    free = server(0.7, scattered)
    assert free.value < free.at_most
    limit = (free.value + free.at_most) / 2 if limit == "between" else limit
    found = server(0.7, scattered, timing=replace(SERVER, latency_limit=limit))
    assert found.valid is valid
    assert word in "".join(found.why)
    assert found.latency_limit == limit


def test_too_few_calls_for_a_99th_percentile():
    timing = BenchmarkOptions(10.0, scenario="server", rate=50.0, latency_limit=1000.0)
    found = server(0.5, timing=timing)
    assert found.at_most is None
    assert "at least 662 calls are needed, there were" in found.why[0]
    assert "--seconds 15" in found.why[0]
    assert "is not known well enough" in found.why[1]


def test_a_load_that_is_made_late_is_not_valid():
    found = server(0.2, late=0.012)
    assert not found.valid
    assert "10 ms late" in found.why[0]
    assert server(0.2, late=0.001).valid


@pytest.mark.parametrize(
    ("options", "word"),
    [({"whole": False}, "interrupted"), ({"settled": False}, "no steady state")],
)
def test_what_spoils_every_scenario(options, word):
    load = played(200, 10, steady(0.001))
    for timing, each in (
        (SERVER, load),
        *(stream(600, name=n)[::-1] for n in ("single", "offline")),
    ):
        assert result(timing, each).valid
        assert word in result(timing, each, **options).why[0]


@pytest.mark.parametrize(
    ("name", "count", "milliseconds", "valid"),
    [
        ("single", 63, 200, False),
        ("single", 64, 200, True),
        ("single", 64, 100, False),  # 6.4 s
        ("offline", 19, 1000, False),
        ("offline", 20, 1000, True),
        ("offline", 90, 100, False),
    ],
)
def test_the_least_time_and_the_least_calls(name, count, milliseconds, valid):
    load, timing = stream(count, milliseconds, name)
    assert result(timing, load).valid is valid


def test_the_figures_of_a_stream():
    load, timing = stream(600)
    single = result(timing, load)
    assert (single.figure, single.unit, single.value) == ("p90 latency", "ms", 20)
    offline = result(replace(timing, scenario="offline"), load, samples=8)
    assert (offline.figure, offline.unit) == ("throughput", "samples/s")
    assert offline.value == pytest.approx(8 * 50)
    assert offline.at_most is None


def test_latencies_count_from_the_intended_time():
    assert latencies_of([(1_000_000, 4_000_000, 5_000_000, 7_000_000)]) == [6.0]


def test_a_result_is_read_as_it_was_written():
    for found in (server(0.5), server(1.2), server(3.0)):
        assert converted(document(found), ScenarioResult) == found


@pytest.mark.parametrize("wrong", [{"valid": True}, {"name": "other"}, {"calls": "many"}])
def test_what_contradicts_itself_is_not_read(wrong):
    scenario = document(server(1.2)) | wrong
    plain = document(made_up_results.result(made_up_results.measurement()))
    plain["measurements"][0]["scenario"] = scenario
    with pytest.raises(GraphError, match="scenario"):
        result_of(plain, "result.json")
