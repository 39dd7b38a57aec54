"""Keras files: Keras 3 and 2, whole or weights alone, with code in them, damaged."""

import importlib
import json
import os
import shutil
import subprocess
import sys
import types
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest

import deploykit
from deploykit.importers.keras import keras_files
from deploykit.transforms.common.errors import FileError, GraphError, RefusedError
from tests.pairwise import marks, once_each
from tests.support import Containing, ops, raises, random, run, says, showing

pytestmark = pytest.mark.usefixtures("in_process")

KERAS_2 = Path(__file__).parents[3] / "data" / "keras_2"


@pytest.fixture(scope="module")
def model():
    """Return a model of two inputs and two outputs, with a half-precision layer."""
    import keras

    keras.utils.set_random_seed(1)
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b", dtype="int32")
    half = keras.layers.Dense(4, dtype="mixed_float16", bias_initializer="ones")(a)
    total = keras.layers.Add()([half, keras.layers.Dense(4)(b)])
    outputs = [keras.layers.Dense(3, name="y")(total), keras.layers.Dense(2, name="z")(total)]
    return keras.Model({"a": a, "b": b}, outputs)


@pytest.fixture(scope="module")
def feeds() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {"a": random.normal(size=(2, 4)).astype(np.float32), "b": np.ones((2, 4), np.int32)}


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
def test_keras_3(model, feeds, name, tmp_path):
    model.save(tmp_path / name)
    graph = deploykit.freeze(tmp_path / name)
    assert graph.inputs == ("a", "b")
    assert graph.outputs == ("y", "z")
    for found, expected in zip(run(graph, feeds), model(feeds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert deploykit.freeze(tmp_path / name, outputs=["z"]).outputs == ("z",)


def test_keras_3_weights_alone(model, feeds, tmp_path):
    model.save_weights(tmp_path / "model.weights.h5")
    (tmp_path / "model.json").write_text(model.to_json())
    graph = deploykit.freeze(tmp_path / "model.weights.h5", graph=tmp_path / "model.json")
    np.testing.assert_allclose(run(graph, feeds)[0], model(feeds)[0], rtol=1e-6)


def keras_2_weights(folder: Path) -> Path:
    """Write the weights alone, as `save_weights` of Keras 2 does."""
    path = folder / "weights.h5"
    with h5py.File(KERAS_2 / "model.h5") as source, h5py.File(path, "w") as weights:
        for name in source["model_weights"]:
            source.copy(f"model_weights/{name}", weights)
        weights.attrs.update(source["model_weights"].attrs)
    return path


@pytest.mark.sampled
@once_each(["alone"], [False, True], quick=1)
def test_keras_2(alone, tmp_path):
    if alone:
        graph = deploykit.freeze(keras_2_weights(tmp_path), graph=KERAS_2 / "model.json")
    else:
        graph = deploykit.freeze(KERAS_2 / "model.h5")
    assert graph.inputs == ("image",)
    assert graph.outputs == ("probabilities",)
    with np.load(KERAS_2 / "expected.npz") as expected:
        found = run(graph, {"image": expected["image"]})[0]
        np.testing.assert_allclose(found, expected["probabilities"], rtol=1e-5)
    assert "FusedBatchNormV3" not in ops(deploykit.optimize(graph))


@pytest.mark.slow
def test_an_archive_of_keras_2_13():
    """It has a layout of its own, a learned table, and ops that Keras 3 has no layer for."""
    graph = deploykit.freeze(KERAS_2 / "model_2_13.keras")
    assert graph.inputs == ("series", "text")
    assert graph.outputs == ("first", "second")
    with np.load(KERAS_2 / "expected_2_13.npz") as expected:
        feeds = {
            "series": expected["series"],
            "text": np.array([["b a c"], ["d"], ["a a b"]], object),
        }
        for each in (graph, deploykit.optimize(graph)):
            for found, name in zip(run(each, feeds), each.outputs, strict=True):
                np.testing.assert_allclose(found, expected[name], rtol=1e-5, atol=1e-6)


@pytest.mark.sampled
def test_names_and_their_order_are_the_models_own(tmp_path):
    import keras

    late, early = keras.Input((3,), name="z in"), keras.Input((3,), name="a")
    state = keras.layers.LSTM(2, return_state=True, name="lstm")
    outputs = state(keras.layers.Reshape((1, 3))(keras.layers.Subtract()([late, early])))
    model = keras.Model([late, early], [*outputs, early])
    model.save(tmp_path / "model.keras")
    graph = deploykit.freeze(tmp_path / "model.keras")
    assert graph.inputs == ("z_in", "a")  # a blank is in no name of a node
    assert graph.outputs == ("lstm", "lstm_1", "lstm_2", "a_1")
    values = [random(2, 3, seed=1), random(2, 3, seed=2)]
    found = run(graph, dict(zip(graph.inputs, values, strict=True)))
    for each, expected in zip(found, model(values), strict=True):
        np.testing.assert_allclose(each, expected, rtol=1e-5)


@once_each(
    ["library", "ends", "rank"], [("keras", "keras"), ("tf_keras", "keras h5")], [1, 2], quick=1
)
def test_a_ragged_input_stays_ragged(library, ends, rank, tmp_path, caplog):
    """Dense rows of one length would change the means, as padding counts."""
    import tensorflow as tf

    keras = importlib.import_module(library)
    words = keras.Input((None,) * rank, dtype="int32", ragged=True, name="words")
    size = keras.Input((3,), name="size")
    vectors = keras.layers.Embedding(20, 4)(words)
    if library == "keras":
        means = vectors
        for _ in range(rank):
            means = keras.ops.mean(means, axis=1)
    else:
        means = tf.reduce_mean(vectors, axis=range(1, rank + 1))
    model = keras.Model([size, words], [keras.layers.Dense(2)(means), size])
    rows = [[3, 1], [2], [4, 5, 6, 7]] if rank == 1 else [[[3, 1], [2]], [[4]], [[5, 6, 7], [8, 9]]]
    ragged = tf.ragged.constant(rows, tf.int32)
    expected = model([tf.constant(random(3, 3)), ragged])[0]
    splits = ["row_splits"] if rank == 1 else ["row_splits_0", "row_splits_1"]
    names = [f"words/{name}" for name in ("values", *splits)]
    arrays = [item.numpy() for item in (ragged.flat_values, *ragged.nested_row_splits)]
    feeds = {"size": random(3, 3), **dict(zip(names, arrays, strict=True))}
    caplog.set_level("INFO", "deploykit")
    sources = [model]
    for end in ends.split():
        sources.append(tmp_path / f"model.{end}")
        model.save(sources[-1])
    for source in sources:
        graph = deploykit.freeze(source, allow_unverified=rank > 1)
        assert graph.inputs == ("size", *names)
        np.testing.assert_allclose(run(graph, feeds)[0], expected, rtol=1e-5, atol=1e-6)
        assert all(name in caplog.text for name in names)
        caplog.clear()


@pytest.mark.sampled
@pytest.mark.parametrize("library", ["keras", "tf_keras"])
def test_a_sparse_input_is_fed_dense(library, tmp_path, caplog):
    keras = importlib.import_module(library)
    x = keras.Input((6,), sparse=True, name="x")
    model = keras.Model(x, keras.layers.Dense(2)(x))
    model.save(tmp_path / "model.keras")
    caplog.set_level("INFO", "deploykit")
    graph = deploykit.freeze(tmp_path / "model.keras")
    assert "input 'x'" in caplog.text
    np.testing.assert_allclose(run(graph, {"x": random(3, 6)})[0], model(random(3, 6)), rtol=1e-5)


@pytest.mark.sampled
def test_outputs_of_a_dictionary_bear_its_keys(tmp_path):
    import keras

    x = keras.Input((3,), name="x")
    outputs = {"score": keras.layers.Dense(1)(x), "class": keras.layers.Dense(2)(x)}
    keras.Model({"x": x}, outputs).save(tmp_path / "model.keras")
    graph = deploykit.freeze(tmp_path / "model.keras")
    assert graph.outputs == ("class", "score")
    assert [value.shape for value in run(graph, {"x": random(2, 3)})] == [(2, 2), (2, 1)]


@pytest.mark.sampled
def test_inner_nodes_have_the_names_that_keras_gives_them(model, tmp_path):
    model.save(tmp_path / "model.keras")
    graph = deploykit.freeze(tmp_path / "model.keras")
    assert {n.op for n in graph if "StatefulPartitionedCall" in n.name} <= {"Identity"}
    (inner,) = [node.name for node in graph if node.name.endswith("/y_1/BiasAdd")]
    assert deploykit.freeze(tmp_path / "model.keras", outputs=[inner]).outputs == (inner,)


def test_a_folder_and_files_with_other_names(model, feeds, tmp_path):
    import keras

    model.save(tmp_path / "model.keras")
    keras.saving.save_model(model, tmp_path / "unpacked", zipped=False)
    model.save(tmp_path / "model.h5")
    (tmp_path / "model.keras").rename(tmp_path / "best model")
    (tmp_path / "model.h5").rename(tmp_path / "weights.best.hdf")
    for name in ("best model", "weights.best.hdf", "unpacked"):
        graph = deploykit.freeze(tmp_path / name)
        np.testing.assert_allclose(run(graph, feeds)[0], model(feeds)[0], rtol=1e-6)


@pytest.mark.sampled
def test_the_backend_that_the_user_has_set_for_training_does_not_count(model, tmp_path):
    model.save(tmp_path / "model.keras")
    environment = {**os.environ, "KERAS_BACKEND": "torch"}
    command = [sys.executable, "-m", "deploykit", "freeze", "model.keras"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.sampled
@pytest.mark.parametrize("library", ["keras", "tf_keras"])
@pytest.mark.parametrize("end", ["keras", "h5"])
@pytest.mark.parametrize("registered", [False, True])
def test_custom_code_is_named_with_the_way_out(library, end, registered, tmp_path):
    keras = importlib.import_module(library)

    class Doubled(keras.layers.Layer):
        def call(self, x):
            return x * 2

    if registered:
        Doubled = keras.saving.register_keras_serializable("mine")(Doubled)
    model = keras.Sequential([keras.Input((3,)), Doubled()])
    model.save(tmp_path / f"model.{end}")
    registry = keras.saving.get_custom_objects()
    kept = dict(registry)
    registry.clear()  # as in a process that has not imported it
    try:
        with raises(GraphError, "keras-custom-layer", what=Containing("Doubled")):
            deploykit.freeze(tmp_path / f"model.{end}")
    finally:
        registry.update(kept)
    if registered:  # one way out
        x = random(2, 3)
        graph = deploykit.freeze(keras.models.load_model(tmp_path / f"model.{end}"))
        np.testing.assert_allclose(run(graph, {graph.inputs[0]: x})[0], x * 2, atol=1e-6)
    model.export(str(tmp_path / "exported"))  # the other one
    graph = deploykit.freeze(tmp_path / "exported")
    x = random(2, 3)
    np.testing.assert_allclose(run(graph, {graph.inputs[0]: x})[0], x * 2)


@pytest.mark.parametrize("module", ["keras_hub.src.layers", "keras_evilmod", "kerasx", "tf_kerasx"])
def test_a_layer_of_a_package_named_like_keras_is_a_custom_one(module, tmp_path, monkeypatch):
    import keras

    here = types.ModuleType(module)

    class Thing(keras.layers.Layer):
        def call(self, x):
            return x + 1

    @keras.saving.register_keras_serializable("mine")
    class Squared(keras.layers.Layer):
        def call(self, x):
            return x * x

    Thing.__module__, here.Thing = module, Thing
    monkeypatch.setitem(sys.modules, module, here)
    path = str(tmp_path / "model.keras")
    keras.Sequential([keras.Input((3,)), Squared(), Thing()]).save(path)
    monkeypatch.delitem(sys.modules, module)
    try:
        with raises(GraphError, "keras-custom-layer", what="layer 'Thing'"):
            keras_files.load_model(path, None, is_child=False)
    finally:
        keras.saving.get_custom_objects().pop("mine>Squared")


def test_an_error_of_a_registered_layer_is_that_of_keras(tmp_path):
    import keras

    @keras.saving.register_keras_serializable("mine")
    class Failing(keras.layers.Layer):
        def call(self, x):
            return x * x

    path = str(tmp_path / "model.keras")
    keras.Sequential([keras.Input((3,)), Failing()]).save(path)

    def fail(*_):
        raise ValueError("Unknown layer: 'mine>Failing'")

    Failing.from_config = classmethod(fail)
    try:
        with raises(GraphError, "runtime-failed", runtime="Keras"):
            keras_files.load_model(path, None, is_child=False)
    finally:
        keras.saving.get_custom_objects().pop("mine>Failing")


PROGRAM = """
import importlib, sys
import deploykit

if __name__ == "__main__":  # child processes have no custom object
    keras = importlib.import_module(sys.argv[1])

    class Doubled(keras.layers.Layer):
        def call(self, x):
            return x * 2

    @keras.saving.register_keras_serializable(sys.argv[3])
    class Squared(keras.layers.Layer):
        def call(self, x):
            return x * x

    if sys.argv[2] == "all":
        Doubled = keras.saving.register_keras_serializable(sys.argv[3])(Doubled)
    dense = keras.layers.Dense(4)
    model = keras.Sequential([keras.Input((3,)), Squared(), dense, Doubled()])
    for end in ("keras", "h5"):
        model.save(f"model.{end}")
        try:  # the file is also compared with the model, called eagerly
            graph = deploykit.freeze(f"model.{end}", output=f"{end}.pb")
            print(end, deploykit.optimize(f"model.{end}", verify=True).report.verification.passed)
        except deploykit.GraphError as error:
            print(end, error.code, error.fields["what"])
"""


SOME = {("keras", "all"), ("tf_keras", "one")}
REGISTERED = {
    ("all", "my-pkg 2.0/é"): "keras True|h5 True",
    ("one", "mine"): (
        "keras keras-custom-layer layer 'Doubled'|h5 keras-custom-layer layer 'Doubled'"
    ),
}


@pytest.mark.parametrize(
    ("library", "registered", "package", "expected"),
    [
        pytest.param(library, *given, expected, marks=marks((library, given[0]), SOME))
        for library in ("keras", "tf_keras")
        for given, expected in REGISTERED.items()
    ],
)
def test_objects_that_the_program_has_registered_are_used(
    library, registered, package, expected, tmp_path
):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "program.py", library, registered, package]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == expected.split("|")


@pytest.mark.sampled
@pytest.mark.parametrize("library", ["keras", "tf_keras"])
@pytest.mark.parametrize("package", ["mine", "my-pkg", "my.pkg", "a>b", "ü/x 2.0"])
def test_an_unknown_layer_is_named_whatever_its_package_is(library, package, tmp_path):
    keras = importlib.import_module(library)
    kept = dict(registry := keras.saving.get_custom_objects())

    @keras.saving.register_keras_serializable(package)
    class Squared(keras.layers.Layer):
        def call(self, x):
            return x * x

    keras.Sequential([keras.Input((3,)), Squared()]).save(tmp_path / "model.h5")
    registry.clear()
    registry.update(kept)
    with raises(GraphError, "keras-custom-layer", what=f"layer '{package}>Squared'"):
        deploykit.freeze(tmp_path / "model.h5")


def test_a_custom_function_is_named(tmp_path):
    import keras

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, activation=_squared)])
    model.save(tmp_path / "model.keras")
    with raises(GraphError, "keras-custom-layer", what="function '_squared'"):
        deploykit.freeze(tmp_path / "model.keras")


