"""A graph is run as the settings say: fed or through tf.data, once or once a device."""

import threading
from dataclasses import replace

import numpy as np
import pytest

from deploykit.benchmarking.devices import (
    check_devices,
    check_on_gpu,
    devices_for,
    once_each,
    visible_gpus,
)
from deploykit.benchmarking.engines.engine_choice import opened
from deploykit.benchmarking.engines.tensorflow_runner import TensorFlowRunner
from deploykit.benchmarking.measurement import Job, Measurement
from deploykit.benchmarking.results import BenchmarkResult, scaling_efficiency
from deploykit.benchmarking.run_config import RunConfig
from deploykit.benchmarking.run_config_grid import RunConfigGrid
from deploykit.benchmarking.worker_sessions import ProcessSessions
from deploykit.transforms.common.errors import GraphError
from tests.support import Containing, because, build, building, raises, random, run, says, tf

TWO = ("/CPU:0", "/CPU:1")
BATCHES = tuple((random(4, 8, seed=n), random(4, 8, seed=n + 9)) for n in range(3))


def net():
    x = tf.compat.v1.placeholder(tf.float32, [None, 8], name="x")
    y = tf.compat.v1.placeholder(tf.float32, [None, 8], name="y")
    hidden = tf.nn.relu(tf.matmul(x, tf.constant(random(8, 8), name="weights")), name="hidden")
    tf.add(hidden, y, name="sum")


def two_devices():
    x = tf.compat.v1.placeholder(tf.float32, [None, 8], name="x")
    with tf.device("/CPU:1"):
        x = tf.tanh(x, name="pinned")
    tf.negative(x, name="free")


@pytest.fixture
def graph():
    return build(net, ["x", "y"], ["hidden", "sum"])


@pytest.fixture
def job(tmp_path):
    def make(graph, batches=BATCHES, devices=(), **settings):
        path = tmp_path / "graph.pb"
        path.write_bytes(b"".join(graph.serialized()))
        job = Job(str(path), graph.inputs, graph.outputs, batches, RunConfig(**settings), devices)
        return TensorFlowRunner(job)

    return make


def calls(runner, count=4):
    """Return what each of several calls gives, tower by tower."""
    found = []
    for number in range(count):
        feeds = dict(zip(runner.fed, runner.batches[number % len(runner.batches)], strict=True))
        outputs = runner.session.run(runner.fetches, feeds)
        each = len(outputs) // len(runner.replicas)
        found += [outputs[n : n + each] for n in range(0, len(outputs), each)]
    return found


def devices_of(runner):
    """Return the nodes that are executed on each device."""
    metadata = tf.compat.v1.RunMetadata()
    runner.session.run(
        runner.fetches,
        dict(zip(runner.fed, runner.batches[0], strict=True)),
        options=tf.compat.v1.RunOptions(output_partition_graphs=True),
        run_metadata=metadata,
    )
    return {
        graph.node[0].device.partition("device:")[2]: {
            node.name for node in graph.node if node.op not in ("_Send", "_Recv")
        }
        for graph in metadata.partition_graphs
    }


@pytest.mark.sampled
@pytest.mark.parametrize("way", ["feed", "tfdata"])
@pytest.mark.parametrize("devices", [(), TWO], ids=["one", "two"])
def test_outputs_are_those_of_the_graph_and_batches_go_round(graph, job, way, devices):
    runner = job(graph, devices=devices, input=way)
    found = calls(runner)
    assert len(found) == 4 * max(1, len(devices))
    for number, outputs in enumerate(found):
        x, y = BATCHES[number % len(BATCHES)]
        for ours, reference in zip(outputs, run(graph, {"x": x, "y": y}), strict=True):
            np.testing.assert_allclose(ours, reference, rtol=1e-6, atol=1e-6)


@pytest.mark.sampled
@pytest.mark.parametrize("way", ["feed", "tfdata", "resident"])
def test_each_device_runs_a_tower(graph, job, way):
    runner = job(graph, devices=TWO, input=way)
    found = devices_of(runner)
    assert set(found) == {"CPU:0", "CPU:1"}
    for number in range(2):
        on_it = found[f"CPU:{number}"]
        assert f"tower_{number}/hidden" in on_it
        assert not [name for name in on_it if name.startswith(f"tower_{1 - number}/")]
    assert runner.facts()["towers"] == list(TWO)


