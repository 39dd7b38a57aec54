"""Preprocessing is declared once, in words that are checked before anything runs."""

import json
from dataclasses import replace

import numpy as np
import pytest

from deploykit.data.apply_preprocessing import in_python
from deploykit.data.data import Data
from deploykit.data.pipeline import InputPipelineOptions, pipeline_for
from deploykit.data.preprocessing import (
    Preprocessing,
    Steps,
    declared_for,
    load_preprocessing,
    preprocessing_from,
    with_header,
)
from deploykit.data.preprocessing_plan import result_of
from deploykit.importers.metadata_file import About
from deploykit.records.examples import Feature
from deploykit.transforms.common.documents import document
from deploykit.transforms.common.errors import FileError, GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from tests.deploykit.benchmarking.nets import placeholder
from tests.deploykit.data.made_up import steps_for
from tests.support import assert_golden, raises, refusal

DATA = Data(
    "shards",
    "records",
    ("a",),
    {
        "x": Feature("float32", (8,)),
        "image": Feature("string", (), "image"),
        "pixels": Feature("uint8", (28, 28, 1), "raw"),
        "text": Feature("string"),
        "tokens": Feature("string", (None,)),
        "label": Feature("int64"),
    },
)
EVERY = Preprocessing(
    {
        "a": Steps(feature="image", channels=1, resize=(8, 9), crop=(4, 5), scale=0.5, mean=(1,),
                   std=(2,), dtype="float32"),
        "b": Steps(feature="text", split=" ", length=4),
    },
    {"x": (0, 8), "label": 8},
)  # fmt: skip


def net(*shape, dtype="float32", name="x"):
    node = Node(name, "Placeholder").with_attrs(dtype=DType(dtype), shape=shape)
    out = Node("out", "Identity", (name,)).with_attrs(T=DType(dtype))
    return Graph([node, out], (name,), ("out",))


def test_there_and_back(tmp_path):
    path = tmp_path / "steps.json"
    path.write_text(json.dumps(document(EVERY)))
    assert load_preprocessing(str(path)) == EVERY
    assert preprocessing_from({"format": 1}) == Preprocessing()


def of_x(**steps):
    return {"format": 1, "inputs": {"x": steps}}


WRONG = [
    [], {"format": 2}, {"format": 1, "input": {}}, {"format": 1, "inputs": []},
    {"format": 1, "inputs": {"x": []}}, of_x(size=1), of_x(resise=[1, 1]), of_x(resize=[1]),
    of_x(resize=[0, 4]), of_x(std=[0]), of_x(mean=[]), of_x(scale="1"), of_x(scale=float("nan")),
    of_x(length=0), of_x(channels=True), {"format": 1, "columns": {"x": "1"}},
    {"format": 1, "columns": {"x": -1}},
]  # fmt: skip


@pytest.mark.golden("refusals/preprocessing")
def test_what_cannot_be_is_named():
    assert_golden(*(f"{each}\n{refusal(preprocessing_from, each)}" for each in WRONG))


def test_files_that_are_none(tmp_path):
    with pytest.raises(FileError):
        load_preprocessing(str(tmp_path / "none.json"))
    path = tmp_path / "steps.json"
    for content in ("{", '{"format": 3}'):
        path.write_text(content)
        with pytest.raises(GraphError) as found:
            load_preprocessing(str(path))
        assert str(found.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("graph", "steps", "expected"),
    [
        (net(-1, 8), Steps(), Steps("x", dtype="float32")),
        (net(-1, 8, dtype="float64"), Steps(), Steps("x", dtype="float64")),
        (net(-1, 16, 12, 3), Steps("image", scale=1 / 255),
         Steps("image", 3, (16, 12), scale=1 / 255, dtype="float32")),
        (net(-1, 16, 12, 1, dtype="uint8"), Steps("image"),
         Steps("image", 1, (16, 12), dtype="uint8")),
        (net(-1, 16, 12, 3), Steps("image", mean=(127.5,), std=(127.5,)),
         Steps("image", 3, (16, 12), mean=(127.5,), std=(127.5,), dtype="float32")),
        (net(-1, 16, 12, 3), Steps("image", crop=(16, 12), resize=(20, 20), scale=1.0),
         Steps("image", 3, (20, 20), crop=(16, 12), scale=1.0, dtype="float32")),
        (net(-1, 28, 28, 1), Steps("pixels"), Steps("pixels", dtype="float32")),
        (net(-1, -1, dtype="string"), Steps("text", split=""),
         Steps("text", split="", dtype="string")),
        (net(-1, dtype="string", name="text"), Steps(), Steps("text", dtype="string")),
    ],
)  # fmt: skip
def test_defaults_are_what_the_input_takes(graph, steps, expected):
    (name,) = graph.inputs
    assert steps_for(DATA, graph, Preprocessing({name: steps})) == {name: expected}


