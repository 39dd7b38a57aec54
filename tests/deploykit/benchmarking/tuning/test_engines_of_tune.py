"""Engines are part of what tuning searches, where they are asked for and right."""

import contextlib
import itertools
from dataclasses import replace

import numpy as np
import pytest

import deploykit as api
from deploykit.benchmarking.measurement import Job
from deploykit.benchmarking.run_config import RunConfig
from deploykit.benchmarking.tuning import search, search_space
from deploykit.benchmarking.tuning.search import Figures, Search, Trials
from deploykit.benchmarking.tuning.search_space import TuneOptions, coordinates
from deploykit.importers.open_model import open_model
from deploykit.rendering.formatters.tuning import options
from deploykit.transforms.common.errors import GraphError, VerificationError
from tests.deploykit.benchmarking.made_up_process import take_made_up_processes
from tests.support import raises, says

BOTH = ("tensorflow", "openvino")


def planted(settings):
    """Milliseconds: OpenVINO is faster, with two threads alone and with two streams for many."""
    alone = 10.0
    if settings.engine == "openvino":
        alone *= 0.5 if settings.threads == (2, 1) else 0.8
    elif settings.executor == "caller":
        alone *= 0.9
    rate = 1000 / alone
    if settings.concurrency == 2:
        rate *= 1.9 if settings.engine == "openvino" else 1.2
    return alone, rate


def searched(start, engines, cost=planted):
    tried = []

    def trial(settings):
        tried.append(settings)
        assert settings.in_engine == settings
        (p50, rate), (usual, usual_rate) = cost(settings), cost(start)
        return Figures(p50, p50, rate, (usual / p50,) * 5, (rate / usual_rate,) * 5)

    ticks = itertools.count()
    found = Search(trial=trial, start=start, coordinates=coordinates(2, (1,), True, {}, engines),
                   left=lambda best: 1e9, clock=lambda: next(ticks))  # fmt: skip
    found.run()
    return found, tried


def test_the_faster_engine_is_found_with_its_threads_and_streams():
    found, tried = searched(RunConfig(batch=1), BOTH)
    assert found.best["latency"] == RunConfig(batch=1, engine="openvino", threads=(2, 1))
    most = found.best["throughput"]
    assert (most.engine, most.concurrency) == ("openvino", 2)
    assert {each.engine for each in tried} == {None, "openvino"}


def test_a_slower_engine_is_left():
    found, _ = searched(RunConfig(batch=1), BOTH, lambda settings: (
        (30.0, 33.0) if settings.engine else planted(settings)
    ))  # fmt: skip
    assert {each.engine for each in found.best.values()} == {None}
    assert found.best["latency"].executor == "caller"


@pytest.mark.parametrize("start", BOTH)
def test_one_engine_is_searched_alone(start):
    _, tried = searched(RunConfig(batch=1, engine=start), (start,))
    assert {each.engine or "tensorflow" for each in tried} == {start}
    assert len(tried) > 3


def test_from_another_engine_tensorflow_is_tried_too():
    start = RunConfig(batch=1, engine="openvino")
    found, _ = searched(start, BOTH, lambda settings: (
        (30.0, 33.0) if settings.engine else planted(settings)
    ))  # fmt: skip
    assert found.best["latency"].engine is None


@pytest.mark.parametrize(
    ("asked", "own", "here", "wanted"),
    [
        (None, "tensorflow", True, ("tensorflow",)),
        (None, "openvino", True, ("openvino",)),
        (None, "openvino", False, ("tensorflow",)),
        ("tensorflow", "openvino", True, ("tensorflow",)),
        ("openvino", "tensorflow", True, ("openvino",)),
        ("auto", "tensorflow", True, BOTH),
        ("auto", "openvino", False, ("tensorflow",)),
    ],
)
def test_where_the_search_begins(asked, own, here, wanted, monkeypatch):
    monkeypatch.setattr(
        search_space, "lacking", lambda name: "" if here or name != BOTH[1] else "no"
    )
    assert TuneOptions(engine=asked).engines(own) == wanted


def test_an_engine_that_is_not_here_is_refused_before_anything_is_read(monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *more: None)
    with pytest.raises(GraphError, match=says("engine-unavailable", engine="openvino")):
        api.tune(tmp_path / "no.pb", engine="openvino")
    with raises(GraphError, "not-one-of", got="tflite"):
        api.tune(tmp_path / "no.pb", engine="tflite")


def test_a_wrong_engine_is_noted_once_and_never_run(small, monkeypatch):
    asked = take_made_up_processes(monkeypatch)
    compared = []

    def wrong(jobs, graph, name):
        compared.extend(each.settings for each in jobs)
        if jobs[0].settings.engine:
            raise VerificationError(f"{name}: wrong")

    monkeypatch.setattr(search, "check_answers", wrong)
    model = open_model(small)
    fed = ((np.zeros((1, 8, 8, 3), np.float32),),)

    def job(settings):
        return Job(str(small), model.graph.inputs, model.graph.outputs, fed, settings)

    with contextlib.closing(Trials(job, RunConfig(batch=1), model)) as made:
        runs = len(asked)
        for threads in ((1, 1), (2, 1)):
            with pytest.raises(VerificationError, match="wrong"):
                made(RunConfig(batch=1, engine="openvino", threads=threads))
        assert [each.engine for each in compared] == [None, "openvino"]
        assert asked[runs:] == []


def test_trials_share_processes_as_a_benchmark_does(small, monkeypatch):
    asked = take_made_up_processes(monkeypatch)
    monkeypatch.setattr(search, "check_answers", lambda jobs, graph, name: None)
    model, start = open_model(small), RunConfig(batch=1)
    fed = ((np.zeros((1, 8, 8, 3), np.float32),),)

    def job(settings):
        return Job(str(small), model.graph.inputs, model.graph.outputs, fed, settings)

    with contextlib.closing(Trials(job, start, model)) as made:
        for changes in ({"batch": 8}, {"executor": "caller"}, {"concurrency": 2}):
            made(replace(start, **changes))
        assert asked.count(("close",)) == 0
        for threads in ((1, 1), (2, 1)):
            made(RunConfig(batch=1, engine="openvino", threads=threads))
        assert asked.count(("close",)) == 1
        assert len([each for each in asked if each[0] == "renew"]) == 1 + 5
        assert not [each for each in asked if each[0] == "open"]


def test_settings_to_copy_name_the_engine():
    settings = RunConfig(batch=1, engine="openvino", threads=(2, 1), concurrency=2)
    assert options(settings) == "--engine openvino --batch 1 --threads 2x1 --concurrency 2"
