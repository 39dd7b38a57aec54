"""`deploykit quantize` with calibration as a user calls it: figures, files, wrong usage."""

import json
import re

import numpy as np
import pytest

from deploykit.benchmarking.speed_verdict import SLOWER
from deploykit.importers.graph_files import load_graph, save_graph
from deploykit.quantization import (
    accuracy,
    calibrated_graph,
    calibration,
    candidates,
    search,
    search_task,
    target,
)
from deploykit.quantization.quantize_options import is_quantized
from deploykit.storage.arrays import load_data
from tests import pairwise
from tests.deploykit.conftest import FASHION, command_line, refusals
from tests.deploykit.quantization.conftest import InProcess
from tests.deploykit.quantization.test_search import INT8_OPS, LAYERS, Clock, residual_net
from tests.support import (
    Containing,
    assert_golden,
    because,
    build,
    building,
    ops,
    random,
    says,
    showing,
    shows,
    tf,
)

FACTS = {
    "result", "reason", "isa", "calibration_samples", "int8_layers", "all_layers", "layers",
    "judgement", "evaluation", "speed", "seconds_by_step", "notes", "engine", "engine_reason",
    "engine_speed", "precision",
}  # fmt: skip
OF_A_LAYER = {
    "layer", "op", "computes_in", "why_float", "min", "max", "sqnr_db", "eigen_us", "onednn_us",
    "float_us", "int8_us",
}  # fmt: skip


def unfed(found):
    """Return the lines on stderr but for those that say what was fed."""
    return [line for line in found.stderr.splitlines() if not shows(line, "fed-as-is")]


@pytest.fixture
def clock(monkeypatch) -> Clock:
    """Judge in this process, with figures that do not depend on a clock."""
    made = Clock()
    monkeypatch.setattr(target, "probe", frozenset)
    monkeypatch.setattr(target, "layer_times", made.layer_times)
    monkeypatch.setattr(candidates, "faster", made.faster)
    monkeypatch.setattr(calibration, "Worker", InProcess)
    monkeypatch.setattr(accuracy, "Worker", InProcess)
    return made


@pytest.fixture(scope="module")
def net_bytes() -> bytes:
    return b"".join(residual_net().serialized())


@pytest.fixture
def net(tmp_path, net_bytes):
    (tmp_path / "net.pb").write_bytes(net_bytes)
    return tmp_path / "net.pb"


@pytest.fixture
def data(tmp_path):
    np.savez(tmp_path / "data.npz", x=random(64, 8, 8, 3, low=0), labels=np.zeros(64, int))
    return tmp_path / "data.npz"


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """One run of all of it, on a net that is too small for 8 bits to pay."""
    folder = tmp_path_factory.mktemp("real")
    photos = load_data(FASHION / "test_1000.npz")
    np.savez(folder / "some.npz", **{name: array[:80] for name, array in photos.items()})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target, "probe", frozenset)
        patch.setattr(search_task, "DEPTHS", (search_task.Depth(0.5, 0.5),))
        found = command_line(
            "quantize", FASHION / "fashion.keras", "-o", folder / "out.pb", "--threads=1x1",
            "--calibration", folder / "some.npz", "--evaluation", FASHION / "test_1000.npz",
            "--json", "--allow-float",
        )  # fmt: skip
    return folder, found


@pytest.mark.slow
def test_a_tiny_net_as_it_is_measured(real):
    folder, found = real
    assert (found.status, unfed(found)) == (0, [])
    document = found.document
    assert set(document) >= FACTS
    is_float = document["precision"] == "float32"  # the machine decides
    assert (document["result"] == "float") == is_float
    assert is_float == document["speed"]["verdict"].startswith(SLOWER)
    assert is_float == (not INT8_OPS & set(ops(load_graph(folder / "out.pb"))))
    assert document["nodes_out"] == len(load_graph(folder / "out.pb"))
    assert sorted(path.name for path in folder.iterdir()) == ["out.pb", "out.pb.json", "some.npz"]
    assert document["calibration_samples"] == 60
    assert len(document["layers"]) == 12
    for each in document["layers"]:
        assert set(each) == OF_A_LAYER
        assert not is_float or each["computes_in"] == "float"
        assert min(each[name] for name in ("eigen_us", "onednn_us", "int8_us")) > 0
        assert each["sqnr_db"] is None, "layers are ranked only where not all of them hold"
    if document["evaluation"] is not None:
        before, after = (document["evaluation"][name] for name in ("before", "after"))
        assert abs(before["value"] - after["value"]) < 0.01
        assert before["interval"][0] < before["value"] < before["interval"][1]


