"""OpenVINO takes and gives what TensorFlow does, by name and type, or refuses it in a sentence."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from deploykit.transforms.common.errors import GraphError, LoadError
from deploykit.transforms.engines.engines import check_engine, lacking
from deploykit.transforms.engines.openvino_model import Compiling, OpenVinoModel
from deploykit.transforms.ir.tensors import numpy_type
from tests import pairwise
from tests.support import build, raises, random, run, says, tf

TYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
         "float16", "bfloat16", "float32")  # fmt: skip


def placeholder(dtype="float32", shape=(None, 3), name="x"):
    return tf.compat.v1.placeholder(dtype, shape, name=name)


def compiled(make, inputs=("x",), outputs=("out",), **compiling):
    """Return a graph, and what OpenVINO made of it."""
    graph = build(make, inputs, outputs)
    content = b"".join(graph.serialized())
    names = {name: name for name in inputs}
    return graph, OpenVinoModel(content, names, outputs, Compiling(**compiling))


def equal(make, feeds, inputs=("x",), outputs=("out",)) -> None:
    """Compare values, types and shapes with TensorFlow's."""
    graph, model = compiled(make, inputs, outputs)
    for expected, found in zip(run(graph, feeds), model.run(feeds), strict=True):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert np.allclose(found.astype(np.float64), expected.astype(np.float64), rtol=1e-5)


def dense():
    tf.matmul(placeholder(), tf.constant(random(3, 2)), name="out")


@pytest.mark.parametrize("dtype", TYPES)
def test_types_are_kept(dtype):
    values = np.array([[1, 0, 1], [0, 0, 1]]).astype(numpy_type(dtype))
    equal(lambda: tf.identity(placeholder(dtype), name="out"), {"x": values})


def test_types_of_results_are_kept():
    def make():
        x = placeholder()
        tf.argmax(x, 1, name="place")
        tf.shape(x, name="shape")
        tf.greater(x, 0.0, name="above")

    equal(make, {"x": random(4, 3)}, outputs=("place", "shape", "above"))


@pytest.mark.sampled
@pytest.mark.parametrize("batch", [0, 1, 3, 1000])
def test_batches(batch):
    equal(dense, {"x": random(batch, 3)})


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["a/b", "a.b", "a-b_1", "8080", "h.8000/y"])
def test_odd_names(name):
    result = "out." + name.replace("/", "_")
    equal(
        lambda: tf.nn.relu(placeholder(name=name), name=result), {name: random(2, 3)}, [name],
        [result],
    )  # fmt: skip


def test_ports_and_outputs_named_twice():
    def make():
        tf.raw_ops.Split(axis=1, value=placeholder(shape=(None, 4)), num_split=2, name="s")

    equal(make, {"x": random(2, 4)}, outputs=("s:1", "s", "s:1", "x"))


def test_an_input_that_nothing_depends_on():
    def make():
        placeholder(name="idle")
        tf.nn.relu(placeholder(), name="out")

    equal(make, {"idle": random(2, 3), "x": random(2, 3)}, ("idle", "x"))
    _, model = compiled(make, ("idle", "x"))
    assert model.run({"x": random(2, 3)})[0].shape == (2, 3)


def test_a_scalar():
    equal(lambda: tf.add(placeholder(shape=()), 1.0, name="out"), {"x": np.array(3, np.float32)})


def read_only() -> np.ndarray:
    values = random(2, 3)
    values.flags.writeable = False
    return values


@pytest.mark.sampled
@pytest.mark.parametrize(
    "values",
    [read_only(), random(6, 6)[::2, ::2], random(3, 4).T, random(2, 3).astype(">f4")],
    ids=["read only", "with gaps", "transposed", "other bytes first"],
)
def test_arrays_in_any_memory(values):
    before = values.copy()
    equal(dense, {"x": values})
    assert np.array_equal(values, before)


def test_results_are_their_own():
    """The next call does not write over what the last one gave."""
    _, model = compiled(dense)
    first = model.run({"x": random(2, 3)})[0]
    copy = first.copy()
    model.run({"x": random(2, 3, seed=1)})
    assert np.array_equal(first, copy)


WRONG = {
    "int32": (
        {"x": np.ones((2, 3), np.int32)},
        says("does-not-fit", what="input 'x'", got="int32", expected="float32"),
    ),
    "float64": (
        {"x": np.ones((2, 3))},
        says("does-not-fit", what="input 'x'", got="float64", expected="float32"),
    ),
    "no array": (
        {"x": [[1.0, 2.0, 3.0]]},
        says("does-not-fit", what="input 'x'", got="list", expected="float32"),
    ),
    "not fed": ({}, says("openvino-input-not-fed", name="x")),
    "another one": (
        {"x": random(2, 3), "y": 1},
        says("unknown-name", kind="input", name="y", known="x"),
    ),
    "wide": ({"x": random(2, 4)}, r"shape=\[\?,3\]"),
    "flat": ({"x": random(3)}, r"shape=\[\?,3\]"),
}


@pytest.mark.parametrize(("feeds", "message"), WRONG.values(), ids=WRONG)
def test_wrong_arrays_are_refused(feeds, message):
    _, model = compiled(dense)
    model.run({"x": random(2, 3)})  # nothing of an earlier call is used again
    with pytest.raises(GraphError, match=message) as found:
        model.run(feeds)
    assert "\n" not in str(found.value)
    assert model.run({"x": random(2, 3)})[0].shape == (2, 2)


