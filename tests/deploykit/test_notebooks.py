"""Notebooks that run in a real kernel: models of Keras in memory, progress and results in cells."""

import sys
from pathlib import Path

import nbformat
import pytest
from jupyter_client import KernelManager
from jupyter_client.kernelspec import KernelSpec
from nbclient import NotebookClient

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
        NotebookClient(
            book, timeout=seconds, km=Kernel(), resources=place, allow_errors=fails
        ).execute()
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


def test_a_model_in_memory_is_frozen_and_measured_and_shows_itself(run):
    cells = (MODEL, "graph = deploykit.freeze(model)\ngraph",
             "deploykit.benchmark(graph, seconds=0.1, rounds=1)")  # fmt: skip
    _, frozen, measured = run(*cells)
    assert "<table>" in shown(frozen)
    assert "keras.Model &#x27;sequential&#x27;" in shown(frozen)
    assert [each for each in frozen if each.output_type == "stream"] == []
    assert "p50 ms" in shown(measured)
    assert "p50 ms" in shown(measured, "text/plain")
    assert progress(measured).startswith("benchmark  done in 0:")
