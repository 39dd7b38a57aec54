"""The virtual environment that the runtimes are installed in, and processes in it."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from deploykit.benchmarking.process_variables import PRELOAD
from deploykit.benchmarking.run_config import KEEP_MEMORY
from tests.benchmarks.figures import RESULTS

ROOT = Path(__file__).parents[3]
FOLDER = RESULTS / "peers" / "venv"
PYTHON = FOLDER / "bin" / "python"
EVERY = 10**9
"""More samples than there are."""
PIP = (str(PYTHON), "-m", "pip", "--disable-pip-version-check")


def install(packages: Sequence[str]) -> str | None:
    """Install what is missing of the packages; return why that cannot be done, or None."""
    if not PYTHON.exists():
        subprocess.run([sys.executable, "-m", "venv", str(FOLDER)], check=True)
    done = subprocess.run(
        [*PIP, "install", "--quiet", *packages], capture_output=True, text=True, check=False
    )
    said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return (said or ["it said nothing"])[-1] if done.returncode else None


def versions() -> dict[str, str]:
    """Return the version of each package that is installed."""
    done = subprocess.run(
        [*PIP, "list", "--format=json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        check=True,
    )  # fmt: skip
    return {each["name"]: each["version"] for each in json.loads(done.stdout)}


def packages_folder() -> Path:
    """Return where pip puts packages."""
    (found,) = FOLDER.glob("lib/python*/site-packages")
    return found


def quantize(
    runtime: str,
    model: Path,
    samples: Path,
    target: Path,
    kind: str,
    *,
    count: int = EVERY,
    keep_float: Sequence[str] = (),
) -> None:
    """Quantize a model as a runtime does, with the first `count` samples.

    `keep_float` names layers as `layers` does.
    """
    arguments = (model, samples, target, kind, count, *keep_float)
    with contextlib.closing(Process(runtime, "quantize", *arguments)) as process:
        process.finish()


def layers(runtime: str, model: Path) -> list[str]:
    """Return the names of a model's layers, as a runtime that quantizes it knows them."""
    with contextlib.closing(Process(runtime, "layers", model)) as process:
        found: list[str] = process.answer()
        return found


@contextlib.contextmanager
def keeping_memory() -> Iterator[None]:
    """Let processes that start in this block have the C library's malloc, which keeps memory.

    No other allocator is preloaded, as OpenVINO crashes with tcmalloc.
    """
    before = dict(os.environ)
    os.environ.update(KEEP_MEMORY)
    os.environ.pop(PRELOAD, None)
    try:
        yield
    finally:
        for name in KEEP_MEMORY:
            os.environ.pop(name, None)
        os.environ.update(before)


class Process:
    """A process of a runtime; see `child`."""

    def __init__(self, runtime: str, *arguments: object) -> None:
        """Start it; it works while the caller goes on."""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  see close
        self._process = subprocess.Popen(
            [str(PYTHON), "-m", f"tests.benchmarks.runtimes.{runtime}", *map(str, arguments)],
            # CI: NNCF then tells its makers nothing about its use.
            env={**os.environ, "CI": "true", "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        self._name = runtime

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def ask(self, method: str, *arguments: Any) -> Any:
        """Return what a method of the model returns. RuntimeError: the process died."""
        questions = self._process.stdin
        assert questions is not None
        with contextlib.suppress(BrokenPipeError):  # it died; there will be no answer
            questions.write(json.dumps([method, *arguments]).encode() + b"\n")
            questions.flush()
        return self.answer()

    def answer(self) -> Any:
        """Return the next answer. RuntimeError: the process died."""
        answers = self._process.stdout
        assert answers is not None
        if not (answer := answers.readline()):
            self.finish()
        return json.loads(answer)

    def finish(self) -> None:
        """Wait for its end. RuntimeError: it failed."""
        if status := self._process.wait():
            self._log.seek(0)
            said = self._log.read().decode(errors="replace")[-2000:]
            raise RuntimeError(f"{self._name}: exit status {status}: {said}")

    def close(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.communicate()
        self._log.close()
