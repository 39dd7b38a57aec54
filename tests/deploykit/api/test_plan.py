"""A plan made from a real server: what it prints, draws and fills, and where it says no."""

import json

import numpy as np
import pytest

import deploykit as api
from deploykit.exporting.manifests import manifests
from deploykit.planning import from_results, measuring, sizing
from deploykit.planning import measuring as held_loads
from deploykit.reporting.charts.plots import plot_plan
from tests.deploykit.exporting.test_replica_counts import BOTH
from tests.deploykit.planning.load_tests import document, load
from tests.support import Containing, shows

X = {"x": np.ones((3, 2), np.float32)}
NO_CLOCK = 1e9


@pytest.fixture
def quick(monkeypatch):
    """Let neither a busy machine nor short loads decide, and simulate few calls."""
    monkeypatch.setattr(from_results, "bar_for", lambda unloaded_ms: NO_CLOCK)
    monkeypatch.setattr(held_loads, "MAX_LATE", 1.0)
    monkeypatch.setattr(measuring, "MAX_OVERTAKEN", 1.0)
    monkeypatch.setattr(measuring, "_FEWEST_CALLS", 1)
    monkeypatch.setattr(measuring, "_SOME_CALLS", 1)
    monkeypatch.setattr(measuring, "_PROBE_SECONDS", 0.2)
    monkeypatch.setattr(measuring, "ROUNDS", 2)
    monkeypatch.setattr(measuring, "RUNGS", (0.3, 0.6))
    monkeypatch.setattr(from_results, "RUNS", 1)
    monkeypatch.setattr(sizing, "CALLS", 3000)


@pytest.mark.slow
def test_a_server_is_measured_tried_and_drawn(deploykit, quick, address, tmp_path):
    np.savez(tmp_path / "x.npz", **X)
    written = manifests(BOTH, ["kubernetes", "kserve"])
    both = ["kubernetes.yaml", "kserve.yaml"]
    for name in both:
        (tmp_path / name).write_text(written[name].replace("half-plus-two", "echo"))
    found = deploykit("plan", address, "echo", "--data", tmp_path / "x.npz", "--rate=20",
                      "--latency-limit=9000", "--seconds=0.2", "--price=0.5", "--json",
                      "--tolerate=replica", "--plot", tmp_path / "plan.png",
                      "--manifests", tmp_path)  # fmt: skip
    assert found.status == 0, found.stderr
    told = found.document
    assert (told["replicas"], told["needed"]["nothing"], told["problem"]) == (2, 1, None)
    assert [each["lost"] for each in told["outcomes"]] == ["nothing", "replica", "zone"]
    assert told["check"]["passed"]
    assert told["check"]["rate"] > 0
    assert told["cost"]["hour"] == 1.0
    assert told["measured"]["highest_rate"] > 0
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    assert [each.rpartition("/")[2] for each in told["filled"]] == both
    assert "minReplicas: 2\n  maxReplicas: 3\n" in (tmp_path / "kubernetes.yaml").read_text()


@pytest.mark.slow
def test_a_server_that_is_not_as_foreseen_is_no_plan(deploykit, quick, address, monkeypatch):
    """After three attempts it says so, shows what it has, and fills nothing."""
    tries = []

    def never(traces, failed, forecast):
        tries.append(len(forecast.measured.rounds))
        found = judged(traces, failed, forecast)
        low = [api_p99(0.001) for _ in found.predicted]
        return from_results.PlanCheck(found.rate, found.calls, 0, found.seen_ms, low, 1.01)

    judged, api_p99 = from_results.judged, lambda ms: from_results.P99(ms, ms, ms)
    monkeypatch.setattr(from_results, "judged", never)
    found = api.plan(address, "echo", X, rate=20, latency_limit=9000, seconds=0.2)
    assert "misses the estimate" in found.problem
    assert tries == [2, 3, 4]  # rounds: what was seen is added to what is known
    assert found.document()["check"]["passed"] is False


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("--latency-limit=5", "number of replicas"),
        ("--latency-limit=60 --replicas=1..3", "1..3 are allowed"),
        ("--latency-limit=60 --tolerate=zone --zones=1", "no replica remains"),
    ],
)
def test_no_number_will_do(deploykit, quick, tmp_path, options, why):
    path = tmp_path / "load.json"
    path.write_text(json.dumps(document(load(1), load(8))))
    found = deploykit("plan", path, "--rate=1000", *options.split(), "--json")
    assert found.status == 5
    assert shows(found.document["problem"], "plan-not-met", reason=Containing(why))
    assert found.document["problem"] in found.stderr


def test_manifests_are_looked_at_before_the_server_is(deploykit, address, tmp_path):
    np.savez(tmp_path / "x.npz", **X)
    found = deploykit("plan", address, "echo", "--data", tmp_path / "x.npz", "--rate=20",
                      "--latency-limit=90", "--manifests", tmp_path)  # fmt: skip
    assert found.status == 4
    assert shows(found.stderr, "manifests-missing")


@pytest.mark.parametrize("value", ["0..3", "4..3", "x", "1..y"])
def test_numbers_of_replicas(deploykit, value):
    found = deploykit("plan", "x.json", "--rate=1", "--latency-limit=1", "--replicas", value)
    assert found.status == 2
    assert shows(found.stderr, "option-value", got=value, option="--replicas")


def test_a_single_number_is_both(deploykit, quick, tmp_path):
    path = tmp_path / "load.json"
    path.write_text(json.dumps(document(load(1), load(8))))
    found = deploykit("plan", path, "--rate=40", "--latency-limit=100", "--replicas=7", "--json")
    assert (found.status, found.document["replicas"]) == (0, 7)


@pytest.mark.slow
def test_what_people_read(deploykit, quick, tmp_path):
    path = tmp_path / "load.json"
    path.write_text(json.dumps(document(load(1), load(8), load(rate=60.0))))
    found = deploykit("plan", path, "--rate=1000", "--latency-limit=60", "--price=0.2")
    assert found.status == 0, found.stderr
    for words in ("replicas of 1 core", "zone lost", "headroom", "per hour", "check at 60"):
        assert words in found.stdout
    drawn = plot_plan(api.plan(path, rate=1000, latency_limit=60).document(), "plan.svg").decode()
    for words in ("replicas, one lost", "measured on one replica", "Requests per second to each"):
        assert words in drawn
