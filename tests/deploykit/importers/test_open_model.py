"""Whatever a model is, it opens: files, live models, graphs, and what says more of one of these."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

import deploykit
from deploykit import ModelSource
from deploykit.importers.open_model import open_models
from deploykit.transforms.common.errors import GraphError, RefusedError
from deploykit.transforms.ir.protos import SavedModel
from tests.deploykit.conftest import FASHION
from tests.support import build, ops, raises, random, run, says, tf

PHOTOS = random(6, 12, 12, 3)
FASHION_FILES = [FASHION / "fashion.keras", FASHION / "tf1" / "model.ckpt"]


def sequential(keras):
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((12, 12, 3), name="photo"),
            layers.Conv2D(4, 3, name="conv"),
            layers.BatchNormalization(moving_mean_initializer="ones"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(5, name="scores"),
        ]
    )


def called(keras):
    """A Sequential without an Input: what it was called on says its shapes."""
    model = keras.Sequential([keras.layers.Conv2D(4, 3), keras.layers.Flatten()])
    model(PHOTOS)
    return model


def functional(keras):
    photo, gain = keras.Input((12, 12, 3), name="photo"), keras.Input((1,), name="gain")
    pooled = keras.layers.GlobalAveragePooling2D()(photo)
    return keras.Model([photo, gain], {"scores": pooled * gain, "pooled": pooled}, name="two.ends")


def subclassed(keras):
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.conv, self.dense = keras.layers.Conv2D(4, 3), keras.layers.Dense(5)

        def call(self, photo, training=False):
            pooled = tf.reduce_mean(self.conv(photo), (1, 2))
            return {"scores": self.dense(pooled), "twice": 2 * pooled if training else pooled}

    model = Net()
    model(PHOTOS)
    return model


def answers(graph, *feeds):
    return run(graph, dict(zip(graph.inputs, feeds, strict=True)))


@pytest.mark.sampled
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
@pytest.mark.parametrize("make", [sequential, called, subclassed])
def test_a_live_model_of_keras(make, package):
    model = make(pytest.importorskip(package))
    expected = model(PHOTOS, training=False)
    graph = deploykit.freeze(model)
    found = dict(zip(graph.outputs, answers(graph, PHOTOS), strict=True))
    values = expected if isinstance(expected, dict) else dict.fromkeys(found, expected)
    assert found.keys() == values.keys()
    for name, value in values.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5)


def test_a_live_model_of_two_ends_keeps_their_names():
    import keras

    graph = deploykit.freeze(functional(keras))
    assert graph.inputs == ("photo", "gain")
    assert set(graph.outputs) == {"scores", "pooled"}
    found = dict(zip(graph.outputs, answers(graph, PHOTOS, np.full((6, 1), 3.0, "f")), strict=True))
    np.testing.assert_allclose(found["scores"], 3 * found["pooled"], rtol=1e-6)


@pytest.mark.sampled
@pytest.mark.parametrize("make", [sequential, subclassed], ids=lambda make: make.__name__)
def test_a_live_model_and_its_file_are_one(make, tmp_path):
    import keras

    model = make(keras)
    path = tmp_path / "folder"
    model.export(path, verbose=False)
    live, filed = deploykit.freeze(model), deploykit.freeze(path)
    np.testing.assert_array_equal(answers(live, PHOTOS)[0], answers(filed, PHOTOS)[0])


def function():
    weights = tf.Variable(random(3, 5))

    @tf.function(input_signature=[tf.TensorSpec([None, 12, 12, 3], tf.float32, name="photo")])
    def scores(photo):
        return {"scores": tf.reduce_mean(photo, (1, 2)) @ weights}

    return scores


def test_a_live_function():
    scores = function()
    expected = scores(PHOTOS)["scores"]
    for given in (scores, scores.get_concrete_function()):
        graph = deploykit.freeze(given)
        assert (graph.inputs, graph.outputs) == (("photo",), ("scores",))
        np.testing.assert_allclose(answers(graph, PHOTOS)[0], expected, rtol=1e-6)


def test_a_graph_def_of_tensorflow():
    with tf.Graph().as_default() as graph:
        tf.multiply(tf.compat.v1.placeholder(tf.float32, [None], name="x"), 2.0, name="out")
    found = deploykit.freeze(graph.as_graph_def())
    assert (found.inputs, found.outputs) == (("x",), ("out",))
    assert list(answers(found, np.arange(3, dtype="f"))[0]) == [0, 2, 4]


def test_what_cannot_open_says_how():
    import keras

    unseen = keras.Sequential([keras.layers.Dense(3)])
    with raises(GraphError, "keras-cannot-export"):
        deploykit.freeze(unseen)

    @tf.function
    def twice(x):
        return 2 * x

    with raises(GraphError, "inputs-open", source="tf.function 'twice'"):
        deploykit.freeze(twice)
    for thing in (3, None, [1], object()):
        with pytest.raises(TypeError, match=says("not-a-model", type=type(thing).__name__)):
            deploykit.open_model(thing)


@pytest.mark.sampled
@pytest.mark.parametrize("path", FASHION_FILES, ids=lambda path: path.name)
def test_a_model_that_is_open_is_not_read_again(path, monkeypatch):
    opened = deploykit.open_model(path)
    monkeypatch.setattr("deploykit.importers.open_model.open_files", None)
    for make in (deploykit.freeze, deploykit.optimize, deploykit.inspect):
        make(opened)
    assert deploykit.diff(opened, opened.graph).equal
    assert deploykit.open_model(opened) is opened
    assert opened.source == str(path)
    assert opened.bytes > 0


@pytest.mark.sampled
def test_its_sha256_is_that_of_the_file(tmp_path):
    path = tmp_path / "m.pb"
    graph = deploykit.freeze(FASHION_FILES[1], output=path)
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    assert deploykit.open_model(path).sha256 == content
    assert deploykit.open_model(graph).sha256 == content


def test_a_model_in_memory_has_nodes_and_no_size():
    graph = build(two_outputs, ["x"], ["double", "square"])
    model = deploykit.open_model(graph)
    assert (model.nodes, model.bytes) == (len(graph), None)


def test_a_source_says_which_part():
    graph = build(two_outputs, ["x"], ["double", "square"])
    assert deploykit.freeze(ModelSource(graph, outputs=["square"])).outputs == ("square",)
    assert deploykit.freeze(graph, outputs=["square"]).outputs == ("square",)
    opened = deploykit.open_model(graph)
    assert deploykit.open_model(opened, outputs=["square"]).graph.outputs == ("square",)
    assert opened.graph.outputs == ("double", "square")
    with pytest.raises(TypeError, match="'output_names'"):
        deploykit.freeze(graph, output_names=["square"])


def two_outputs():
    x = tf.compat.v1.placeholder(tf.float32, [None], name="x")
    tf.multiply(x, 2.0, name="double")
    tf.multiply(x, x, name="square")


def saved_model(folder):
    """Write a SavedModel of two signatures whose aliases are not the names of its tensors."""
    module = tf.Module()
    module.weights = tf.Variable(random(3, 5))
    spec = tf.TensorSpec([None, 3], tf.float32, name="features")
    module.first = tf.function(lambda features: {"logits": features @ module.weights}, [spec])
    module.second = tf.function(lambda features: {"doubled": 2 * features}, [spec])
    tf.saved_model.save(
        module, folder, signatures={"serving_default": module.first, "twice": module.second}
    )


def old_saved_model(folder, make, init=None):
    """Write a SavedModel of TensorFlow 1 from x to y, with an op that loading runs."""
    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 3], name="x")
        y = tf.identity(make(x), name="y")
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(
            session, folder, {"x": x}, {"y": y}, legacy_init_op=init() if init else None
        )
    return folder


def test_pins_part_a_saved_model_from_what_tensorflow_loads(tmp_path):
    """Where a value was pinned, the original computes something else."""

    def make(x):
        return x * tf.compat.v1.placeholder_with_default(2.0, [], name="scale")

    path = old_saved_model(str(tmp_path / "m"), make)
    assert deploykit.open_model(path).original is not None
    assert deploykit.open_model(path, pins={"scale": "3"}).original is None
    assert deploykit.open_model(deploykit.open_model(path).graph).original is None


@pytest.mark.parametrize(
    ("options", "unused"),
    [
        ({}, []), ({"signature": "serving_default"}, []), ({"signature": "other"}, ["other"]),
        ({"pins": {"x": "1"}}, []), ({"pins": {"x": "1", "absent": "1"}}, ["absent"]),
    ],
)  # fmt: skip
def test_options_without_an_effect_are_warned_of_and_no_others(options, unused, caplog):
    graph = deploykit.open_model(build(two_outputs, ["x"], ["double", "square"])).graph
    model = deploykit.open_model(graph, **options)
    warnings = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert list(model.signatures) == ["serving_default"]
    assert all(each in text for each, text in zip(unused, warnings, strict=True))


def test_a_signature_keeps_the_method_that_clients_ask_for(tmp_path):
    path = old_saved_model(str(tmp_path / "m"), lambda x: 2 * x)
    file = Path(path, "saved_model.pb")
    saved = SavedModel.FromString(file.read_bytes())
    for method in ("tensorflow/serving/predict", "tensorflow/serving/regress"):
        (definition,) = saved.meta_graphs[0].signature_def.values()
        definition.method_name = method
        file.write_bytes(saved.SerializeToString())
        (signature,) = deploykit.open_model(path).signatures.values()
        assert signature.method == method


def test_a_source_of_an_open_model_says_which_part():
    opened = deploykit.open_model(build(two_outputs, ["x"], ["double", "square"]))
    narrowed = deploykit.open_model(ModelSource(opened, outputs=["square"]))
    assert narrowed.graph.outputs == ("square",)
    pinned = deploykit.open_model(ModelSource(opened, pins={"x": "1"}))
    assert pinned.requested.pins == {"x": "1"}


def test_effects_of_loading_count_as_those_of_the_model(tmp_path):
    target = tmp_path / "written"
    path = old_saved_model(
        str(tmp_path / "m"), lambda x: 2 * x, lambda: tf.io.write_file(str(target), "x")
    )
    model = deploykit.open_model(path)
    assert "WriteFile" not in ops(model.graph)
    assert ["WriteFile" in str(effect) for effect in model.effects] == [True]
    with raises(RefusedError, "acts-beyond", op="WriteFile"):
        model.refuse_effects()
    assert deploykit.open_model(model.graph).effects == []
    assert not target.exists()


@pytest.mark.sampled
def test_only_the_graph_of_a_file_has_that_file(tmp_path):
    path = tmp_path / "m.pb"
    deploykit.freeze(build(two_outputs, ["x"], ["double", "square"]), output=path)
    model = deploykit.open_model(path)
    assert model.file_of(model.graph) == str(path)
    assert model.file_of(model.graph.copy()) is None
    assert model.file_of(deploykit.optimize(model)) is None
    in_memory = deploykit.open_model(model.graph)
    assert in_memory.file_of(in_memory.graph) is None
    other = deploykit.open_model(FASHION_FILES[1])
    assert other.file_of(other.graph) is None


def test_models_of_one_source_are_numbered_from_the_second_on():
    graph = build(two_outputs, ["x"], ["double", "square"])
    found = open_models([graph, graph, FASHION_FILES[1], graph])
    first = deploykit.open_model(graph).source
    assert list(found) == [first, f"{first} (2)", str(FASHION_FILES[1]), f"{first} (3)"]


def test_an_export_parses_a_saved_model_once(tmp_path, monkeypatch):
    from deploykit.importers import model_files

    saved_model(str(tmp_path / "m"))
    parsed = []
    parse = model_files.parse_saved_model
    monkeypatch.setattr(
        model_files, "parse_saved_model", lambda *given: parsed.append(given) or parse(*given)
    )
    for more in ({}, {"signature": "twice"}, {"outputs": ["logits"]}):
        parsed.clear()
        deploykit.export(tmp_path / "m", tmp_path / "models", **more)
        assert len(parsed) == 1


def test_the_signature_of_a_saved_model_lives_through_all_steps(tmp_path):
    saved_model(str(tmp_path / "m"))
    deploykit.freeze(tmp_path / "m", output=tmp_path / "frozen.pb")
    deploykit.optimize(tmp_path / "frozen.pb", output=tmp_path / "optimized.pb")
    found = deploykit.export(tmp_path / "optimized.pb", tmp_path / "models").document()
    (signature,) = found["signatures"].values()
    assert list(signature["inputs"]) == ["features"]
    assert list(signature["outputs"]) == ["logits"]