def test_arrays_reach_the_graph_through_tfdata_on_its_own_device_and_not_as_constants(graph, job):
    runner = job(graph, devices=TWO, input="tfdata")
    assert runner.fed == []
    assert runner.batches == [()]
    for names in devices_of(runner).values():
        assert any("IteratorGetNext" in name for name in names)
    constants = [node for node in runner.graph.as_graph_def().node if node.op == "Const"]
    weights = [node for node in constants if node.name.endswith("weights")]
    others = [node for node in constants if node not in weights]
    assert len(weights) == 2
    assert max(node.ByteSize() for node in others) < BATCHES[0][0].nbytes


def test_a_graph_sees_no_more_of_the_shape_than_it_declares(graph, job):
    runner = job(graph, input="tfdata")
    assert runner.replicas[0].inputs[0].shape.as_list() == [None, 8]


@pytest.mark.sampled
@pytest.mark.parametrize("executor", [None, "caller", "single"])
def test_resident_inputs_are_computed_with_and_nothing_is_given_back(graph, job, executor):
    runner = job(graph, devices=TWO, input="resident", executor=executor)
    assert (runner.fed, runner.batches) == ([], [()])
    assert not any(runner._call() or ())
    found = runner.session.run([each for replica in runner.replicas for each in replica.outputs])
    for number in range(2):  # each device has a batch of its own
        x, y = BATCHES[number % len(BATCHES)]
        ours = found[2 * number : 2 * number + 2]
        for out, reference in zip(ours, run(graph, {"x": x, "y": y}), strict=True):
            np.testing.assert_allclose(out, reference, rtol=1e-6, atol=1e-6)
    assert runner.replicas[0].inputs[0].shape.as_list() == [None, 8]
    on_it = devices_of(runner)
    assert {f"tower_{number}/hidden" in on_it[f"CPU:{number}"] for number in range(2)} == {True}


def test_resident_text_and_single_numbers(job):
    def make():
        text = tf.compat.v1.placeholder(tf.string, [None], name="text")
        rate = tf.compat.v1.placeholder(tf.float32, [], name="rate")
        tf.multiply(tf.cast(tf.strings.length(text), tf.float32), rate, name="out")

    batches = ((np.array([b"a", b"four"], object), np.float32(2)),)
    runner = job(build(make, ["text", "rate"], ["out"]), batches, input="resident")
    assert runner.session.run(runner.replicas[0].outputs)[0].tolist() == [2, 8]
    assert len(runner.run(60, 3)[0]) == 3


def test_one_gpu_is_measured_once(caplog):
    several = RunConfigGrid(device="all", batch=(1, 8)).settings()
    assert once_each(several, ["H200", "H200"]) == tuple(several)
    assert once_each([RunConfig()], ["H200"]) == (RunConfig(),)
    found = once_each(several, ["H200"])
    assert found == (RunConfig(1, device="gpu:0"), RunConfig(8, device="gpu:0"))
    (said,) = caplog.messages
    assert said == because("only-one-gpu", name="H200")


def test_layers_without_a_kernel_for_gpus_are_no_measurement_of_one():
    check_on_gpu("cpu", {"Conv2D": 3}, 0)
    check_on_gpu("gpu", {"MatMul": 1}, 5)  # TensorFlow keeps some back, such as those of strings
    check_on_gpu("gpu", {}, 0)
    with pytest.raises(
        GraphError,
        match=says("device-lacks-kernels", ops="MatMul, QuantizedConv2D", count=4, on_gpu=4),
    ):
        check_on_gpu("gpu:1", {"QuantizedConv2D": 3, "MatMul": 1}, 0)
    with raises(GraphError, "device-lacks-kernels", ops="_QuantizedMatMul", count=1, on_gpu=6):
        check_on_gpu("gpu", {"_QuantizedMatMul": 1}, 5)


def test_strings_and_single_numbers_go_through_tfdata(job):
    def make():
        text = tf.compat.v1.placeholder(tf.string, [None], name="text")
        rate = tf.compat.v1.placeholder(tf.float32, [], name="rate")
        tf.multiply(tf.cast(tf.strings.length(text), tf.float32), rate, name="out")

    text = np.array([b"a", b"four"], object)
    batches = ((text, np.float32(2)), (text, np.float32(3)))
    graph = build(make, ["text", "rate"], ["out"])
    for devices in ((), TWO):
        found = calls(job(graph, batches, devices, input="tfdata"), 2)
        assert [outputs[0].tolist() for outputs in found[:2]] == [[2, 8], [3, 12]]