UNFIT = [
    (net(-1, 9), Steps()), (net(-1), Steps()), (net(-1, 8, dtype="int32"), Steps()),
    (net(-1, 8, dtype="string"), Steps()), (net(-1, 8), Steps(dtype="float64")),
    (net(-1, 8), Steps("y")), (net(-1, 8, name="y"), Steps()), (net(-1, 8), Steps(resize=(2, 2))),
    (net(-1, 8), Steps(split=" ")), (net(-1, 8), Steps(length=3)), (net(-1, 8), Steps(channels=3)),
    (net(-1, 8), Steps(corners=True)),
    (net(-1, -1, -1, 3), Steps("image", corners=True, crop=(4, 4))),
    (net(-1, dtype="string", name="text"), Steps(scale=2.0)), (net(-1, 8), Steps(mean=(1, 2))),
    (net(-1, -1, -1, 3), Steps("image")), (net(-1, 8), Steps("image")),
    (net(-1, 4, 4, 3), Steps("image", resize=(5, 5))),
    (net(-1, 4, 4, 3), Steps("image", resize=(3, 3), crop=(4, 4))),
    (net(-1, dtype="int64"), Steps("tokens")),
]  # fmt: skip


@pytest.mark.golden("refusals/preprocessing_of_model")
def test_what_does_not_fit_the_model_is_said():
    said = []
    for graph, steps in UNFIT:
        (name,) = graph.inputs
        found = refusal(steps_for, DATA, graph, Preprocessing({name: steps}))
        assert '"shards' in found
        said.append(f"{graph[name]} {steps}\n{found}")
    assert_golden(*said)


def test_an_input_that_is_none():
    with raises(GraphError, "unknown-name", name="z", known=["x"]):
        steps_for(DATA, net(-1, 8), Preprocessing({"z": Steps()}))


def test_the_only_feature_is_meant_whatever_it_is_called():
    data = Data("d", "csv", ("a",), {"values": Feature("float32", (8,)), "label": Feature("int64")})
    assert steps_for(data, net(-1, 8, name="input"), Preprocessing())["input"].feature == "values"
    two = Graph([placeholder(-1, 8), net(-1, name="y", dtype="int64")["y"]], ("x", "y"))
    with raises(GraphError, "feature-missing", name="x"):
        steps_for(data, two, Preprocessing())


def test_results():
    image = Steps(channels=3, resize=(9, 9), crop=(4, 5), dtype="float32")
    assert result_of(image, DATA.features["image"]) == Feature("float32", (4, 5, 3))
    text = Steps(split="", dtype="string")
    assert result_of(text, DATA.features["text"]) == Feature("string", (None,))


def test_a_pipeline_for_a_graph():
    graph = net(16, 8)
    found = pipeline_for(
        DATA, graph, threads=3, piping=InputPipelineOptions(cache="memory", private_threads=2)
    )
    assert (found.batch, found.whole, found.epochs) == (16, True, None)
    assert (found.threads, found.cache, found.private_threads) == (3, "memory", 2)
    assert (pipeline_for(DATA, net(-1, 8)).batch, pipeline_for(DATA, net(-1, 8)).whole) == (
        32,
        False,
    )
    with raises(GraphError, "batch-fixed", fixed=16, batch=8):
        pipeline_for(DATA, graph, batch=8)
    texts = Preprocessing({"text": Steps(split="")})
    assert pipeline_for(
        DATA, preprocessing=texts, piping=InputPipelineOptions(buckets=(8, 4))
    ).buckets == (4, 8)
    with raises(GraphError, "no-texts-to-bucket"):
        pipeline_for(DATA, graph, piping=InputPipelineOptions(buckets=(4, 8)))


def test_resizing_by_corners_is_that_of_label_image():
    """Halving takes every second pixel; by the middles, it takes the mean of four."""
    pixels = np.arange(48, dtype=np.float32).reshape(4, 4, 3)
    feature = Feature("float32", (4, 4, 3))
    steps = Steps(resize=(2, 2), corners=True, dtype="float32")
    np.testing.assert_array_equal(in_python(steps, feature, pixels), pixels[::2, ::2])
    middles = in_python(replace(steps, corners=False), feature, pixels)
    np.testing.assert_allclose(middles, pixels.reshape(2, 2, 2, 2, 3).mean((1, 3)))


def test_what_a_model_was_written_with_is_the_default():
    graph = net(-1, 8)
    graph.about = About(preprocessing={"format": 1, "inputs": {"x": {"scale": 0.5}}})
    assert InputPipelineOptions().declared(graph).inputs["x"].scale == 0.5
    assert pipeline_for(DATA, graph).steps["x"].scale == 0.5
    said = InputPipelineOptions(preprocess={"format": 1, "inputs": {"x": {"scale": 0.25}}})
    assert pipeline_for(DATA, graph, piping=said).steps["x"].scale == 0.25
    assert InputPipelineOptions().declared(None) == Preprocessing()


def test_a_rule_for_headers_leaves_the_known_steps(tmp_path):
    known = {"format": 1, "inputs": {"x": {"resize": [8, 6], "scale": 1.0}}}
    model = net(None, 8, 6, 3)
    model.about = About(preprocessing=known)
    for given in ("0..1", "x=0..1"):
        plain = declared_for(model, given)
        assert plain.inputs["x"].resize == (8, 6)
        assert declared_for(model, with_header(given, "yes")) == replace(plain, header="yes")
    expected = replace(declared_for(model), header="no")
    path = tmp_path / "header.json"
    path.write_text('{"format": 1, "header": "no"}')
    for given in (with_header(None, "no"), str(path), path, path.read_text()):
        assert declared_for(model, given) == expected
    assert declared_for(model, {"format": 1}) == Preprocessing()
