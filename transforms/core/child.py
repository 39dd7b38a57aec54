"""Run a function in a child process with an environment, a deadline and a memory cap.

TensorFlow can abort or kill the process that runs a bad graph, and reads several settings from the
environment when it starts. So whatever runs a model is a module-level function of plain data, and
is run here. This limits accidents; it is no sandbox.
"""

import contextlib
import importlib
import os
import pickle
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transforms.core.errors import Error, GraphError, LimitError


@dataclass
class Limits:
    """What every child is given: seconds, bytes, and whether its log lines are shown."""

    seconds: float = 600.0
    memory: int | None = None
    show_log: bool = False


limits = Limits()

_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}


def call(function: str, *arguments: Any, env: Mapping[str, str] | None = None) -> Any:
    """Return what `function` ("package.module:name") returns in a child process.

    `env` sets variables for the child; what the user has set wins. An Error raised there is raised
    here. LimitError: the deadline or the memory cap was reached. GraphError: the child died.
    """
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    environment = {**_QUIET, **(env or {}), **os.environ, "PYTHONPATH": path}
    with tempfile.TemporaryDirectory(prefix="deploykit-") as folder:
        question, answer = Path(folder, "question"), Path(folder, "answer")
        with question.open("wb") as file:
            pickle.dump((function, arguments, limits), file, protocol=5)
        log = None if limits.show_log else subprocess.PIPE
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-m", "transforms.core.child", str(question), str(answer)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr if limits.show_log else subprocess.DEVNULL,
                stderr=log,
                timeout=limits.seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise LimitError(
                f"TensorFlow did not finish within {limits.seconds:g} seconds (--timeout)"
            ) from None
        if not answer.exists():
            raise _death(done.returncode, (done.stderr or b"").decode(errors="replace"))
        with answer.open("rb") as file:
            kind, value = pickle.load(file)
    if kind == "error":
        raise value
    return value


def _death(status: int, log: str) -> Error:
    lines = [line for line in log.strip().splitlines() if line.strip()]
    last = lines[-1].strip()[:300] if lines else "it said nothing"
    if "bad_alloc" in log or "MemoryError" in log or status == -signal.SIGKILL:
        return LimitError("TensorFlow ran out of memory on this graph (--memory-limit)")
    if status < 0:
        name = signal.Signals(-status).name
        return GraphError(f"TensorFlow died of {name} on this graph: {last}")
    return GraphError(f"TensorFlow ended with status {status} and no answer: {last}")


@contextlib.contextmanager
def limited(seconds: float, memory: int | None, show_log: bool) -> Iterator[None]:
    """Give the children that start inside this block other limits."""
    saved = (limits.seconds, limits.memory, limits.show_log)
    limits.seconds, limits.memory, limits.show_log = seconds, memory, show_log
    try:
        yield
    finally:
        limits.seconds, limits.memory, limits.show_log = saved


def _answer(question: str, answer: str) -> None:
    with open(question, "rb") as file:
        function, arguments, given = pickle.load(file)
    if given.memory is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (given.memory, given.memory))
    module, name = function.split(":")
    try:
        result = ("value", getattr(importlib.import_module(module), name)(*arguments))
    except Error as error:
        result = ("error", error)
    except MemoryError:
        result = ("error", LimitError("the memory cap was reached (--memory-limit)"))
    partial = answer + ".partial"
    with open(partial, "wb") as file:
        pickle.dump(result, file, protocol=5)
    os.rename(partial, answer)


if __name__ == "__main__":
    _answer(sys.argv[1], sys.argv[2])