def test_a_graph_without_inputs_runs_with_tfdata(job):
    graph = build(lambda: tf.constant([1.0], name="out"), (), ["out"])
    assert calls(job(graph, ((),), input="tfdata"), 1)[0][0].tolist() == [1]


def test_a_node_keeps_its_own_device_and_one_that_is_not_there_becomes_the_cpu(job):
    graph = build(two_devices, ["x"], ["free"])
    batches = ((random(4, 8),),)
    found = devices_of(job(graph, batches, TWO))
    assert {"tower_0/pinned", "tower_1/pinned", "tower_1/free"} <= found["CPU:1"]
    assert "tower_0/free" in found["CPU:0"]
    assert set(devices_of(job(graph, batches))) == {"CPU:0"}


@pytest.mark.sampled
@pytest.mark.parametrize("way", ["feed", "tfdata", "resident"])
@pytest.mark.parametrize("devices", [(), TWO], ids=["one", "two"])
def test_several_calls_in_flight(graph, job, way, devices):
    latencies, total = job(graph, devices=devices, input=way, concurrency=2).run(60, 6)
    assert len(latencies) == 6
    assert total > max(latencies)


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_graph_that_cannot_run_gives_one_sentence(graph, job, concurrency):
    runner = job(graph, ((random(4, 8), random(3, 8)),), concurrency=concurrency)
    with raises(GraphError, "runtime-failed", action="run the graph") as caught:
        runner.run(60, 2)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("way", ["feed", "tfdata"])
def test_an_output_that_is_not_there_gives_one_sentence(graph, job, way):
    graph = build(net, ["x", "y"], ["sum"])
    graph.outputs = ("absent",)
    with raises(GraphError, "runtime-failed", action="load the graph") as caught:
        job(graph, input=way)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("devices", [("/GPU:0",), ("/CPU:0", "/TPU:1"), ("nonsense",)])
def test_a_device_that_is_not_there_gives_one_sentence(graph, job, devices):
    with raises(GraphError, "unknown-name", known=["/CPU:0"], name=devices[-1]):
        job(graph, devices=devices)


@pytest.mark.parametrize("device", ["gpu", "gpu:1", "all"])
def test_a_gpu_that_is_not_there_is_refused(graph, job, device):
    with raises(GraphError, "gpu-missing", device=device):
        job(graph, device=device)


def test_what_a_device_means():
    four = ["H200"] * 4
    assert devices_for("cpu", four) == ("/CPU:0",)
    assert devices_for("gpu", four) == devices_for("gpu:3", four) == ("/GPU:0",)
    assert devices_for("all", four) == ("/GPU:0", "/GPU:1", "/GPU:2", "/GPU:3")
    with raises(GraphError, "gpu-number", count=4, last=3):
        devices_for("gpu:4", four)
    for wrong in ("gpus", "gpu:", "gpu:x", "tpu"):
        with raises(GraphError, "not-one-of", got=wrong):
            devices_for(wrong, four)


def test_a_child_tells_which_gpus_there_are():
    assert visible_gpus() == []  # tests/conftest.py hides them
    with raises(GraphError, "device-refused", device="all", reason=Containing("GPU")):
        check_devices(["cpu", "all"])
    check_devices(["cpu"])


def test_a_gpu_session_takes_memory_as_it_needs_it_and_one_gpu():
    from deploykit.benchmarking.devices import config

    one = config(RunConfig(device="gpu:2"))
    assert (one.gpu_options.allow_growth, one.gpu_options.visible_device_list) == (True, "2")
    assert config(RunConfig(device="all")).gpu_options.visible_device_list == ""
    assert config(RunConfig()).device_count["GPU"] == 0
    assert all(config(RunConfig(device=each)).allow_soft_placement for each in ("cpu", "gpu"))


