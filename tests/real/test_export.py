"""Exported models of all kinds in TensorFlow 2.20, as the newest TensorFlow Serving has it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deploykit
from deploykit.quantization.calibration import calibrate
from deploykit.storage.arrays import load_data
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import normal
from tests.real import tensorflow_2_20
from tests.support import building, ops, random, run, tf

pytestmark = pytest.mark.sampled

FASHION = Path(__file__).parents[2] / "models" / "fashion"


@pytest.fixture(scope="module", autouse=True)
def environment() -> None:
    tensorflow_2_20.install()


def assert_alike(graph: Graph, folder: Path, feeds: dict[str, Any], scratch: Path) -> None:
    """Compare what 2.20 answers with what the graph answers here."""
    here = dict(zip(graph.outputs, run(graph, feeds), strict=True))
    found = tensorflow_2_20.answers(folder, {"serving_default": feeds}, scratch)
    for outputs in found["serving_default"]:
        assert set(outputs) == set(here)
        for alias, array in here.items():
            if array.dtype.kind == "O":
                np.testing.assert_array_equal(outputs[alias], array)
            else:
                bar = 1e-5 * np.abs(array).max()
                np.testing.assert_allclose(outputs[alias], array, rtol=0, atol=bar)


def images() -> np.ndarray:
    found: np.ndarray = load_data(FASHION / "test_1000.npz")["images"][:50]
    return found


@pytest.fixture(scope="module")
def fashion() -> Graph:
    return deploykit.freeze(FASHION / "tf1" / "model.ckpt")


def test_fashion(fashion, tmp_path):
    found = deploykit.export(fashion, tmp_path, name="fashion")
    assert_alike(fashion, found.folder, {"images": images()}, tmp_path)


def test_fashion_with_weights_in_8_bits(fashion, tmp_path):
    quantized = deploykit.quantize(fashion)
    found = deploykit.export(quantized, tmp_path, name="fashion")
    assert_alike(quantized, found.folder, {"images": images()}, tmp_path)


def test_fashion_in_8_bits(fashion, tmp_path):
    """Its layers run on private ops of TensorFlow, which may change without notice."""
    optimized = deploykit.optimize(fashion)
    feeds = [{"images": images()}]
    ranges = tmp_path / "ranges.json"
    ranges.write_text(calibrate(optimized, feeds).ranges.text())
    steps = f'quantize_static(ranges="{ranges}", isa=avx2)'
    quantized = deploykit.transform(optimized, steps)
    assert any(op.startswith("_") or "Quantized" in op for op in ops(quantized))
    found = deploykit.export(quantized, tmp_path, name="fashion")
    assert_alike(quantized, found.folder, {"images": images()}, tmp_path)


def test_a_loop(tmp_path):
    """An op of it has an attribute (Tshape) that 2.20 does not know yet."""

    with building(["x"], ["y"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 3], name="x")
        tf.identity(tf.map_fn(lambda row: row * 2.0, x), name="y")
    found = deploykit.export(graph, tmp_path, name="m")
    assert_alike(graph, found.folder, {"x": random(4, 3)}, tmp_path)
    broken = found.folder / "saved_model.pb"
    proto = broken.read_bytes()
    assert b"TensorListGetItem" in proto
    assert b"Tshape" in proto
    broken.write_bytes(proto.replace(b"TensorListGetItem", b"TensorListGotItem"))
    with pytest.raises(AssertionError, match="TensorListGotItem"):
        assert_alike(graph, found.folder, {"x": random(4, 3)}, tmp_path)


def test_tf_examples(fashion, tmp_path):
    from deploykit.serving.saved_model.proto import example

    found = deploykit.export(fashion, tmp_path, name="m", method="classify")
    samples = [example({"images": image}).SerializeToString() for image in images()]
    feeds = {"classify": {"inputs": np.array(samples, object)}}
    (wanted,) = run(fashion, {"images": images()})
    for outputs in tensorflow_2_20.answers(found.folder, feeds, tmp_path)["classify"]:
        np.testing.assert_allclose(outputs["scores"], wanted, rtol=0, atol=1e-5)


def test_guesslang(guesslang, tmp_path):
    """Strings, a loop and a lookup table; its aliases are not the names of its nodes."""
    found = deploykit.export(guesslang, tmp_path, name="guesslang", signature="predict")
    texts = np.array([b"import os\nprint(1)\n", b"#include <stdio.h>\nint main() {}"], object)
    graph = deploykit.freeze(guesslang, signature="predict")
    wanted = dict(zip(graph.outputs, run(graph, {graph.inputs[0]: texts}), strict=True))
    nodes = {a: normal(i.name) for a, i in found.signatures["predict"].outputs.items()}
    asked = {name: {"content": texts} for name in ("predict", "serving_default")}
    for both in tensorflow_2_20.answers(found.folder, asked, tmp_path).values():
        for outputs in both:
            assert set(outputs) == set(nodes)
            for alias in ("classes", "all_classes", "class_ids", "all_class_ids"):
                np.testing.assert_array_equal(outputs[alias], wanted[nodes[alias]])
            for alias in ("logits", "probabilities"):
                np.testing.assert_allclose(outputs[alias], wanted[nodes[alias]], atol=1e-5)


def test_guesslang_with_all_signatures(guesslang, tmp_path):
    """Predict and Classify take the same texts and give the same numbers."""
    found = deploykit.export(guesslang, tmp_path, name="guesslang")
    assert set(found.signatures) == {"predict", "classification", "serving_default"}
    texts = np.array([b"import os\nprint(1)\n", b"#include <stdio.h>\nint main() {}"], object)
    asked = {"predict": {"content": texts}, "classification": {"inputs": texts}}
    answered = tensorflow_2_20.answers(found.folder, asked, tmp_path)
    for predicted, classified in zip(*answered.values(), strict=True):
        np.testing.assert_array_equal(classified["classes"], predicted["all_classes"])
        np.testing.assert_array_equal(classified["scores"], predicted["probabilities"])


@pytest.mark.parametrize("source", ["frozen.pb", "saved_model"])
def test_efficientnet_lite0(efficientnet_lite0, photos, source, tmp_path):
    graph = deploykit.freeze(efficientnet_lite0 / source, outputs=["probabilities"])
    found = deploykit.export(
        efficientnet_lite0 / source, tmp_path, name="lite0", outputs=["probabilities"]
    )
    (alias,) = found.signatures["serving_default"].inputs
    assert graph.inputs == (alias,)
    assert_alike(graph, found.folder, {alias: photos["images"][:3]}, tmp_path)


def test_basic_pitch(basic_pitch, tmp_path):
    graph = deploykit.freeze(basic_pitch)
    found = deploykit.export(basic_pitch, tmp_path, name="basic_pitch")
    (alias,) = found.signatures["serving_default"].inputs
    assert graph.inputs == (alias,)
    assert_alike(graph, found.folder, {alias: random(2, 43844, 1)}, tmp_path)
