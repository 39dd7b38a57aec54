"""`deploykit serve` on a folder in a separate process, for the time of a measurement."""

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

_ENDING = 10.0  # seconds until the server is killed


class ServedInstance:
    """A server started with the `deploykit serve` command; a context manager that stops it."""

    def __init__(self, folder: Path, *, allow_ops: Sequence[str] = ()) -> None:
        """Start the server; `__enter__` waits until it listens."""
        allowed = [part for op in allow_ops for part in ("--allow-op", op)]
        self._folder = folder
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  `close` closes it
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
        """Host and port of the server."""
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
        """Stop the server, and kill it after a timeout."""
        self._process.terminate()
        try:
            self._process.communicate(timeout=_ENDING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._said.close()

    def _listening(self) -> dict[str, Any]:
        """Return the JSON document that the server prints once it listens.

        LimitError: it took too long. VerificationError: it exited; the message contains the reason.
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
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        why = lines[-1].removeprefix("deploykit: ") if lines else "it printed no reason"
        raise VerificationError("shipped-not-servable", source=self._folder, reason=why)