def test_all_gpus_are_compared_with_one():
    settings = RunConfigGrid(device="all", batch=(1, 8)).settings()
    assert [(each.batch, each.device) for each in settings] == [
        (1, "gpu:0"), (1, "all"), (8, "gpu:0"), (8, "all")
    ]  # fmt: skip
    found = tuple(
        Measurement(
            name=str(each),
            model="x.pb",
            sha256="",
            settings=each,
            samples=each.batch * (4 if each.device == "all" else 1),
            load_ms=1,
            first_run_ms=1,
            warm_up_ms=(),
            settled=True,
            rounds_ms=((10.0,) * 5,),
            rounds_seconds=(0.05 if each.device != "all" else 0.0625,),
            facts={"towers": ["/GPU:0", "/GPU:1", "/GPU:2", "/GPU:3"]},
        )
        for each in settings
    )
    result = BenchmarkResult(found, {}, "")
    efficiencies = [scaling_efficiency(each, result) for each in found]
    assert efficiencies == [None, pytest.approx(0.8), None, pytest.approx(0.8)]
    assert scaling_efficiency(found[1], BenchmarkResult(found[1:2], {}, "")) is None


def asked_for_its_thread(threads):
    """Return a graph that notes in which thread its op runs, and what it has to be kept with."""

    def note(x):
        threads.append(threading.get_ident())
        return x

    def body():
        note.graph = tf.compat.v1.get_default_graph()  # which keeps what the op calls
        x = tf.compat.v1.placeholder(tf.float32, [None, 8], name="x")
        noted = tf.compat.v1.py_func(note, [x], tf.float32)
        tf.negative(noted, name="y")

    return build(body, ["x"], ["y"]), note


@pytest.mark.parametrize("executor", [None, "caller", "single"])
def test_who_runs_the_ops_of_a_call(executor, job):
    threads: list[int] = []
    graph, _kept = asked_for_its_thread(threads)
    runner = job(graph, [BATCHES[0][:1]], executor=executor)
    for _ in range(3):
        runner.run(0, 1)
    here = {each == threading.get_ident() for each in threads}
    assert here == {executor is not None}
    assert len(threads) == 3


@pytest.mark.parametrize("executor", ["caller", "single"])
def test_each_executor_answers_alike(executor, graph, job):
    plain, other = job(graph), job(graph, executor=executor)
    for feeds in BATCHES:
        for wanted, found in zip(plain._call(*feeds), other._call(*feeds), strict=True):
            np.testing.assert_array_equal(wanted, found)


def test_a_condition_of_tensorflow_1_is_refused_by_the_single_executor_alone(job):
    with building(["x"], ["y"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 8], name="x")
        no, yes = tf.raw_ops.Switch(data=x, pred=tf.reduce_sum(x) > 0.0)
        merged, _ = tf.raw_ops.Merge(inputs=[-no, yes])
        tf.identity(merged, name="y")
    feeds = [(-np.ones((1, 8), np.float32),)]
    assert job(graph, feeds, executor="caller")._call(*feeds[0])[0].tolist() == [[1.0] * 8]
    with pytest.raises(GraphError):
        job(graph, feeds, executor="single").run(0, 1)


@pytest.mark.parametrize("engine", ["tensorflow", "openvino"])
def test_a_library_that_is_not_preloaded_is_refused_first(engine):
    settings = RunConfig(engine=engine, env={"LD_PRELOAD": "libnone.so"})
    with raises(GraphError, "preload-missing", library="libnone.so"):
        opened(Job("none.pb", ("x",), ("y",), BATCHES, settings))


def test_sessions_of_one_model_share_its_graph_and_nothing_else(tmp_path, graph):
    path = tmp_path / "graph.pb"
    path.write_bytes(b"".join(graph.serialized()))
    job = Job(str(path), graph.inputs, graph.outputs, BATCHES, RunConfig(), ())
    sessions = ProcessSessions()
    for settings in (RunConfig(), RunConfig(batch=4), RunConfig(executor="caller")):
        sessions.open(replace(job, settings=settings))
    sessions.open(replace(job, outputs=graph.outputs[:1]))
    sessions.open(replace(job, settings=RunConfig(input="tfdata")))
    runners = sessions._runners
    assert [each.graph is runners[0].graph for each in runners] == [True] * 3 + [False] * 2
    assert len({id(each.session) for each in runners}) == 5
    for runner in runners[:3]:
        for wanted, found in zip(runners[0]._call(*BATCHES[1]), runner._call(*BATCHES[1]),
                                 strict=True):  # fmt: skip
            np.testing.assert_array_equal(wanted, found)
