"""`deploykit serve` on a folder, in a process of its own, for as long as it is asked."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deploykit.api.shipped import UNFINISHED
from deploykit.transforms.common.errors import LimitError, VerificationError
from deploykit.transforms.runtime.child_process import limits, python_path

_ENDING = 10.0  # seconds that the server may take to end


class ServedInstance:
    """A server that was started as a user starts it; a context manager that ends it."""

    def __init__(self, folder: Path, *, allow_ops: Sequence[str] = ()) -> None:
        """Start it; `__enter__` waits until it listens."""
        allowed = [part for op in allow_ops for part in ("--allow-op", op)]
        self._folder = folder
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  it is read to the end
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "deploykit", "serve", str(folder), "--port=0",
             "--lame_duck_seconds=0", "--json", *allowed],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            env={**os.environ, UNFINISHED: "1",
                 "PYTHONPATH": python_path()},
        )  # fmt: skip
        self.document: dict[str, Any] = {}

    @property
    def address(self) -> str:
        """Where it is asked."""
        return f"127.0.0.1:{self.document['port']}"

    def __enter__(self) -> "ServedInstance":
        try:
            self.document = self._listening()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it, if need be at once."""
        self._process.terminate()
        try:
            self._process.communicate(timeout=_ENDING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._said.close()

    def _listening(self) -> dict[str, Any]:
        """Return what it says once it listens.

        LimitError: it took too long. VerificationError: it ended, and why.
        """
        assert self._process.stdout is not None
        deadline = threading.Timer(limits.seconds, self._process.kill)
        deadline.start()
        text = ""
        try:
            for line in self._process.stdout:
                text += line
                with contextlib.suppress(ValueError):
                    results: dict[str, Any] = json.loads(text)
                    return results
        finally:
            timed_out = not deadline.is_alive()
            deadline.cancel()
        if timed_out:
            raise LimitError("server-not-listening", source=self._folder, seconds=limits.seconds)
        self._process.wait()
        self._said.seek(0)
        said = self._said.read().decode(errors="replace").strip().splitlines()
        why = said[-1].removeprefix("deploykit: ") if said else "it said nothing"
        raise VerificationError("shipped-not-servable", source=self._folder, reason=why)
