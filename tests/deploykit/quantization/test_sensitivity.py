"""A layer's noise is that of the graph in which it alone is in 8 bits; a command ranks layers."""

import json
import math
import re

import numpy as np
import pytest

from deploykit.importers.graph_files import save_graph
from deploykit.pipelines.int8 import int8_graph
from deploykit.quantization.accuracy import Evaluator, Judgement
from deploykit.quantization.calibration import calibrate
from deploykit.quantization.sensitivity import (
    measure_sensitivity,
    rank_alone,
)
from deploykit.rendering.formatters.quantization import sensitivity_lines as lines
from deploykit.transforms.common.errors import CrashError, LimitError
from deploykit.transforms.int8.plan import plan
from deploykit.transforms.int8.ranges import load_ranges
from tests.deploykit.quantization.conftest import classifier, conv_net, logits
from tests.support import Containing, because, ops, random, run, says, shows

X = random(40, 16, low=0)
LAYERS = ["first", "second"]


@pytest.fixture
def ranges(in_process, tmp_path):
    """Return the file of the classifier's ranges."""
    path = tmp_path / "ranges.json"
    path.write_text(calibrate(classifier(), [{"x": X}]).ranges.text())
    return str(path)


def alone(ranges, layer):
    """Return the noise of a layer, by NumPy from what TensorFlow gives."""
    other = next(each for each in LAYERS if each != layer)
    graph = int8_graph(classifier(), ranges, keep_float=[other])
    assert ops(graph)["_QuantizedMatMul"] == 1
    graph.outputs = ("logits",)
    (found,) = run(graph, {"x": X})
    expected = logits(X)
    return 10 * math.log10(np.square(expected).sum() / np.square(found - expected).sum())


def ranked(ranges, judge=None, **options):
    """Return the layers of the classifier by their noise."""
    graph = classifier()
    layers = plan(graph, load_ranges(ranges)).chains.keys()
    with Evaluator(graph, [{"x": X}]) as own:
        return rank_alone(
            {layer: graph[layer].op for layer in layers},
            lambda layer: int8_graph(graph, ranges, keep_float=layers - {layer}),
            judge or own.judge,
            **options,
        )


def test_each_layer_alone(ranges):
    found = ranked(ranges)
    expected = {layer: alone(ranges, layer) for layer in LAYERS}
    assert [noise.layer for noise in found] == sorted(LAYERS, key=expected.__getitem__)
    for noise in found:
        assert noise.sqnr_db == pytest.approx(expected[noise.layer], abs=0.01)
        assert 20 < noise.sqnr_db < 70
        assert (noise.op, noise.fault) == ("MatMul", "")


def test_an_interrupted_ranking_goes_on(ranges):
    kept, seen = {}, []

    def interrupt(noise):
        kept[noise.layer] = noise
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ranked(ranges, on_result=interrupt)
    assert list(kept) == ["first"]
    new = []
    again = ranked(
        ranges,
        known=kept,
        on_result=new.append,
        advance=lambda name, count: seen.append((name, count)),
    )
    assert [noise.layer for noise in new] == ["second"]
    assert again == ranked(ranges)
    assert seen == [("first", 2), ("second", 2)]


def test_a_layer_that_cannot_be_run_stands_first(ranges):
    asked = []

    def judge(graph):
        asked.append(graph)
        if len(asked) == 2:
            raise CrashError("child-died", runs="TensorFlow", signal="SIGABRT", reason="no output")
        return Judgement(30.0, None, 3)

    found = ranked(ranges, judge)
    assert [noise.layer for noise in found] == ["second", "first"]
    assert (found[0].sqnr_db, found[0].fault[:15]) == (-math.inf, "TensorFlow died")

    def late(graph):
        raise LimitError("too late")

    with pytest.raises(LimitError):
        ranked(ranges, late)


