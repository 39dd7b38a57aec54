"""`deploykit.predict` from a notebook."""

import re
from pathlib import Path

import numpy as np
import pytest

import deploykit as api
from deploykit.client.call_options import PredictOptions
from deploykit.transforms.common.errors import FileError, GraphError
from tests.support import Containing, says

STRING = 7  # tensorflow.DT_STRING


def test_arrays_lists_and_paths(address, tmp_path):
    array = np.float32([[1, 2], [3, 4]])
    np.save(tmp_path / "x.npy", array)
    for value in (array, array.tolist(), array.astype(np.float64), tmp_path / "x.npy",
                  str(tmp_path / "x.npy")):  # fmt: skip
        found = api.predict(address, "echo", {"x": value})
        assert found.inputs["x"].dtype == np.float32
        assert np.array_equal(found.outputs["x"], array)
    assert np.array_equal(api.predict(address, "echo", {"x": array[0]}).outputs["x"], array[:1])
    assert np.array_equal(api.predict(address, "echo", "[1, 2]").outputs["x"], array[:1])


def test_a_text_is_itself_and_a_path_is_the_bytes_of_a_file(official, address, tmp_path):
    official.shapes = {"x": (STRING, [-1])}
    file = tmp_path / "text"
    file.write_bytes(b"in the file\0")
    for value, sent in ((str(file), str(file).encode()), (file, b"in the file\0"),
                        (b"bytes\0", b"bytes\0"), (["a", "b"], [b"a", b"b"])):  # fmt: skip
        found = api.predict(address, "echo", {"x": value}).outputs["x"]
        assert found.tolist() == (sent if isinstance(sent, list) else [sent])


@pytest.mark.parametrize(
    ("inputs", "kind", "words"),
    [
        ({"y": 1}, GraphError, says("unknown-name", kind="input", name="y")),
        ({"x": [1, 2, 3]}, GraphError, says("value-shape", shape=[1, 3], name="x")),
        ({"x": [[1], [2, 3]]}, GraphError, says("not-a", source="input 'x'")),
        ({"x": "nowhere.npy"}, FileError, re.escape("nowhere.npy: No such file")),
        ({"x": Path("nowhere.png")}, FileError, re.escape("nowhere.png: No such file")),
        ({}, GraphError, says("input-missing", name="x")),
    ],
)
def test_what_does_not_fit_is_named(official, address, inputs, kind, words):
    with pytest.raises(kind) as error:
        api.predict(address, "echo", inputs)
    assert re.search(words, str(error.value))
    assert "Predict" not in official.calls


def test_options_are_fields(official, address):
    api.predict(address, "echo", {"x": [1, 2]}, PredictOptions(version=3), timeout=7)
    assert official.requests[-1].model_spec.version.value == 3
    api.predict(address, "echo", {"x": [1, 2]}, version_label="stable", outputs=["x"])
    assert official.requests[-1].model_spec.version_label == "stable"
    with pytest.raises(TypeError, match=Containing("'tymeout'", "timeout").pattern):
        api.predict(address, "echo", {"x": [1, 2]}, tymeout=3)
