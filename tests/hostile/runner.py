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
        process = self._process or self._start()
        begun = time.monotonic()
        request = {
            "arguments": arguments,
            "folder": str(place.logs),
            "temporary": str(place.temporary),
        }
        ended = Ended(0, "", "", 0.0)
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass
        ready = select.select([process.stdout], [], [], deadline)[0]
        line = process.stdout.readline() if ready else ""
        ended.seconds = time.monotonic() - begun
        if line:
            answer: dict[str, Any] = json.loads(line)
            ended.status, ended.memory = answer["status"], answer["memory"]
            ended.out, ended.err = answer["out"], answer["err"]
            return ended
        ended.hung = not ready
        self.close()
        ended.status = process.returncode
        ended.err = (place.logs / ".err").read_text(errors="replace") if not ready else ""
        return ended

    def _start(self) -> subprocess.Popen[str]:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, env=environment(), start_new_session=True,
        )  # fmt: skip
        return self._process

    def close(self) -> None:
        """End the process and its children."""
        if self._process is not None:
            below = descendants(self._process.pid)
            with contextlib.suppress(ProcessLookupError):
                self._process.kill() if self._process.poll() is None else None
            self._process.wait()
            kill(*below)
            self._process = None


def resident() -> int:
    """Return the bytes of memory that this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def serve() -> None:
    """Run the command lines that come in."""
    from deploykit.transforms.core.running import child
    from tests.deploykit.conftest import command_line
    from tests.forking import Forks

    answers = os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)
    child.subprocess = Forks()
    for line in sys.stdin:
        request = json.loads(line)
        os.chdir(request["folder"])
        os.environ["TMPDIR"] = tempfile.tempdir = request["temporary"]
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        before = resident()
        try:
            outcome = command_line(*request["arguments"])
            found = {"status": outcome.status, "out": outcome.stdout, "err": outcome.stderr}
        except SystemExit as error:
            found = {"status": error.code or 0, "out": "", "err": ""}
        except BaseException as error:
            found = {"status": 1, "out": "", "err": f"Traceback (most recent call last): {error!r}"}
        found["memory"] = max(0, peak(os.getpid()) - before)
        answers.write(json.dumps(found) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve()
