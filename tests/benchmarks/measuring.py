"""Whole processes, run in turn: wall time and peak memory as the operating system counts them."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.hostile.watching import descendants

ROUNDS = 5
_PAUSE = 0.02  # seconds between two looks at the memory of processes


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


def peak_with_children(command: Sequence[str]) -> float:
    """Run a command; return the peak memory of it and its children together, in MiB.

    It is sampled (PSS: a page that processes share counts once), which slows the command down.
    RuntimeError: it fails.
    """
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(map(_proportional_kib, (process.pid, *descendants(process.pid)))))
        time.sleep(_PAUSE)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit status {process.returncode}")
    return peak / 1024


def _proportional_kib(pid: int) -> int:
    with contextlib.suppress(OSError):  # it has ended meanwhile
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def in_turn(
    commands: Mapping[str, Sequence[str]], check: bool = True, rounds: int = ROUNDS
) -> dict[str, list[Run]]:
    """Run each command once a round, so that a drift of the machine hits all.

    A first round warms up and does not count.
    """
    found: dict[str, list[Run]] = {name: [] for name in commands}
    for _ in range(1 + rounds):
        for name, command in commands.items():
            found[name].append(run(command, check))
    return {name: runs[1:] for name, runs in found.items()}