def _squared(x):
    return x * x


def test_a_model_without_shapes_is_refused(tmp_path):
    import keras

    keras.Sequential([keras.layers.Dense(2)]).save(tmp_path / "model.keras")
    with raises(GraphError, "keras-shapes-open"):
        deploykit.freeze(tmp_path / "model.keras")


@pytest.mark.sampled
def test_a_stateful_model_is_refused_and_keeps_its_batch(tmp_path):
    import keras

    inputs = keras.Input((4, 3), batch_size=2)
    keras.Sequential([inputs, keras.layers.GRU(2, stateful=True)]).save(tmp_path / "model.keras")
    with raises(
        GraphError,
        "variable-not-frozen",
        node=Containing("/AssignVariableOp"),
        op="AssignVariableOp",
        reason=showing("update-read"),
    ):
        deploykit.freeze(tmp_path / "model.keras")


def test_code_is_refused(tmp_path):
    import keras

    x = keras.Input((4,), name="x")
    model = keras.Model(x, keras.layers.Lambda(lambda t: t * 2)(x))
    paths = [KERAS_2 / "lambda.h5", tmp_path / "lambda.keras", tmp_path / "lambda.h5"]
    for path in paths[1:]:
        model.save(path)
    for path in paths:
        with raises(RefusedError, "keras-lambda-layer", source=path):
            deploykit.freeze(path)