def test_the_file_of_ranges_is_read_again_when_it_changed(ranges, tmp_path):
    """Graphs are built by the dozen from one file, so what was read is kept."""
    before = ranked(ranges)
    text = (tmp_path / "ranges.json").read_text()
    document = json.loads(text)
    document["tensors"]["relu"]["max"] *= 4
    (tmp_path / "ranges.json").write_text(json.dumps(document))
    after = {noise.layer: noise.sqnr_db for noise in ranked(ranges)}
    for noise in before:
        if noise.layer == "second":
            assert after["second"] < noise.sqnr_db - 6


@pytest.mark.sampled
def test_a_model_is_calibrated_on_some_samples_and_judged_by_others(in_process):
    found = measure_sensitivity(classifier(), {"x": X, "labels": np.zeros(40)})
    assert found.samples == (30, 10)
    assert [noise.layer for noise in found.ranking] == [
        noise["layer"] for noise in found.document()["layers"]
    ]
    assert found.together.sqnr_db < found.ranking[0].sqnr_db
    calibrated = np.delete(X, np.s_[3::4], 0)
    assert found.ranges["second"].max == pytest.approx(logits(calibrated).max(), rel=1e-5)
    assert found.notes == ()
    many = {"x": random(200, 16, low=0)}
    assert measure_sensitivity(classifier(), many).samples == (150, 16)


def test_a_model_without_layers_in_8_bits(in_process):
    graph = conv_net()
    graph.outputs = ("relu6",)
    graph.prune()
    never_active = np.zeros((8, 6, 7, 2), np.float32)
    found = measure_sensitivity(graph, {"x": never_active})
    assert found.ranking == ()
    assert set(found.reasons) == {"conv"}
    assert list(lines(found))[-1] == because("no-layer-int8")
    assert any(line == Containing("float32", "conv (") for line in lines(found))


def test_the_command(deploykit, tmp_path):
    model, data, output = (tmp_path / name for name in ("net.pb", "data.npz", "out.json"))
    save_graph(classifier(), model)
    np.savez(data, x=X)
    found = deploykit("sensitivity", model, "--calibration", data, "--json", "-o", output)
    assert found.status == 0, found.stderr
    document = found.document
    assert json.loads(output.read_text()) == document
    assert [layer["op"] for layer in document["layers"]] == ["MatMul", "MatMul"]
    noise = [layer["sqnr_db"] for layer in document["layers"]]
    assert noise == sorted(noise)
    assert document["together"]["sqnr_db"] < noise[0]
    assert document["samples"] == {"calibration": 30, "held_out": 10}
    np.savez(data, x=X[:7])
    found = deploykit("sensitivity", model, "--calibration", data, "--top", 1)
    assert found.status == 0, found.stderr
    shown = [layer["layer"] in found.stdout for layer in document["layers"]]
    assert shown == [True, False]
    assert shows(found.stdout, "too-few-to-hold-out", count=7)
    assert shows(found.stdout, "layers-can-be-int8", count=2, every=2)


def test_what_the_command_refuses(deploykit, tmp_path):
    model, data, other = (tmp_path / name for name in ("net.pb", "data.npz", "other.json"))
    save_graph(classifier(), model)
    np.savez(data, x=X)
    other.write_text(calibrated_elsewhere())
    np.savez(tmp_path / "wrong.npz", y=X, z=X)
    for arguments, status, said in [
        ((), 2, "--calibration"),
        (("--calibration", tmp_path / "none.npz"), 4, "No such file"),
        (
            ("--calibration", tmp_path / "wrong.npz"),
            2,
            says("unknown-name", kind=Containing("array")),
        ),
        (("--calibration", data, "--ranges", other), 2, says("ranges-of-other-graph")),
        (("--calibration", data, "--isa", "sse"), 2, "sse"),
        (("--calibration", data, "-o", data), 4, says("output-is-input")),
    ]:
        found = deploykit("sensitivity", model, *arguments)
        assert (found.status, found.printed) == (status, "")
        assert re.search(said, found.stderr)


def calibrated_elsewhere() -> str:
    """Return the ranges of a graph with other names."""
    from deploykit.transforms.int8.ranges import Ranges, TensorRange

    return Ranges("", 3, {"elsewhere": TensorRange(0, 1)}).text()
