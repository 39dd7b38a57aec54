"""One process that runs many command lines: what a thousand cases and a fuzzer need.

It dies, hangs and grows like the real one, and is started again then. Children that run TensorFlow
are forked from a process that has imported it.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.hostile.watching import Ended, Place, descendants, environment, kill, peak


class Runner:
    """Runs command lines in a process of its own."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def run(self, arguments: list[str], place: Place, deadline: float) -> Ended:
        """Run a command line; `memory` is by how much the process grew."""
        request = {"arguments": arguments, "folder": str(place.logs), "tmp": str(place.temporary)}
        return self._send(request, deadline)

    def refusal(self, graph: Path, deadline: float) -> str | None:
        """Return why TensorFlow does not import a graph; None: it does."""
        return self._send({"imports": str(graph)}, deadline).out or None

    def _send(self, request: dict[str, Any], deadline: float) -> Ended:
        process = self._process or self._start()
        begun = time.monotonic()
        with contextlib.suppress(BrokenPipeError):  # the answer will say so
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        ready = bool(select.select([process.stdout], [], [], deadline)[0])
        line = process.stdout.readline() if ready else ""
        seconds = time.monotonic() - begun
        for path in Path(request.get("tmp", "/nonexistent")).glob("__autograph_generated_file*"):
            path.unlink()  # TensorFlow's; a real command has a folder of its own, which goes
        if line:
            return Ended(**json.loads(line), seconds=seconds)
        self.close()
        return Ended(process.returncode, "", "", seconds, hung=not ready)

    def _start(self) -> subprocess.Popen[str]:
        self._process = subprocess.Popen(
            [sys.executable, "-B", "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, env=environment(), start_new_session=True,
        )  # fmt: skip
        return self._process

    def close(self) -> None:
        """End the process and its children."""
        if self._process is not None:
            below = descendants(self._process.pid)
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait()
            kill(*below)
            self._process = None


def serve() -> None:
    """Run the command lines that come in."""
    from deploykit.transforms.runtime import child_process
    from tests.forking import Forks

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    child_process.subprocess = Forks()
    for line in sys.stdin:
        request = json.loads(line)
        found = _refusal(request["imports"]) if "imports" in request else _run(**request)
        answers.write(json.dumps(found) + "\n")
        answers.flush()


def _run(arguments: list[str], folder: str, tmp: str) -> dict[str, Any]:
    from tests.deploykit.conftest import command_line

    os.chdir(folder)
    os.environ["TMPDIR"] = tempfile.tempdir = tmp
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak is counted anew
    before = _resident()
    try:
        outcome = command_line(*arguments)
        found = {"status": outcome.status, "out": outcome.stdout, "err": outcome.stderr}
    except BaseException as error:  # the real command line would show it too
        said = f"Traceback (most recent call last): {type(error).__name__}: {error}"
        found = {"status": 1, "out": "", "err": said}
    return found | {"memory": max(0, peak(os.getpid()) - before)}


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _refusal(path: str) -> dict[str, Any]:
    from deploykit.transforms.runtime import child_process

    try:
        said = child_process.call("tests.hostile.importing:refusal", Path(path).read_bytes())
    except Exception as error:  # TensorFlow's process died
        said = f"{type(error).__name__}: {error}"
    return {"status": 0, "out": said or "", "err": ""}


if __name__ == "__main__":
    serve()
