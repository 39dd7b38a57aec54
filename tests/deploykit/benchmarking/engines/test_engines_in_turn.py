"""TensorFlow and OpenVINO take turns in one benchmark, and what is said of either is its own."""

import csv
import importlib.util
import json
from pathlib import Path

import pytest

import deploykit
from deploykit import RunConfig
from deploykit.benchmarking.tables import csv_lines, machine_line
from deploykit.importers.graph_files import load_graph, save_graph
from deploykit.importers.metadata_file import with_engine
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.engines.engines import EngineUse
from deploykit.transforms.runtime.child_process import Worker
from deploykit.verification import engine_check
from tests.deploykit.benchmarking.made_up_results import measurement, result
from tests.deploykit.conftest import command_line
from tests.support import because, raises, shows

BOTH = ["tensorflow", "openvino"]


@pytest.fixture(scope="module")
def small_path(tmp_path_factory, small_bytes):
    path = tmp_path_factory.mktemp("engines") / "small.pb"
    path.write_bytes(small_bytes)
    return path


@pytest.fixture(scope="module")
def found(small_path):
    return deploykit.benchmark(small_path, engine=BOTH, threads=[(1, 1), (1, 2)], runs=40)


@pytest.fixture
def written_for_openvino(small):
    graph = load_graph(small)
    graph.about = with_engine(graph, EngineUse("openvino", "2026.4.1"))
    path = small.with_name("written.pb")
    save_graph(graph, path)
    return path


@pytest.fixture
def without_openvino(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "openvino" else find(name)
    )


@pytest.mark.sampled
def test_each_is_named_and_compared_with_the_first(found):
    names = ["TensorFlow, threads 1x1", "TensorFlow, threads 1x2", "OpenVINO, threads 1x1"]
    assert [each.name for each in found.measurements] == names
    assert [len(each.latencies_ms) for each in found.measurements] == [40] * 3
    assert [each is None for each in found.judgements()] == [True, False, False]


@pytest.mark.sampled
def test_no_process_has_two_engines(found):
    processes = {}
    for each in found.measurements:
        for turn in each.turns:
            processes.setdefault(turn.process, set()).add(each.settings.engine)
    assert all(len(engines) == 1 for engines in processes.values())
    assert {"openvino"} in processes.values()
    assert {None} in processes.values()


def test_the_engine_and_its_version_are_told_everywhere(found):
    version = found.measurements[2].facts["openvino"]
    assert machine_line(found).endswith(f"OpenVINO {version}")
    assert "TensorFlow 2" in machine_line(found)
    document = json.loads(json.dumps(found.document()))
    assert [each["settings"].get("engine") for each in document["measurements"]] == [
        None, None, "openvino"
    ]  # fmt: skip
    rows = list(csv.DictReader(csv_lines(found)))
    assert [each["engine"] for each in rows] == ["tensorflow", "tensorflow", "openvino"]
    assert rows[2]["engine_version"] == version
    assert rows[0]["engine_version"] == found.measurements[0].facts["tensorflow"]


@pytest.mark.sampled
def test_of_one_engine_no_other_is_told(small_path):
    alone = deploykit.benchmark(small_path, engine="openvino", runs=4)
    assert [each.name for each in alone.measurements] == ["small.pb"]
    assert "TensorFlow" not in machine_line(alone)


def test_a_wrong_engine_is_not_timed(deploykit, small, monkeypatch):
    wrong = "tests.deploykit.benchmarking.engines.wrong:OfAnotherValue"

    def put(kind, *arguments, **forced):
        return Worker(wrong if kind.endswith("OpenVinoSession") else kind, *arguments, **forced)

    monkeypatch.setattr(engine_check, "Worker", put)
    found = deploykit("benchmark", small, "--engine", "tensorflow,openvino", "--runs=4")
    assert found.status == 5
    assert found.printed == ""
    assert shows(found.stderr, "engine-differs-untimed", engine="OpenVINO")


def test_a_machine_without_openvino_says_so_before_anything_is_read(
    deploykit, tmp_path, without_openvino
):
    found = deploykit("benchmark", tmp_path / "no.pb", "--engine", "tensorflow,openvino")
    assert found.status == 2
    assert shows(found.stderr, "engine-unavailable", engine="openvino")
    assert shows(found.stderr, "package-missing", extra="openvino")


