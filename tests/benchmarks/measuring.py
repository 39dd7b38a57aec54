"""Whole processes: wall time and peak memory as the operating system counts them."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """A finished process. Its peak counts at least what this process held when it started it."""

    seconds: float
    mebibytes: float
    output: str


def deploykit(*arguments: str) -> list[str]:
    """Return the command line of a deploykit command."""
    return [sys.executable, "-m", "deploykit", *arguments]


def run(command: Sequence[str], check: bool = True) -> Run:
    """Run a command to its end. RuntimeError: it fails, unless `check` is false."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as log:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        log.seek(0)
        if check and process.returncode:
            said = log.read()[-2000:]
            raise RuntimeError(f"{' '.join(command)}: exit status {process.returncode}: {said}")
        return Run(seconds, usage.ru_maxrss / 1024, output.read())