@pytest.mark.sampled
def test_an_8_bit_graph_is_written(deploykit, net, data, clock):
    found = deploykit("quantize", net, "--calibration", data, "--min-sqnr=15", "--json")
    assert (found.status, unfed(found)) == (0, [])
    document = json.loads(found.stdout, parse_constant=pytest.fail)
    assert document["output_file"] == str(net.parent / "net.quantized.pb")
    graph = load_graph(document["output_file"])
    assert set(ops(graph)) >= INT8_OPS
    assert (document["result"], document["int8_layers"], document["all_layers"]) == ("int8", 4, 4)
    assert [each["layer"] for each in document["layers"]] == list(LAYERS)
    assert {each["computes_in"] for each in document["layers"]} == {"int8"}
    assert document["speed"] == {
        "times_as_fast": 2.0,
        "low": 1.9,
        "high": 2.1,
        "against": "float",
        "cpu_ms": None,
        "cpu_ms_against": None,
        "core_seconds_per_1000": None,
        "core_seconds_per_1000_against": None,
        "cpu_ratio": None,
        "verdict": "faster: 2.00x (99.8 % CI 1.9-2.1)",
        "significant": True,
    }
    assert document["judgement"]["sqnr_db"] >= 15
    assert document["evaluation"] is None
    assert document["bytes_out"] == (net.parent / "net.quantized.pb").stat().st_size


@pytest.mark.sampled
def test_what_people_read(deploykit, net, data, clock):
    clock.int8_ns["dense"] = 80_000
    found = deploykit("quantize", net, "--calibration", data, "--evaluation", data, "--max-drop=1")
    assert found.status == 0, found.stderr
    lines = found.stdout.splitlines()
    assert any(line.split()[:2] == ["conv", "int8"] for line in lines)
    assert any(line == Containing("float32", "dense (") for line in lines)
    assert any(shows(line, "layers-int8", count=3, every=4) for line in lines)
    assert any(line.startswith("held-out samples: SQNR ") for line in lines)
    assert any(line.startswith("evaluation: SQNR ") and "top1" in line for line in lines)
    assert lines[-1] == Containing("int8 (int8", "2.00x (99.8 %", "CI 1.9-2.1)", "float32)")


