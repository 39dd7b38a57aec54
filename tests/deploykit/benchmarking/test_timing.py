"""Options that contradict each other are refused in a sentence, whoever calls."""

import math

import pytest

import deploykit
from deploykit.benchmarking.run_config import BenchmarkOptions, RunConfig
from deploykit.system.machine import usable_cores
from deploykit.transforms.common.errors import GraphError
from tests.deploykit.benchmarking.nets import dense
from tests.support import assert_golden, raises, refusal

SERVER = {"scenario": "server", "rate": 10.0}
WRONG = [
    {"scenario": "server"}, {"scenario": "multistream"}, {"rate": 10.0},
    {"scenario": "offline", "rate": 10.0}, {"latency_limit": 10.0},
    {"scenario": "single", "latency_limit": 9.0}, SERVER | {"runs": 10},
    {"scenario": "single", "rounds": 10}, SERVER | {"rate": 0.0}, SERVER | {"rate": math.inf},
    SERVER | {"latency_limit": math.nan},
]  # fmt: skip


@pytest.mark.golden("refusals/scenarios")
def test_what_contradicts_itself():
    said = [f"{options}\n{refusal(deploykit.benchmark, dense(), **options)}" for options in WRONG]
    assert_golden(*said)


def test_what_does_not():
    for options in ({}, {"runs": 5, "rounds": 2}, SERVER, SERVER | {"latency_limit": 5.0}):
        BenchmarkOptions(**options).check()


def test_as_many_calls_in_flight_as_cores_unless_it_is_said():
    cores, server = usable_cores(), BenchmarkOptions(**SERVER)
    assert server.settings(RunConfig(batch=2), chosen=False) == RunConfig(
        batch=2, concurrency=cores
    )
    assert server.settings(RunConfig(), chosen=True).concurrency == 1
    assert server.settings(RunConfig(concurrency=7), chosen=False).concurrency == 7
    assert (
        BenchmarkOptions(scenario="offline").settings(RunConfig(), chosen=False).concurrency
        == cores
    )
    for timing in (BenchmarkOptions(), BenchmarkOptions(scenario="single")):
        assert timing.settings(RunConfig(), chosen=False).concurrency == 1


def test_a_single_stream_has_one_call_in_flight():
    with raises(GraphError, "scenario-single-concurrency", concurrency=2):
        deploykit.benchmark(dense(), scenario="single", concurrency=2)
