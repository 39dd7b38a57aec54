"""Options that contradict each other are refused in a sentence, whoever calls."""

import math

import pytest

import deploykit
from deploykit.benchmarking.scenarios.timing import BenchmarkOptions
from deploykit.benchmarking.settings import RunConfig
from deploykit.hardware.machine import usable_cores
from deploykit.transforms.core.errors import GraphError
from tests.deploykit.benchmarking.nets import dense
from tests.support import Containing, says

SERVER = {"scenario": "server", "rate": 10.0}
WRONG = [
    (
        {"scenario": "server"},
        says("option-needs", needed=Containing("a rate"), option="scenario server"),
    ),
    ({"rate": 10.0}, says("only-for", option="the rate", what="scenario server")),
    (
        {"scenario": "offline", "rate": 10.0},
        says("only-for", option="the rate", what="scenario server"),
    ),
    ({"latency_limit": 10.0}, says("only-for", option="the latency limit", what="scenario server")),
    (
        {"scenario": "single", "latency_limit": 9.0},
        says("only-for", option="the latency limit", what="scenario server"),
    ),
    (SERVER | {"runs": 10}, says("scenario-needs-duration")),
    ({"scenario": "single", "rounds": 10}, says("scenario-needs-duration")),
]
WRONG_ALONE = [
    (
        {"scenario": "multistream"},
        says(
            "not-one-of",
            got="multistream",
            known=["single", "offline", "server"],
            what="scenario",
        ),
    ),
    (SERVER | {"rate": 0.0}, says("out-of-range", expected=Containing("above 0"), name="rate")),
    (SERVER | {"rate": math.inf}, says("out-of-range", expected=Containing("above 0"))),
    (SERVER | {"latency_limit": math.nan}, says("out-of-range", expected=Containing("above 0"))),
]


@pytest.mark.parametrize(("options", "word"), WRONG_ALONE)
def test_what_no_option_can_be(options, word):
    with pytest.raises(GraphError, match=word):
        deploykit.benchmark(dense(), **options)


@pytest.mark.parametrize(("options", "word"), WRONG)
def test_what_contradicts_itself(options, word):
    with pytest.raises(GraphError, match=word):
        BenchmarkOptions(**options).check()
    with pytest.raises(GraphError, match=word):
        deploykit.benchmark(dense(), **options)


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
    with pytest.raises(GraphError, match="its concurrency is 1"):
        deploykit.benchmark(dense(), scenario="single", concurrency=2)