def test_groups_of_held_out_samples(deploykit, net, data, clock):
    """Of each four samples of a kind, one is held out."""
    clock.int8_ns["dense"] = 80_000
    with np.load(data) as arrays:
        x = arrays["x"]
    kinds = np.array(["day", "night"])[np.arange(64) // 4 % 2]
    np.savez(data, x=x, kind=kinds)
    options = ("--calibration", data, "--group-by=kind", "--min-sqnr=15")
    found = deploykit("quantize", net, *options, "--json")
    assert found.status == 0, found.stderr
    groups = json.loads(found.stdout)["judgement"]["groups"]
    assert [(each["group"], each["samples"]) for each in groups] == [("day", 8), ("night", 8)]
    assert all(15 < each["sqnr_low_db"] < each["sqnr_db"] for each in groups)
    found = deploykit("quantize", net, *options, "--force")
    assert because("groups-held-out") in found.stdout
    rows = [line.split()[:2] for line in found.stdout.splitlines()]
    assert ["day", "8"] in rows
    assert ["night", "8"] in rows


@pytest.mark.sampled
def test_the_state_is_kept_when_interrupted(deploykit, net, data, clock, monkeypatch):
    command = ("quantize", net, "--calibration", data, "--min-sqnr=15")

    def interrupted(*arguments, **more):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(target, "layer_times", interrupted)
        found = deploykit(*command)
    state = net.parent / "net.quantized.pb.state"
    assert found.status == 130
    assert shows(found.stderr, "intermediate-results", file=state)
    assert state.exists()
    assert not (net.parent / "net.quantized.pb").exists()
    with monkeypatch.context() as patch:
        patch.setattr(calibrated_graph, "calibrate", pytest.fail)
        assert deploykit(*command).status == 0
    assert not state.exists()


def test_what_is_below_the_bar_is_refused(deploykit, net, data, clock, monkeypatch):
    from tests.deploykit.quantization.test_search import Planted, input_for_output

    Planted(monkeypatch, input_for_output)
    found = deploykit("quantize", net, "--calibration", data, "--min-sqnr=0", "--json")
    assert_not_quantized(found, says("int8-noise-held-out"))
    assert sorted(path.name for path in net.parent.iterdir()) == ["data.npz", "net.pb"]


def assert_not_quantized(found, why):
    """Check the exit status, the document and the message of what wrote nothing."""
    document = found.document
    assert (found.status, document["precision"], document["output_file"]) == (5, "float32", None)
    assert re.match(why, document["reason"])
    assert shows(found.stderr, "float32-is-right")
    assert len(unfed(found)) == 1


SLOW = (0.9, 0.855, 0.945)


@pytest.mark.sampled
@pytest.mark.parametrize("allow", [False, True])
@pytest.mark.parametrize(
    ("options", "speed", "why"),
    pairwise.drawn(
        "the_policy",
        [
            (
                ["--calibration=data.npz"],
                SLOW,
                says("int8-slower", rival="float32", ratio=Containing("0.9")),
            ),
            (["--calibration=data.npz"], (1.42, 0.215, 9.33), ""),
            (["--calibration=data.npz"], (0.9, 0.8, 1.001), ""),
            (["--calibration=data.npz"], (1.0, 0.0, np.inf), ""),
            (
                ["--calibration=data.npz", "--min-sqnr=1000"],
                (2, 1.9, 2.1),
                says("int8-noise-at-most", expected=1000),
            ),
            (
                ["--calibration=data.npz", *(f"--keep-float={each}" for each in LAYERS)],
                SLOW,
                says("no-int8-layer"),
            ),
            ([], SLOW, says("weights-too-small", least=1024)),
            (["--minimum-size=1"], SLOW, ""),
            (["--minimum-size=1", "--min-sqnr=300"], SLOW, says("int8-inaccurate")),
            (["--mode=nodes", "--min-sqnr=1"], SLOW, ""),
            (["--mode=nodes", "--min-sqnr=300"], SLOW, says("int8-inaccurate")),
        ],
        2,
        quick=5,
    ),
)
def test_the_policy(deploykit, net, data, clock, monkeypatch, options, speed, why, allow):
    """int8 is kept unless it is significantly slower or too inaccurate; else exit 5, or float32."""
    monkeypatch.chdir(net.parent)
    clock.interval = speed
    command = ("quantize", net, "-o", "out.pb", "--json", *options)
    found = deploykit(*command, *(["--allow-float"] if allow else []))
    if why and not allow:
        assert_not_quantized(found, why)
        assert sorted(path.name for path in net.parent.iterdir()) == ["data.npz", "net.pb"]
        return
    assert found.status == 0, found.stderr
    document, graph = found.document, load_graph("out.pb")
    assert document["precision"] == ("float32" if why else "int8")
    assert re.match(why, document["reason"])
    assert is_quantized(graph) == (not why)
    is_open = why == "" and speed[1] < 1 < speed[2] and "--calibration=data.npz" in options
    assert ("inconclusive" in document["reason"]) == is_open


@pytest.mark.sampled
@pytest.mark.parametrize("mode", ["weights", "nodes"])
@pytest.mark.parametrize("allow", [False, True])
def test_nothing_to_quantize(deploykit, tmp_path, mode, allow):
    relu_file(tmp_path)
    options = ["--allow-float"] if allow else []
    found = deploykit("quantize", tmp_path / "relu.pb", f"--mode={mode}", "--json", *options)
    if mode == "nodes":  # a Relu has an int8 form there
        assert (found.status, found.document["precision"]) == (0, "int8")
    elif allow:
        assert (found.status, found.document["precision"]) == (0, "float32")
        assert (tmp_path / "relu.quantized.pb").exists()
    else:
        assert_not_quantized(found, says("weights-too-small"))
        assert not (tmp_path / "relu.quantized.pb").exists()


def test_the_modes_without_calibration(deploykit, net):
    found = deploykit("quantize", net, "--minimum-size=64")
    assert found.status == 0
    assert because("int8-layers-too") in found.stderr
    weights = load_graph(net.parent / "net.quantized.pb")
    assert not INT8_OPS & set(ops(weights))
    found = deploykit("quantize", net, "--mode=weights", "--minimum-size=64", "--force", "--json")
    assert (found.status, found.document["bytes_out"] > 0) == (0, True)
    found = deploykit("quantize", net, "--mode=nodes", "--force", "--min-sqnr=1")
    assert found.status == 0
    assert found.stderr.count("\n") == 1
    assert "quantize_nodes makes" in found.stderr
    assert "QuantizedConv2D" in ops(load_graph(net.parent / "net.quantized.pb"))


WRONG = (
    "--mode=static", "--mode=weights --calibration=data.npz", "--metric=top5", "--keep-float=conv",
    "--prefer=speed", "--group-by=kind", "--calibration=other.npz", "--calibration=broken.npz",
    "--calibration=short.npz", "--calibration=uneven.npz", "--calibration=nan.npz",
    "--calibration=x.npz --group-by=kind",
    *(f"--calibration=data.npz {more}" for more in (
        "--prefer=speed --min-sqnr=20", "--prefer=speed --evaluation=data.npz", "--prefer=size",
        "--metric=top5", "--max-drop=1", "--data=data.npz", "--skip=conv", "--threads=2x",
        "--threads=1x1,2x1", "--batch=0", "--min-sqnr=nan", "--budget=0", "--keep-float=cnov",
        "--evaluation=other.npz", "--evaluation=x.npz", "--evaluation=data.npz --metric=no",
    )),
)  # fmt: skip


@pytest.mark.golden("usage/quantize")
def test_wrong_usage(deploykit, net, data, clock, monkeypatch):
    monkeypatch.chdir(net.parent)
    x = random(9, 8, 8, 3)
    np.savez("other.npz", y=x, z=x)
    np.savez("x.npz", x=x)
    np.savez("short.npz", x=x, labels=np.arange(3))
    np.savez("uneven.npz", x=x, group=np.arange(3))
    np.savez("nan.npz", x=x * np.nan)
    (net.parent / "broken.npz").write_bytes(b"no archive")
    before = sorted(net.parent.iterdir())
    assert_golden(*refusals(deploykit, ("quantize", net), WRONG, net.parent, feeds=True))
    assert sorted(net.parent.iterdir()) == before


@pytest.mark.sampled
def test_a_graph_in_8_bits_is_not_quantized_again(deploykit, net, data, clock):
    assert deploykit("quantize", net, "--calibration", data, "--min-sqnr=15").status == 0
    found = deploykit("quantize", net.parent / "net.quantized.pb", "--calibration", data)
    assert found.status == 2
    assert shows(found.stderr, "quantized-already")


def relu_file(folder):
    """Write a model without layers, and samples of it."""
    from deploykit.transforms.ir.graph import Graph
    from deploykit.transforms.ir.node import Node
    from deploykit.transforms.ir.tensors import DType

    x = Node("x", "Placeholder").with_attrs(dtype=DType("float32"), shape=(-1, 2))
    graph = Graph([x, Node("out", "Relu", ("x",)).with_attrs(T=DType("float32"))], ["x"], ["out"])
    save_graph(graph, folder / "relu.pb")
    np.savez(folder / "data.npz", x=random(9, 2))


def test_a_model_without_layers(deploykit, tmp_path, clock):
    relu_file(tmp_path)
    command = ("quantize", tmp_path / "relu.pb", "--calibration", tmp_path / "data.npz")
    why = says("empty-quantization", reason=Containing("float32"))
    assert_not_quantized(deploykit(*command, "--json"), why)
    assert not (tmp_path / "relu.quantized.pb").exists()
    found = deploykit(*command, "--allow-float")
    assert found.status == 0
    assert re.fullmatch(rf"result: float32 \({why}\)", found.stdout.splitlines()[-1])
    assert (tmp_path / "relu.quantized.pb").exists()


def classifier_file(folder, bias):
    """Write a dense layer with a Softmax, and return its path."""

    with building(["x"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 16], name="x")
        y = tf.nn.bias_add(tf.matmul(x, random(16, 10), name="dense"), bias, name="logits")
        tf.nn.softmax(y, name="out")
    save_graph(graph, folder / "net.pb")
    return folder / "net.pb"


@pytest.mark.sampled
@pytest.mark.parametrize("labels", [None, np.arange(64) % 10])
def test_answers_of_one_class_stop_it(deploykit, tmp_path, clock, monkeypatch, labels):
    net = classifier_file(tmp_path, np.eye(10, dtype=np.float32)[3] * 100)
    arrays = {"x": random(64, 16)} | ({} if labels is None else {"labels": labels})
    np.savez(tmp_path / "data.npz", **arrays)
    command = ("quantize", net, "--calibration", tmp_path / "data.npz")
    with monkeypatch.context() as patch:
        patch.setattr(search, "prepare", pytest.fail)  # it stops before all that takes long
        found = deploykit(*command)
    assert (found.status, found.printed) == (5, "")
    assert shows(
        found.stderr.splitlines()[-1],
        "outputs-doubtful",
        doubt=Containing("--preprocess"),
    )
    found = deploykit(*command, "--allow-low-accuracy", "--json")
    assert found.status == 0
    (said,) = (note for note in found.document["notes"] if shows(note, "all-one-class", number=3))
    assert said.startswith(f"{tmp_path / 'data.npz'}: ")
    assert f"deploykit: warning: {said}" in found.stderr.splitlines()


def test_labels_of_another_order_stop_it(deploykit, tmp_path, clock):
    net = classifier_file(tmp_path, np.zeros(10, np.float32))
    x = random(128, 16)
    right = (x @ random(16, 10)).argmax(1)
    for name, labels in (("right", right), ("wrong", (right + 1) % 10)):
        np.savez(tmp_path / f"{name}.npz", x=x, labels=labels)
    assert deploykit("quantize", net, "--calibration", tmp_path / "right.npz").status == 0
    found = deploykit("quantize", net, "--calibration", tmp_path / "wrong.npz", "--force")
    assert found.status == 5
    assert shows(found.stderr, "outputs-doubtful", doubt=showing("guesses-as-good"))


@pytest.fixture
def uneven(tmp_path):
    """Write a net of which one layer of three has a weight that takes most of the range."""

    def body():
        x = tf.compat.v1.placeholder(tf.float32, [None, 64], name="x")
        for seed, (name, outlier) in enumerate((("first", 0), ("second", 8), ("third", 0))):
            weights = random(64, 64, seed=seed)
            weights[0] += outlier
            x = tf.nn.relu(tf.matmul(x, tf.constant(weights, name=f"{name}/weights"), name=name))
        tf.identity(x, name="out")

    save_graph(build(body, ["x"], ["out"]), tmp_path / "uneven.pb")
    x = random(40, 64)
    np.savez(tmp_path / "data.npz", x=x)
    return tmp_path / "uneven.pb"


@pytest.mark.parametrize("data", pairwise.drawn("noisiest", [True, False], 1, quick=1))
def test_the_noisiest_weights_stay_float(deploykit, uneven, data):
    given = ("--data", uneven.parent / "data.npz") if data else ()
    before = deploykit("quantize", uneven, *given, "--min-sqnr=1", "--json").document
    assert {each["stored_in"] for each in before["weights"]} == {"int8"}
    bar = before["sqnr_db"] + 2
    found = deploykit("quantize", uneven, *given, f"--min-sqnr={bar}", "--json", "--force")
    assert found.status == 0, found.stderr
    weights = {each["weight"]: each for each in found.document["weights"]}
    assert found.document["sqnr_db"] >= bar
    floats = [each for each in weights.values() if each["stored_in"] == "float"]
    assert 0 < len(floats) < len(weights) == 3
    assert {each["why_float"] for each in floats} == {because("noise-too-high")}
    noisiest = min(weights, key=lambda name: weights[name]["sqnr_db"])
    assert noisiest in [each["weight"] for each in floats]
    text = deploykit("quantize", uneven, *given, f"--min-sqnr={bar}", "--force").stdout
    assert text == Containing("float32", f"{noisiest} (")
    assert because("weights-int8", count=3 - len(floats), every=3) in text
