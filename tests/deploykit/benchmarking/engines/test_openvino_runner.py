"""A graph is run by OpenVINO as the settings say, with the loop that TensorFlow has."""

import contextlib
from pathlib import Path

import numpy as np
import pytest

from deploykit.benchmarking.engines.engine_choice import opened
from deploykit.benchmarking.engines.runner import OpenVinoRunner, compiling
from deploykit.benchmarking.measurement import Job
from deploykit.benchmarking.run_config import RunConfig
from deploykit.benchmarking.worker_sessions import started
from deploykit.system.machine import usable_cores
from deploykit.transforms.common.errors import GraphError, LoadError
from deploykit.transforms.engines.openvino_model import Compiling
from deploykit.transforms.runtime.child_process import ResourceLimits
from tests.deploykit.benchmarking.test_runner import BATCHES, net
from tests.support import build, raises, random, run, tf

OPENVINO = RunConfig(engine="openvino")


@pytest.fixture(scope="module")
def graph():
    return build(net, ["x", "y"], ["hidden", "sum"])


@pytest.fixture
def job(tmp_path, graph):
    def make(settings=OPENVINO, batches=BATCHES, graph=graph, inputs=None, outputs=None):
        path = tmp_path / "graph.pb"
        path.write_bytes(b"".join(graph.serialized()))
        names = inputs or graph.inputs, outputs or graph.outputs
        return Job(str(path), *names, batches, settings)

    return make


def test_it_computes_what_tensorflow_does_batch_by_batch(job, graph):
    runner = opened(job())
    assert isinstance(runner, OpenVinoRunner)
    for feeds in BATCHES:
        found = runner._call(*feeds)
        for mine, its in zip(found, run(graph, dict(zip("xy", feeds, strict=True))), strict=True):
            np.testing.assert_allclose(mine, its, rtol=1e-5, atol=1e-5)


def test_an_inner_tensor_is_fed_as_any_input(job):
    runner = opened(job(inputs=("hidden", "y:0"), outputs=("sum:0",)))
    (x, y), *_ = BATCHES
    np.testing.assert_allclose(runner._call(x, y)[0], x + y, rtol=1e-6)


@pytest.mark.parametrize("concurrency", [1, 2])
def test_it_has_the_loop_that_tensorflow_has(job, concurrency):
    runner = opened(job(RunConfig(engine="openvino", concurrency=concurrency)))
    calls, taken = runner.run(60, 6)
    assert len(calls) == 6
    assert taken > 0


def test_facts_say_what_is_in_force(job):
    facts = opened(job(RunConfig(engine="openvino", threads=(1, 1)))).facts()
    assert facts["openvino"][0].isdigit()
    assert (facts["threads"], facts["streams"], facts["precision"]) == (1, 1, "f32")
    assert facts["inputs"] == {"x": "float32 [4, 8]", "y": "float32 [4, 8]"}
    assert facts["load_ns"] > 0
    assert facts["bytes_peak"] >= facts["bytes_before"] > 0
    assert "tensorflow" not in facts


def test_threads_are_those_of_an_op_in_each_of_as_many_streams_as_there_are_calls(monkeypatch):
    monkeypatch.setattr("deploykit.benchmarking.engines.runner.usable_cores", lambda: 8)
    for settings, wanted in (
        ({}, Compiling(0, 1)),
        ({"threads": (2, 1)}, Compiling(2, 1)),
        ({"threads": (2, 1), "concurrency": 3}, Compiling(6, 3)),
        ({"threads": (4, 3), "concurrency": 3}, Compiling(8, 3)),
        ({"threads": (1, 1), "concurrency": 20}, Compiling(8, 8)),
        ({"concurrency": 2, "precision": "bf16"}, Compiling(0, 2, "bf16")),
    ):
        assert compiling(RunConfig(engine="openvino", **settings)) == wanted


def test_it_goes_on_with_other_batches_and_calls_in_flight(job):
    runner = opened(job())
    first = runner._model
    runner.go_on_with(job(batches=((random(2, 8), random(2, 8)),)))
    assert runner._model is first
    assert runner._call(*runner.batches[0])[0].shape == (2, 8)
    runner.go_on_with(job(RunConfig(engine="openvino", threads=(1, 1), concurrency=2)))
    assert runner.facts()["streams"] == min(2, usable_cores())
    assert len(runner.run(60, 4)[0]) == 4


def test_two_in_a_process_know_nothing_of_each_other(job):
    first = opened(job())
    second = opened(job(outputs=("sum",)), first)
    assert len(first._call(*BATCHES[0])) == 2
    assert len(second._call(*BATCHES[0])) == 1


def test_what_openvino_cannot_run_is_told_by_name(job, graph):
    wrong = opened(job(batches=((random(4, 8), random(3, 9)),)))
    with raises(GraphError, "runtime-failed", runtime="OpenVINO", action="run the graph"):
        wrong.run(0, 1)

    def words():
        x = tf.compat.v1.placeholder(tf.float32, [None], name="x")
        tf.strings.length(tf.strings.as_string(x), name="y")

    with raises(LoadError, "openvino-unknown-op"):
        opened(job(graph=build(words, ["x"], ["y"]), batches=((random(4),),)))


@pytest.mark.sampled
def test_the_first_calls_of_a_process_may_be_several_at_once(job):
    """Of a hundred processes whose first two calls meet, two or more hung in OpenVINO."""
    asked = job(RunConfig(engine="openvino", concurrency=2))
    with ResourceLimits(60, None, False):
        for _ in range(100):
            with contextlib.closing(started(asked)) as worker:
                assert len(worker.ask("turn", worker.ask("open", asked), 0, 2)[0]) == 2


def test_a_process_of_its_own_has_no_tensorflow_in_it(job, started_children):
    worker = started(job())
    try:
        assert [worker.ask("open", job()), worker.ask("open", job())] == [0, 1]
        assert len(worker.ask("turn", 1, 60, 2)[0]) == 2
        assert "openvino" in worker.ask("facts", 1)
        libraries = Path(f"/proc/{worker.pid}/maps").read_text()
        assert "libopenvino" in libraries
        assert "libtensorflow" not in libraries
    finally:
        worker.close()
