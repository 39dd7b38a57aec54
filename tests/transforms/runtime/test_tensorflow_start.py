"""TensorFlow's start for a server: without its whole Python API, which can still be had."""

import subprocess
import sys

import pytest

START = """
import shutil
import sys
import tempfile
from deploykit.transforms.runtime.tensorflow_start import expect_sessions, start_tensorflow
expect_sessions()
parts = start_tensorflow()
assert parts is start_tensorflow()
print("keras" in sys.modules, "tensorflow._api.v2" in sys.modules, "tensorflow" in sys.modules)
"""
LATER = """
graph = parts.ops.Graph()
parts.session.Session(graph=graph).close()
import tensorflow as tf
import keras
assert int(tf.add(1, 2)) == 3
assert parts.ops.Graph is tf.Graph
assert parts.session.Session is tf.compat.v1.Session
assert tf.executing_eagerly() and tf.Variable([1.0]).dtype == tf.float32
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(tf.ones([4, 2]), tf.ones([4, 1]), verbose=0)
module = tf.Module()
module.weight = tf.Variable(2.0)
module.f = tf.function(lambda x: x * module.weight, input_signature=[tf.TensorSpec([])])
folder = tempfile.mkdtemp()
tf.saved_model.save(module, folder)
loaded = tf.saved_model.load(folder)
assert float(loaded.f(3.0)) == 6.0
shutil.rmtree(folder)
print("works")
"""


def run(program):
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.sampled
def test_the_whole_of_tensorflow_works_afterwards():
    assert run(START + LATER) == ["False False False", "works"]


@pytest.mark.sampled
def test_a_process_that_may_do_more_imports_all_of_it():
    assert run(START.replace("expect_sessions()\n", "") + LATER) == ["True True True", "works"]


def test_other_threads_find_the_package_meanwhile():
    program = """
import importlib.util, sys, threading
from deploykit.transforms.ir.protos import without_tensorflow_start
with without_tensorflow_start():
    found = []
    def look():
        found.append(importlib.util.find_spec("tensorflow"))
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found[0].origin.endswith("__init__.py")
    with without_tensorflow_start():
        pass
    assert "tensorflow" in sys.modules
assert "tensorflow" not in sys.modules
print("works")
"""
    assert run(program) == ["works"]


@pytest.mark.sampled
def test_what_was_imported_before_is_used():
    assert run("import tensorflow\n" + START + LATER)[-1] == "works"


@pytest.mark.sampled
def test_plugins_are_loaded_by_tensorflow_itself(tmp_path):
    (tmp_path / "tensorflow-plugins").mkdir()
    found = run(f"import sys\nsys.path.append({str(tmp_path)!r})\n{START}")
    assert found[-1].endswith("True")


@pytest.mark.sampled
def test_modules_that_a_release_moved_are_found_after_a_full_import():
    program = START.replace(
        "parts = start",
        "from deploykit.transforms.runtime import tensorflow_start as starting\n"
        "modules, calls = starting._modules, []\n"
        "def once():\n"
        "    calls.append(1)\n"
        "    if len(calls) == 1:\n"
        "        raise ImportError('it lies elsewhere')\n"
        "    return modules()\n"
        "starting._modules = once\n"
        "parts = start",
        1,
    )
    assert run(program + LATER)[-1] == "works"
