"""`benchmark --pipeline module:function`: the user's own tf.data function as a style of input."""

import re

import pytest

import deploykit
from deploykit.data.pipeline import InputPipelineOptions
from deploykit.data.user_pipeline import own_pipeline
from deploykit.transforms.common.documents import document
from deploykit.transforms.common.errors import FileError, GraphError
from tests.deploykit.benchmarking.nets import written
from tests.deploykit.data import made_up
from tests.support import build, raises, random, says, shows, tf

MODULE = """
import numpy as np
import tensorflow as tf

X = np.zeros([8, 6], np.float32)


def lines(folder, batch=4):
    files = tf.data.Dataset.list_files(folder + "/*.csv", shuffle=False)
    def parse(line):
        numbers = tf.reshape(tf.strings.to_number(tf.strings.split(line, ",")), [7])
        return numbers[:6], numbers[6]
    return files.interleave(tf.data.TextLineDataset).map(parse).batch(batch)


def without_data():
    return tf.data.Dataset.from_tensors({"x": X, "more": X})


def alone(path):
    return tf.data.Dataset.from_tensors(X)


def python(path):
    return tf.data.Dataset.from_generator(lambda: [X], output_signature=tf.TensorSpec([8, 6]))


def endless(path, epochs=1):
    assert epochs is None
    return tf.data.Dataset.from_tensors(X).repeat(epochs)


def other_name(path):
    return tf.data.Dataset.from_tensors({"y": X})


def other_shape(path):
    return tf.data.Dataset.from_tensors(X[:, :5])


def other_type(path):
    return tf.data.Dataset.from_tensors(X.astype(np.int32))


def ragged(path):
    return tf.data.Dataset.from_tensors(tf.ragged.constant([[1.0], [2.0, 3.0]]))


def several(path):
    return tf.data.Dataset.from_tensors((X, X, X, X))


def nothing(path):
    return tf.data.Dataset.from_tensors(X).take(0)


def number(path):
    return 3


def raises(path):
    raise ValueError("no such luck")


def fails_later(path):
    return tf.data.Dataset.from_tensors(X).map(lambda x: tf.debugging.check_numerics(x / 0, "bad"))


def takes_more(path, size):
    return None


def takes_batch(path, batch):
    return None
"""
WRONG = [
    ("other_name", says("pipeline-inputs-differ", got=["y"], expected=["x"])),
    (
        "other_shape",
        says("pipeline-input-differs", name="x", got="float32 [8, 5]", expected="float32 [?, 6]"),
    ),
    (
        "other_type",
        says("pipeline-input-differs", name="x", got="int32 [8, 6]", expected="float32 [?, 6]"),
    ),
    ("ragged", says("pipeline-gives-no-tensor", name="x", got="RaggedTensorSpec")),
    ("several", says("pipeline-inputs-differ", got="tuples of 4 values", expected=["x"])),
    ("nothing", says("pipeline-empty")),
    ("number", says("pipeline-returned", got="int")),
    ("raises", says("transform-raised")),
    ("fails_later", says("runtime-failed", runtime="TensorFlow", action="run this")),
    ("takes_more", says("pipeline-parameters", needed=["size"], given="--data")),
    ("takes_batch", says("pipeline-needs-batch", parameter="batch")),
    ("gone", says("module-function-missing", function="gone")),
]


def net():
    x = tf.compat.v1.placeholder(tf.float32, [None, made_up.WIDTH], name="x")
    tf.matmul(x, random(made_up.WIDTH, 2), name="out")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Return a folder with a model, lines, and a module of functions; it is the current one."""
    written(build(net, ["x"], ["out"]), tmp_path / "net.pb")
    made_up.write_csv(tmp_path / "csv")
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "data.bin").write_bytes(b"?")
    (tmp_path / "mine.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def measured(**options):
    return deploykit.benchmark("net.pb", seconds=0.3, rounds=1, **options)


@pytest.mark.slow
def test_it_is_measured_beside_tfdata(place):
    steps = {"format": 1, "columns": {"x": [0, 6], "id": 6}}
    found = measured(data="csv", pipeline="mine:lines", batch=8, preprocess=steps)
    assert [each.style for each in found.styles] == ["tfdata", "pipeline"]
    own = document(found.styles[1])
    assert own["items_per_second"] > 0
    turn = own["rounds"][0]["both"]
    assert turn["items"] < 8 * turn["steps"]  # an epoch of 23 ends with a smaller batch
    only = measured(data="csv", pipeline="mine:lines", input="pipeline", preprocess=steps)
    assert [each.style for each in only.styles] == ["pipeline"]


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["alone", "python", "endless"])
def test_data_that_only_it_can_read(place, name, caplog):
    caplog.set_level("INFO", "deploykit")
    found = measured(data="strange", pipeline=f"mine:{name}")
    assert [each.style for each in found.styles] == ["pipeline"]
    assert found.styles[0].rates.both > 0
    assert shows(caplog.text, "pipeline-alone")
    with pytest.raises(FileError):
        measured(data="strange", pipeline=f"mine:{name}", input="all")


def test_it_may_need_no_data(place):
    found = measured(pipeline="mine:without_data")
    assert [each.style for each in found.styles] == ["pipeline"]
    with raises(GraphError, "pipeline-parameters", needed=["folder"]):
        measured(pipeline="mine:lines")


@pytest.mark.parametrize(("name", "said"), WRONG)
def test_what_does_not_fit_is_said_in_a_sentence(place, name, said):
    with pytest.raises(GraphError) as caught:
        measured(data="strange", pipeline=f"mine:{name}")
    assert f"pipeline mine:{name}: " in str(caught.value)
    assert re.search(said, str(caught.value))
    assert "\n" not in str(caught.value)


def test_names_that_lead_nowhere(place):
    with pytest.raises(GraphError, match=says("module-missing", name="gone")):
        measured(data="strange", pipeline="gone:lines")
    with pytest.raises(GraphError, match=says("unexpected", expected="module:function")):
        measured(data="strange", pipeline="mine")
    with pytest.raises(GraphError, match=says("input-style-pipeline")):
        measured(data="csv", input="pipeline")
    with raises(GraphError, "only-for"):
        InputPipelineOptions(pipeline="mine:lines", service_address="a:1").styles("tfdata")


def test_a_function_is_found_by_its_name(place, monkeypatch):
    graph = build(net, ["x"], ["out"])
    found = own_pipeline(net, None, None, graph)
    assert found.name == f"{__name__}:net"
    assert found.folders
    with raises(GraphError, "pipeline-not-importable"):
        own_pipeline(lambda: None, None, None, graph)
