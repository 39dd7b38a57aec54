"""Notebooks that run in a real kernel: models of Keras in memory, progress and results in cells."""

import sys
from pathlib import Path

import nbformat
import pytest
from jupyter_client import KernelManager
from jupyter_client.kernelspec import KernelSpec
from nbclient import NotebookClient

from tests.support import showing, shows

DOCS = Path(__file__).parents[2] / "docs" / "notebooks"
MODEL = """\
import keras
import numpy as np
import deploykit

keras.utils.set_random_seed(0)
model = keras.Sequential(
    [keras.Input((6,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(3)]
)
"""
INTERRUPT = """\
import os, signal, threading

def interrupt(after):  # as Jupyter does: the kernel, and all that it started
    threading.Timer(after, lambda: os.killpg(os.getpgrp(), signal.SIGINT)).start()
"""
CHILDREN = """\
import psutil, time

time.sleep(1)
[each.name() for each in psutil.Process().children(recursive=True)]
"""


class Kernel(KernelManager):
    """A kernel of the Python that runs the tests."""

    kernel_spec = KernelSpec(
        argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        language="python",
    )


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return what runs cells, or a notebook, and returns the outputs of each."""
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))

    def run(*cells, seconds=120, fails=False):
        book = cells[0]
        if isinstance(book, str):
            code = [nbformat.v4.new_code_cell(each) for each in cells]
            book = nbformat.v4.new_notebook(cells=code)
        place = {"metadata": {"path": str(tmp_path)}}
        kernel = Kernel()
        how = {"timeout": seconds, "resources": place, "allow_errors": fails}
        try:
            NotebookClient(book, km=kernel, **how).execute()
        finally:
            kernel.shutdown_kernel(now=True)  # nbclient only ends kernels of its own
        return [each.outputs for each in book.cells if each.cell_type == "code"]

    return run


def shown(outputs, kind="text/html"):
    """Return the result of a cell."""
    (result,) = (each for each in outputs if each.output_type == "execute_result")
    return result.data[kind]


def progress(outputs):
    """Return the last line of the work of a cell."""
    (line,) = (each for each in outputs if each.output_type == "display_data")
    return line.data["text/plain"]


def errors(outputs):
    return [each.ename for each in outputs if each.output_type == "error"]


def streams(outputs):
    return "".join(each.text for each in outputs if each.output_type == "stream")


@pytest.mark.sampled
def test_a_model_in_memory_is_frozen_and_measured_and_shows_itself(run):
    cells = (MODEL, "graph = deploykit.freeze(model)\ngraph",
             "deploykit.benchmark(graph, seconds=0.1, rounds=1)")  # fmt: skip
    _, frozen, measured = run(*cells)
    assert "<table>" in shown(frozen)
    assert "keras.Model &#x27;sequential&#x27;" in shown(frozen)
    assert "Assets written" not in streams(frozen)
    assert "p50 ms" in shown(measured)
    assert "p50 ms" in shown(measured, "text/plain")
    assert progress(measured) == showing("done-in", work="benchmark")


KINDS = """\
class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(3)

    def call(self, values):
        return self.dense(values)

subclassed = Subclassed()
samples = np.random.default_rng(0).random((256, 6), np.float32)
subclassed(samples[:1])
taken = keras.Input((6,), name="values")
both = [keras.layers.Dense(3, name=each)(taken) for each in "ab"]
functional = keras.Model(taken, both)
function = tf.function(
    lambda values: tf.nn.relu(model(values)), input_signature=[tf.TensorSpec([None, 6], tf.float32)]
)
"""


# On a loaded machine int8 may seem to be slower.
QUICKLY = "budget=0.5, allow_float=True"


@pytest.mark.sampled
def test_models_of_every_kind_go_through_the_api_and_data_too(run):
    """All in one kernel, which has TensorFlow, models and data in memory."""
    labelled = "tf.data.Dataset.from_tensor_slices((samples, model(samples).numpy().argmax(1)))"
    cells = [
        MODEL + "import tensorflow as tf\nkeras.utils.set_random_seed(1)\n" + KINDS,
        f"dataset = {labelled}.batch(32)",
        *(f"deploykit.optimize({each})" for each in ("subclassed", "functional", "function")),
        "deploykit.benchmark(subclassed, seconds=0.1, rounds=1)",
        f"found = deploykit.quantize(model, calibration=dataset, {QUICKLY})\nfound",
        "deploykit.quantize(model, allow_float=True)",
        "deploykit.verify(model, found, data=samples, min_sqnr=10)",
        "deploykit.calibrate(functional, samples)",
    ]
    outputs = run(*cells, seconds=400)
    for each in outputs[2:]:
        assert "<div" in shown(each)
        assert "Assets written" not in streams(each)
        if any(output.output_type == "display_data" for output in each):  # not of quick work
            assert shows(progress(each), "done-in")
    assert shows(progress(outputs[6]), "done-in")
    assert "layers" in shown(outputs[6])
    assert "passed" in shown(outputs[8])


@pytest.mark.sampled
def test_an_interrupt_leaves_the_kernel_tidy(run):
    """Jupyter interrupts the kernel with all it started; the line says so, and work goes on."""
    cells = [
        MODEL + INTERRUPT + "\nsamples = np.random.default_rng(0).random((256, 6), np.float32)",
        "interrupt(5)\ndeploykit.quantize(model, calibration=samples)",
        CHILDREN,
        "interrupt(8)\ndeploykit.benchmark(model, seconds=60)",
        CHILDREN,
        "deploykit.verify(model, model)",
    ]
    _, stopped, left, measured, left_too, verified = run(*cells, seconds=300, fails=True)
    assert errors(stopped) == ["KeyboardInterrupt"]
    assert shows(progress(stopped), "stopped-after")
    assert shown(left, "text/plain") == shown(left_too, "text/plain") == "[]"
    assert errors(measured) in ([], ["KeyboardInterrupt"])
    assert shows(shown(verified), "verified-against")
    assert progress(verified) == showing("done-in", work="verify")


@pytest.mark.sampled
def test_the_notebook_in_the_documentation_ships_a_model(run):
    book = nbformat.read(DOCS / "ship.ipynb", nbformat.NO_CONVERT)
    assert all(not each.get("outputs") for each in book.cells)
    outputs = run(book, seconds=580)
    inspected, optimized, shipped, asked, answered = outputs[2:]
    for each in (inspected, optimized, shipped, answered):
        assert "<div" in shown(each)
    assert progress(shipped) == showing("done-in", work="ship")
    assert shown(asked, "text/plain") == "['cross', 'cross', 'disc']"
    assert "cross" in shown(answered)
