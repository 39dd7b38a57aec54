"""Layers that the author keeps in training mode, as `m(x)` and `m.export` do."""

import importlib
import logging

import numpy as np
import pytest

import deploykit
from deploykit.transforms.common.errors import UnverifiedError, VerificationError
from tests import pairwise
from tests.pairwise import once_each
from tests.support import because, random, run, tf

pytestmark = pytest.mark.usefixtures("in_process")

SHAPE = (6, 6, 3)


def batch_norm(keras, x):
    return keras.layers.BatchNormalization(name="kept")(x, training=True)


def nested(keras, x):
    inner = keras.Sequential([keras.layers.BatchNormalization()], name="kept")
    return inner(x, training=True)


def dropout(keras, x):
    return keras.layers.Dropout(0.5, name="kept")(x, training=True)


def noise(keras, x):
    return keras.layers.GaussianNoise(0.5, name="kept")(x, training=True)


def default(keras, x):
    return keras.layers.Dropout(0.5, name="kept")(keras.layers.BatchNormalization()(x))


def model(package, kept):
    keras = importlib.import_module(package)
    keras.utils.set_random_seed(3)
    x = keras.Input(SHAPE, name="x")
    y = kept(keras, keras.layers.Conv2D(4, 3)(x))
    y = keras.layers.Dense(2, name="y")(keras.layers.Flatten()(y))
    return keras.Model(x, y)


@pytest.mark.sampled
@once_each(
    ["package", "kept", "form"],
    ["keras", "tf_keras"],
    [batch_norm, nested, default],
    ["live", "keras", "saved_model"],
)
def test_a_frozen_graph_gives_what_the_call_gives(package, kept, form, tmp_path, caplog):
    caplog.set_level(logging.INFO, "deploykit")
    live = source = model(package, kept)
    if form == "keras":
        live.save(source := tmp_path / "m.keras")
    elif form == "saved_model":
        live.export(source := tmp_path / "m")
    graph = deploykit.freeze(source, output=tmp_path / "m.pb")
    x = random(5, *SHAPE)
    np.testing.assert_allclose(run(graph, {graph.inputs[0]: x})[0], live(x), atol=2e-6)
    notes = [r.getMessage() for r in caplog.records if "training=True" in r.getMessage()]
    is_told = form != "saved_model" and kept is not default
    assert [n.split(":")[0] for n in notes] == (["layer 'kept'"] if is_told else [])
    assert all(("predict()" in note) == (package == "keras") for note in notes)


@once_each(
    ["package", "is_nested", "form"], ["keras", "tf_keras"], [False, True], ["keras", "live"]
)
def test_augmentation_is_off(package, is_nested, form, tmp_path, caplog):
    """These layers have training=True as their default, which no author wrote."""
    caplog.set_level(logging.INFO, "deploykit")

    def augmented(keras, x):
        layers = [keras.layers.RandomFlip(name="flip"), keras.layers.RandomTranslation(0.2, 0.2)]
        if is_nested:
            return keras.Sequential(layers)(x)
        return layers[1](layers[0](x))

    live = source = model(package, augmented)
    if form == "keras":
        live.save(source := tmp_path / "m.keras")
    graph = deploykit.freeze(source, output=tmp_path / "m.pb")
    x = random(5, *SHAPE)
    expected = live.predict(x, verbose=0)
    np.testing.assert_allclose(run(graph, {graph.inputs[0]: x})[0], expected, atol=2e-6)
    assert because("augmentation-off", layer="flip") in caplog.text


@pytest.mark.slow
def test_an_exported_model_that_augments_is_refused_with_advice_that_works(tmp_path):
    def augmented(keras, x):
        return keras.layers.RandomTranslation(0.2, 0.2)(keras.layers.RandomFlip()(x))

    live = model("keras", augmented)
    live.export(tmp_path / "m")
    live.save(tmp_path / "m.keras")
    with pytest.raises(UnverifiedError) as found:
        deploykit.freeze(tmp_path / "m", output=tmp_path / "m.pb")
    assert because("augmentation-exported") in str(found.value)
    assert not (tmp_path / "m.pb").exists()
    assert deploykit.freeze(tmp_path / "m.keras", output=tmp_path / "m.pb")


@pytest.mark.sampled
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_freezing_a_live_model_leaves_it_as_it_was(package, tmp_path):
    live = model(package, batch_norm)
    before = [np.array(value) for value in live.get_weights()]
    deploykit.freeze(live, output=tmp_path / "m.pb")
    for value, old in zip(live.get_weights(), before, strict=True):
        np.testing.assert_array_equal(value, old)


@pytest.mark.parametrize("package", ["keras", "tf_keras"])
@pytest.mark.parametrize("kept", [dropout, noise])
@pytest.mark.parametrize(
    "form",
    pairwise.drawn(
        "random_layers_draw_in_every_call", ["live", "keras", "saved_model"], 1, quick=1
    ),
)
def test_random_layers_draw_in_every_call(package, kept, form, tmp_path):
    live = source = model(package, kept)
    if form == "keras":
        live.save(source := tmp_path / "m.keras")
    elif form == "saved_model":
        live.export(source := tmp_path / "m")
    graph = deploykit.freeze(source)
    x = np.repeat(random(1, *SHAPE), 400, 0)
    values, expected = run(graph, {graph.inputs[0]: x})[0], np.asarray(live(x))
    assert (values.std(0) > 0.01).all()
    error = np.sqrt((values.var(0) + expected.var(0)) / len(x))
    assert (np.abs(values.mean(0) - expected.mean(0)) < 6 * error).all()
    np.testing.assert_allclose(values.std(0), expected.std(0), rtol=0.3)


def test_a_trace_that_differs_is_reported_with_its_layer(tmp_path, monkeypatch):
    import keras

    def call(_, x):
        flat = tf.reshape(x, [tf.shape(x)[0], 64])
        return flat if tf.executing_eagerly() else 1.5 * flat

    live = model("keras", default)
    monkeypatch.setattr(keras.layers.Flatten, "call", call)
    deploykit.freeze(live)  # nothing is written, so nothing is compared
    with pytest.raises(VerificationError, match=r"'flatten\w*'") as caught:
        deploykit.freeze(live, output=tmp_path / "m.pb")
    assert not isinstance(caught.value, UnverifiedError)
    assert not (tmp_path / "m.pb").exists()


@pytest.mark.slow
def test_a_sequence_that_keras_cuts_is_found(tmp_path):
    import keras

    x = keras.Input((None, 5))
    y = keras.layers.TimeDistributed(keras.layers.Dense(4), name="steps")(keras.layers.Masking()(x))
    keras.Model(x, keras.layers.LSTM(3)(y)).save(tmp_path / "m.keras")
    with pytest.raises(VerificationError, match="'steps'"):
        deploykit.freeze(tmp_path / "m.keras", output=tmp_path / "m.pb")
    assert [path.name for path in tmp_path.iterdir()] == ["m.keras"]
    graph = deploykit.freeze(tmp_path / "m.keras", output=tmp_path / "m.pb", allow_unverified=True)
    assert not graph.report.verification.passed
