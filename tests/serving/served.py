"""Real server processes for tests: `deploykit serve` started, asked, and ended."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import grpc

from tests import forking
from tests.documents import pinned
from tests.serving.official_stubs import ModelServiceStub, PredictionServiceStub

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    """Return a port that nobody listens on; for REST, where 0 stands for none."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Served:
    """A server in a process of its own, on a free port."""

    def __init__(
        self,
        *arguments: object,
        ready: bool = True,
        python: Path | str = sys.executable,
        forked: bool = True,
        **environment: str,
    ) -> None:
        """Start the server; it is forked unless more than TensorFlow's start would differ."""
        if not any(str(each).startswith("--lame_duck_seconds") for each in arguments):
            arguments = (*arguments, "--lame_duck_seconds=0")
        # A pipe that nobody reads would block the server.
        self.log = tempfile.TemporaryFile()  # noqa: SIM115  it is read to the end of the test
        command = ["serve", *map(str, arguments), "--port=0", "--json"]
        variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
        is_alone = not any("--workers" in each or "--memory-limit" in each for each in command)
        self.process: Any
        if forking.running and forked and python == sys.executable and not environment and is_alone:
            self.process = forking.running.command(command, variables, self.log)
        else:
            self.process = subprocess.Popen(
                [python, "-m", "deploykit", *command],
                stdout=subprocess.PIPE, stderr=self.log, text=True, env=variables,
            )  # fmt: skip
        if ready:
            self.document: dict[str, Any] = self._document()
            self.address = f"127.0.0.1:{self.document['port']}"
            self.channel = grpc.insecure_channel(self.address)

    @property
    def predictions(self) -> Any:
        return PredictionServiceStub(self.channel)

    @property
    def models(self) -> Any:
        return ModelServiceStub(self.channel)

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal; return the exit status and what was said on stderr."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> tuple[int, str]:
        """Wait for the end; return the exit status and what was said on stderr."""
        self.process.communicate(timeout=60)
        return self.process.returncode, self.said

    @property
    def said(self) -> str:
        """What was written to stderr."""
        return os.pread(
            self.log.fileno(), 1 << 20, 0
        ).decode()  # a seek would move the server's end

    def kill(self) -> None:
        if hasattr(self, "channel"):
            self.channel.close()
        self.process.kill()
        self.process.communicate()

    def _document(self) -> dict[str, Any]:
        text = ""
        for line in self.process.stdout:
            text += line
            if line == "}\n":
                return pinned(json.loads(text))
        raise AssertionError(f"the server did not start: {self.said}")
