"""What OpenVINO made of a model is shown: its ops, in what they compute, which layers they are."""

import numpy as np
import pytest

import deploykit as api
from deploykit.importers.graph_files import load_graph, save_graph
from deploykit.importers.metadata_file import with_engine
from deploykit.inspection.placement import EnginePlacement
from deploykit.transforms.common.errors import GraphError, LoadError
from deploykit.transforms.engines.engines import EngineUse
from tests.support import because, build, building, raises, random, shows, tf


def test_one_device_computes_all(deploykit, small):
    found = deploykit("placement", small, "--engine", "openvino")
    assert found.status == 0, found.stderr
    assert shows(found.stdout, "one-device-runs", device="CPU")
    assert "int8 layers: 0 of " in found.stdout
    document = deploykit("placement", small, "--engine", "openvino", "--json").document
    assert (document["engine"], document["devices"]) == ("openvino", ["CPU"])
    assert document["engine_version"][0].isdigit()
    kinds = [each["kind"] for each in document["executed"]]
    assert {"Convolution", "FullyConnected"} <= {*kinds}
    by_precision = document["ops_by_precision"].values()
    assert sum(count for ops in by_precision for count in ops.values()) == len(kinds)
    assert document["layers_in_8_bits"] == 0
    assert document["conversions"] == sum(kind in ("Convert", "Reorder") for kind in kinds)


def test_layers_in_8_bits_are_counted():
    with building(["x"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 64], name="x")
        x = tf.quantization.fake_quant_with_min_max_args(x, 0.0, 2.55)
        weights = tf.constant(np.round(random(64, 32) * 127).astype(np.int8))
        tf.matmul(x, tf.cast(weights, tf.float32) * np.float32(0.01), name="out")
    found = api.placement(graph, engine="openvino")
    assert isinstance(found, EnginePlacement)
    assert (found.in_8_bits, [each.layer for each in found.layers]) == (1, ["out"])
    assert set(found.by_precision) & {"u8", "i8"}


@pytest.mark.sampled
def test_the_engine_that_a_model_was_written_for_is_asked(small):
    graph = load_graph(small)
    graph.about = with_engine(graph, EngineUse("openvino", "2026.4.1"))
    path = small.with_name("written.pb")
    save_graph(graph, path)
    assert isinstance(api.placement(path), EnginePlacement)
    assert not isinstance(api.placement(path, engine="tensorflow"), EnginePlacement)


def test_what_is_of_tensorflow_alone_is_refused(deploykit, small):
    with raises(GraphError, "engine-computes-all", runtime=because("one-device")):
        api.placement(small, engine="openvino", cpu_devices=2)
    assert deploykit("placement", small, "--engine", "openvino", "--log").status == 2


def test_a_machine_without_it_says_so_before_anything_is_read(monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *more: None)
    with raises(GraphError, "engine-unavailable", engine="openvino"):
        api.placement(tmp_path / "no.pb", engine="openvino")


def test_ops_that_it_lacks_are_named():
    def words():
        x = tf.compat.v1.placeholder(tf.float32, [None], name="x")
        tf.strings.length(tf.strings.as_string(x), name="y")

    with raises(LoadError, "openvino-unknown-op"):
        api.placement(build(words, ["x"], ["y"]), engine="openvino")