@pytest.mark.parametrize("name", ["io.write_file", "py_function", "compat.v1.read_file", "data.x"])
def test_a_function_that_acts_is_refused_before_keras_calls_it(name, tmp_path):
    with zipfile.ZipFile(KERAS_2 / "model_2_13.keras") as source:
        parts = {each: source.read(each) for each in source.namelist()}
    assert b'"function": "math.multiply"' in parts["config.json"]
    named = f'"function": "{name}"'.encode()
    parts["config.json"] = parts["config.json"].replace(b'"function": "math.multiply"', named)
    with zipfile.ZipFile(tmp_path / "model.keras", "w") as target:
        for each, content in parts.items():
            target.writestr(each, content)
    with raises(RefusedError, "keras-runs-code", name=name):
        deploykit.freeze(tmp_path / "model.keras")


def empty_archive(folder: Path) -> bytes:
    with zipfile.ZipFile(folder / "archive", "w") as archive:
        archive.writestr("readme.txt", "nothing of Keras")
    return (folder / "archive").read_bytes()


def test_damaged_files(tmp_path):
    failed = says("runtime-failed", runtime="Keras", action="load the model")
    whole = (KERAS_2 / "model.h5").read_bytes()
    damages = {
        "cut.h5": (whole[: len(whole) // 2], failed),
        "no.h5": (b"not HDF5 at all", failed),
        "no.keras": (b"not a zip archive", failed),
        "other.zip": (
            empty_archive(tmp_path),
            says("keras-archive-incomplete", name="config.json"),
        ),
    }
    for name, (content, message) in damages.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(GraphError, match=f"{name}: {message}"):
            deploykit.freeze(tmp_path / name)
    with raises(GraphError, "keras-weights-only"):
        deploykit.freeze(keras_2_weights(tmp_path))
    with pytest.raises(FileError, match="No such file"):
        deploykit.freeze(tmp_path / "missing.h5")


@pytest.mark.sampled
def test_weights_of_another_model(tmp_path):
    shutil.copy(KERAS_2 / "model.json", tmp_path)
    text = (tmp_path / "model.json").read_text().replace('"filters": 6', '"filters": 7')
    (tmp_path / "model.json").write_text(text)
    with raises(GraphError, "runtime-failed", runtime="Keras", action="load the model"):
        deploykit.freeze(keras_2_weights(tmp_path), graph=tmp_path / "model.json")


@pytest.mark.parametrize("layer", ["QuantizeLayer", "QuantizeWrapperV2"])
def test_layers_of_tf_mot_are_exported_by_two_lines(tmp_path, layer):
    """As TF-MOT writes them: Keras does not know the class."""
    config = {"module": "keras.layers", "class_name": "Sequential", "config": {"layers": [
        {"module": "tensorflow_model_optimization.python.core", "class_name": layer,
         "config": {"name": "q"}, "registered_name": layer}]}}  # fmt: skip
    path = tmp_path / "m.keras"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", json.dumps(config))
        archive.writestr("metadata.json", json.dumps({"keras_version": "3.0.0"}))
    with raises(GraphError, "keras-quantization-aware"):
        deploykit.freeze(str(path))