@pytest.mark.slow
def test_a_model_is_measured_in_the_engine_that_it_was_written_for(
    written_for_openvino, small, caplog
):
    caplog.set_level("INFO", "deploykit")
    models = [written_for_openvino, small]
    found = deploykit.benchmark(models, runs=4)
    assert [each.settings.engine for each in found.measurements] == ["openvino", None]
    assert [each.name for each in found.measurements] == [
        "written.pb, OpenVINO", "small.pb, TensorFlow's defaults"
    ]  # fmt: skip
    written = {"model": written_for_openvino, "engine": "OpenVINO"}
    assert because("written-for-engine", **written) in caplog.messages
    caplog.clear()
    found = deploykit.benchmark(models, engine="tensorflow", runs=4)
    assert {each.settings.engine for each in found.measurements} == {None}
    assert caplog.messages == []


def test_without_openvino_it_is_said_that_tensorflow_only_emulates_it(
    written_for_openvino, without_openvino, caplog
):
    found = deploykit.benchmark(written_for_openvino, runs=4)
    assert found.measurements[0].settings.engine is None
    (said,) = caplog.messages
    assert shows(said, "engine-emulated", engine="OpenVINO")


def test_its_precision_is_kept(small):
    graph = load_graph(small)
    graph.about = with_engine(graph, EngineUse("openvino", "2026.4.1", "bf16"))
    if "avx512_bf16" not in Path("/proc/cpuinfo").read_text():  # the CPU runs all in float32
        with raises(GraphError, "precision-bf16-no-op"):
            deploykit.benchmark(graph, runs=4)
        return
    (each,) = deploykit.benchmark(graph, runs=4).measurements
    assert each.settings.precision == "bf16"


def test_what_its_engine_does_not_have_is_refused(written_for_openvino):
    with raises(
        GraphError,
        "settings-other-engine",
        title="OpenVINO",
        reason=because("engine-lacks", engine="OpenVINO", settings="oneDNN off"),
    ):
        deploykit.benchmark(written_for_openvino, onednn=False, runs=4)
    with raises(GraphError, "engine-cpu-only", engine="OpenVINO"):
        deploykit.benchmark(written_for_openvino, device="gpu", runs=4)


@pytest.mark.slow
def test_the_layers_that_openvino_runs_are_profiled(small):
    found = deploykit.benchmark(small, engine=BOTH, profile=True, runs=4)
    tensorflow, openvino = found.profiles.values()
    assert openvino.model_flops == tensorflow.model_flops >= openvino.total.flops > 0
    by_node = {node.name: node.flops for node in tensorflow.nodes}
    assert {node.flops for node in openvino.nodes} - {0} <= {*by_node.values()}
    assert openvino.uncounted == ()
    assert all(node.op.split()[1] in ("f32", "i32", "i64") for node in openvino.nodes)
    layers = [node for node in openvino.nodes if node.flops]
    assert all(node.moved > 0 for node in layers)
    assert {op.op for op in openvino.ops} == {node.op for node in openvino.nodes}


def test_what_only_tensorflow_does_is_refused_before_anything_is_measured(small, tmp_path):
    with raises(GraphError, "files-one-path-only", what=because("files-need-tensorflow")):
        deploykit.benchmark(small, engine="openvino", data=str(tmp_path))


def test_results_of_two_engines_are_no_partners():
    one, other = result(measurement()), result(measurement(settings=RunConfig(engine="openvino")))
    assert len(deploykit.compare(one, one).pairs) == len(deploykit.compare(other, other).pairs) == 1
    with raises(GraphError, "no-measurement-pairs", name="a"):
        deploykit.compare(one, other)


def test_a_history_keeps_engines_apart(tmp_path):
    path = tmp_path / "history.json"
    deploykit.compare(result(measurement()), baseline=path)
    with raises(GraphError, "no-measurement-pairs", other="a"):
        deploykit.compare(result(measurement(settings=RunConfig(engine="openvino"))), baseline=path)


def test_the_wrong_usage_is_told():
    found = command_line("benchmark", "no.pb", "--engine", "tflite")
    assert found.status == 2
    assert shows(found.stderr, "option-value", got="tflite", option="--engine")
