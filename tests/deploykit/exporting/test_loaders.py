"""Exported loops and branches load with both loaders of TensorFlow, and answer as before."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deploykit as public
from deploykit.exporting.deployment import refusals
from deploykit.importers import variables
from deploykit.transforms.common.errors import VerificationError
from tests.deploykit.exporting.loop_models import keras_models, tf1_models, tf2_models
from tests.loading import answers
from tests.support import Containing, raises

QUICK = ("keras_lstm", "tf2_calls_of_two_shapes", "tf1_while_loop_switches_resource")
NAMES = (
    *(f"keras_{n}" for n in ("lstm", "gru", "gru_before", "simple_rnn", "bidirectional",
                             "stacked_cells", "masked", "conv_lstm")),
    *(f"tf2_{n}" for n in ("map_fn", "scan", "foldl_of_rows", "while_loop", "cond", "switch_case",
                           "gather_in_loop", "cond_in_loop", "loop_in_loop",
                           "calls_of_two_shapes", "reads_of_shape")),
    *(f"tf1_{n}" for n in ("while_loop_switches_reference", "while_loop_switches_resource",
                           "while_loop_functions_resource", "cond_switches_reference",
                           "cond_switches_resource", "cond_functions_resource")),
)  # fmt: skip


def written(name: str, folder: Path) -> Any:
    return (keras_models() | tf2_models() | tf1_models())[name](folder)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in NAMES]
)
def test_both_loaders_give_the_outputs_of_the_model(tmp_path, name):
    model, values, wanted = written(name, tmp_path / "model")
    found = public.export(model, tmp_path, name="m")
    signature = found.signatures["serving_default"]
    (given,), (output,) = signature.inputs, signature.outputs
    for each in answers(found.folder, "serving_default", {given: values}):
        np.testing.assert_allclose(each[output], wanted, rtol=1e-5, atol=1e-6)
    assert np.ptp(wanted) > 1e-3


def test_the_matrix_is_whole():
    assert set(NAMES) == {*keras_models(), *tf2_models(), *tf1_models()}


def test_nothing_is_written_that_a_loader_refuses(tmp_path, monkeypatch):
    model, _, _ = written("tf2_while_loop", tmp_path / "model")
    monkeypatch.setattr(variables, "state_shape", lambda *_: None)  # as it was before
    with raises(VerificationError, "export-not-loadable", reason=Containing("rank")) as caught:
        public.export(model, tmp_path / "served", name="m")
    assert caught.value.exit_status == 5
    assert not (tmp_path / "served").exists()


def test_each_loader_is_asked(tmp_path):
    assert [each.split()[0] for each in refusals(str(tmp_path))] == [
        "tf.compat.v1.saved_model.load", "tf.saved_model.load"
    ]  # fmt: skip


@pytest.mark.slow
def test_an_exported_lstm_in_keras_and_tflite(tmp_path):
    import keras
    import tensorflow as tf

    model, values, wanted = written("keras_lstm", tmp_path / "model")
    folder = str(public.export(model, tmp_path, name="m").folder)
    layer = keras.layers.TFSMLayer(folder, call_endpoint="serving_default")
    (found,) = layer(values).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    converter = tf.lite.TFLiteConverter.from_saved_model(folder)
    converter.target_spec.supported_ops = [
        tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS
    ]  # fmt: skip
    assert converter.convert()  # the loop's lists need TensorFlow's ops in an interpreter
