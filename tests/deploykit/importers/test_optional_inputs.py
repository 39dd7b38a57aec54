"""SavedModels without a signature whose function is traced with and without optional inputs."""

import numpy as np
import pytest

import deploykit
from deploykit.transforms.common.errors import GraphError
from tests.support import Containing, raises, random, run, shows, tf

pytestmark = pytest.mark.usefixtures("in_process")

X = random(2, 3)
FORMS = {
    "shift": [("x",), ("x", "shift"), ("x", "shift", "scale")],
    "last first": [("x", "shift", "scale"), ("x", "scale"), ("x",)],
    "none without": [("x", "shift"), ("x", "shift", "scale")],
}


def saved(folder, forms) -> str:
    class Module(tf.Module):
        @tf.function
        def __call__(self, x, shift=None, scale=None, training=False):
            x = x * 2.0
            x = x if shift is None else x + shift
            return x if scale is None else x * scale

    module = Module()
    for names in forms:
        specs = {name: tf.TensorSpec([None, 3], tf.float32, name) for name in names}
        module.__call__.get_concrete_function(**specs)
    tf.saved_model.save(module, str(folder / "model"))
    return str(folder / "model")


@pytest.mark.parametrize("name", FORMS)
def test_the_form_with_the_fewest_inputs_is_used(name, tmp_path, caplog):
    caplog.set_level("INFO", "deploykit")
    graph = deploykit.freeze(saved(tmp_path, FORMS[name]))
    inputs = min(FORMS[name], key=len)
    assert graph.inputs == inputs
    expected = X * 2 + (X if "shift" in inputs else 0)
    np.testing.assert_allclose(run(graph, dict.fromkeys(inputs, X))[0], expected)
    (note,) = [each for each in caplog.messages if shows(each, "form-with-fewest")]
    assert note == Containing("float32 (None", f"3){', ' * (len(inputs) > 1)}")
    assert note.partition("other forms")[2].count("(x: float32") == len(FORMS[name]) - 1


def test_forms_with_different_inputs_of_one_number_are_refused(tmp_path):
    path = saved(tmp_path, [("x", "shift"), ("x", "scale")])
    with raises(GraphError, "function-traced-often", name="__call__", count=2):
        deploykit.freeze(path)