def test_whole_numbers_beyond_32_bits_are_refused():
    _, model = compiled(lambda: tf.identity(placeholder("int64"), name="out"))
    with raises(GraphError, "openvino-whole-numbers", name="x", value=1099511627776):
        model.run({"x": np.array([[1, 2, 1 << 40]])})


def add(dtype):
    return lambda: tf.raw_ops.AddV2(x=placeholder(dtype), y=tf.ones([3], dtype), name="out")


def text():
    tf.identity(placeholder("string"), name="out")


def unknown():
    tf.raw_ops.ReverseSequence(
        input=placeholder(), seq_lengths=tf.constant([1, 2], tf.int64), seq_dim=1, name="first"
    )
    tf.strings.to_hash_bucket_fast(tf.strings.as_string(placeholder(name="y")), 9, name="out")


REFUSED = {
    "float64": (
        add("float64"),
        says("openvino-type", node="x", op="Placeholder", type="float64", how="in float32"),
    ),
    "complex64": (add("complex64"), says("openvino-type", type="complex64")),
    "uint8": (add("uint8"), says("openvino-sum-saturates", node="out", op="AddV2", type="uint8")),
    "text": (text, says("openvino-strings", name="x")),
}


@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED)
def test_other_types_are_refused_by_the_name_of_the_node(make, message):
    with pytest.raises(LoadError, match=message):
        compiled(make)


def test_what_it_has_no_op_for_is_named():
    with raises(LoadError, "openvino-unknown-op", op="AsString, StringToHashBucketFast"):
        compiled(unknown, ("y",))


def called():
    @tf.function
    def twice(x):
        return tf.nn.relu(x) * 2

    tf.identity(twice(placeholder()), name="out")


def branched():
    x = placeholder()
    tf.identity(tf.cond(tf.reduce_sum(x) > 0, lambda: x + 1, lambda: x * 2), name="out")


def looped():
    (_, y) = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (0, placeholder()))
    tf.identity(y, name="out")


@pytest.mark.sampled
@pytest.mark.parametrize("make", [called, branched, looped])
@pytest.mark.parametrize("low", [0.0, -1.0])
def test_functions(make, low):
    equal(make, {"x": random(2, 3, low=low, high=low + 0.9)})


@pytest.mark.sampled
@pytest.mark.parametrize("streams", [1, 2])
def test_many_threads_get_their_own_answers(streams):
    _, model = compiled(dense, streams=streams, threads=2)
    weights, wrong = random(3, 2), []

    def call(number):
        for turn in range(30):
            x = random(3 * number + 1 + turn % 2, 3, seed=100 * number + turn)
            (found,) = model.run({"x": x})
            if not np.allclose(found, x @ weights, atol=1e-5):
                wrong.append((number, turn))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def in_process(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, in which no test imported anything."""
    kept = {name: value for name, value in os.environ.items() if name != "CI"}
    return subprocess.run(
        [sys.executable, "-c", code], env=kept | environment, capture_output=True, text=True,
        check=False, timeout=120,
    )  # fmt: skip


GUARD = """
import sys, threading
def forbid(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto", "socket.bind"):
        sys.stderr.write(f"REACHED OUT: {event} {arguments}\\n")
    if event in ("subprocess.Popen", "os.fork", "os.exec", "os.posix_spawn"):
        sys.stderr.write(f"STARTED: {event} {arguments}\\n")
sys.addaudithook(forbid)
"""
USE = """
import numpy as np
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from deploykit.transforms.engines.openvino_model import OpenVinoModel
x = Node("x", "Placeholder").with_attrs(dtype=DType("float32"), shape=(-1, 3))
out = Node("out", "Relu", ("x",)).with_attrs(T=DType("float32"))
model = OpenVinoModel(b"".join(Graph([x, out]).serialized()), {"x": "x"}, ["out"])
print(model.run({"x": np.ones((2, 3), np.float32)})[0].sum(), len(model.executed()) > 0)
"""


def test_nothing_is_sent_and_nothing_is_there_that_sends(tmp_path):
    code = (
        GUARD
        + USE
        + """
print([name for name in sys.modules if "telemetry" in name or name.startswith("openvino.tools")])
print([thread.name for thread in threading.enumerate()])
"""
    )
    found = in_process(code, HOME=str(tmp_path))
    assert found.stdout.splitlines() == ["6.0 True", "[]", "['MainThread']"]
    assert "REACHED OUT" not in found.stderr
    assert "STARTED" not in found.stderr
    assert list(tmp_path.iterdir()) == []  # no consent is asked for, nor written down


def test_the_guard_sees_what_reaches_out():
    found = in_process(GUARD + "import socket; socket.getaddrinfo('localhost', 80)")
    assert "REACHED OUT: socket.getaddrinfo" in found.stderr


@pytest.mark.sampled
@pytest.mark.parametrize(
    "first", pairwise.drawn(__name__, ["import tensorflow as tf", "import openvino"], 1)
)
def test_both_engines_in_one_process(first):
    code = first + USE + "import tensorflow as tf; print(float(tf.reduce_sum(tf.ones([3]))))"
    assert in_process(code).stdout.splitlines()[-2:] == ["6.0 True", "3.0"]


TCMALLOC = Path("/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4")


@pytest.mark.skipif(not TCMALLOC.exists(), reason="tcmalloc is not installed")
def test_it_is_refused_where_tcmalloc_gives_the_memory():
    code = "from deploykit.transforms.engines.engines import lacking; print(lacking('openvino'))"
    assert "tcmalloc" in in_process(code, LD_PRELOAD=str(TCMALLOC)).stdout
    assert lacking("openvino") == ""
    check_engine("openvino")
