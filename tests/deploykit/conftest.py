"""A small frozen graph as a file, and the command line called in this process."""

import contextlib
import io
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from deploykit.cli import failures, main
from deploykit.client import label_image
from deploykit.exporting import photo_inputs
from deploykit.importers import initializers, resaving
from deploykit.importers.variable_updates import updated_variables
from deploykit.transforms.common.errors import CodedError
from deploykit.transforms.common.messages import log_to_stderr
from deploykit.transforms.runtime.child_process import ResourceLimits
from deploykit.verification import verify
from tests.documents import pinned
from tests.support import built, call_here, coded, random, tf

FASHION = Path(__file__).parents[2] / "models" / "fashion"


@dataclass
class Outcome:
    """What a command line ended with."""

    status: int
    stdout: str
    stderr: str
    error: CodedError | None = None

    @property
    def printed(self) -> str:
        """What is on standard output, but for the document of an error alone."""
        with contextlib.suppress(ValueError):
            if list(json.loads(self.stdout)) == ["error"]:
                return ""
        return self.stdout

    @property
    def document(self) -> dict[str, Any]:
        return pinned(json.loads(self.stdout))


def _run(*arguments: object) -> tuple[int, CodedError | None]:
    """Return the exit status, and the error that is shown."""
    shown: list[CodedError | None] = [None]
    coded = failures._coded

    def noted(error: Exception) -> CodedError:
        shown.append(coded(error))
        return shown[-1]

    log_to_stderr()
    environment = dict(os.environ)  # which `serve` sets for TensorFlow
    try:
        with (
            ResourceLimits(seconds=600, memory=None, show_log=False),  # put back what options set
            mock.patch("deploykit.serving.server.process.own_process"),  # this one is the tests'
            mock.patch.object(failures, "_coded", noted),
        ):
            status = main.run([str(argument) for argument in arguments])
            return status, shown[-1]
    finally:
        os.environ.clear()
        os.environ.update(environment)


@pytest.fixture
def deploykit(capfd):
    """Run a command line; nothing but one JSON document or a table may be on stdout."""

    def run(*arguments: object) -> Outcome:
        status, error = _run(*arguments)
        captured = capfd.readouterr()
        return Outcome(status, captured.out, captured.err, error)

    return run


def refusals(deploykit, command, lines, folder=None, feeds=False):
    """Yield each line of options with the status and the error that a command refuses it with.

    Nothing may be on standard output, and one sentence on stderr; if it `feeds`, lines on what is
    fed may precede it. Paths are shown without `folder`.
    """
    for options in lines:
        found = deploykit(*command, *options.split())
        *fed, said = found.stderr.splitlines()
        assert found.printed == "", options
        fed = [line for line in fed if not line.endswith(("no header", "x0, x1, x2, x3, x4, ..."))]
        assert all(feeds and line.endswith(", as they are") for line in fed), found.stderr
        assert said.startswith("deploykit: error: "), options
        yield f"{options}\n{found.status} {coded(found.error)}".replace(f"{folder}/", "")


def command_line(*arguments: object) -> Outcome:
    """Run a command line where `deploykit` cannot be had: in a fixture of a whole module."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        status, error = _run(*arguments)
    return Outcome(status, stdout.getvalue(), stderr.getvalue(), error)


@pytest.fixture
def in_process(monkeypatch):
    """Run TensorFlow in this process: one start for all, not one for each call of a child."""

    for module in (initializers, label_image, photo_inputs, updated_variables, resaving, verify):
        monkeypatch.setattr(module, "call", call_here)


@pytest.fixture
def address(official):
    return f"127.0.0.1:{official.listen()}"


@built(["x"], ["out"])
def small_graph():
    """Return a convolution, its batch norm as single ops, a dense layer and a softmax."""
    x = tf.compat.v1.placeholder(tf.float32, [None, 8, 8, 3], name="x")
    y = tf.raw_ops.Conv2D(
        input=x, filter=random(3, 3, 3, 64), strides=[1, 2, 2, 1], padding="SAME", name="conv"
    )
    y = tf.nn.relu(y * random(64, seed=1, low=0.5) + random(64, seed=2))
    y = tf.matmul(tf.reduce_mean(y, [1, 2]), random(64, 10, seed=3)) + random(10, seed=4)
    tf.nn.softmax(tf.identity(y, name="logits"), name="out")


@pytest.fixture(scope="session")
def small_bytes() -> bytes:
    return b"".join(small_graph().serialized())


@pytest.fixture
def small(tmp_path, small_bytes) -> Path:
    path = tmp_path / "small.pb"
    path.write_bytes(small_bytes)
    return path
