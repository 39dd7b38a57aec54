"""Processes that are made up: what is asked of them is kept, and every call takes 2 ms, or what
`call_seconds` returns.

Their clock is theirs alone, so figures are the same each time.
"""

import math
import os
from collections.abc import Callable
from types import SimpleNamespace

from deploykit.benchmarking import rounds, system_load, worker_sessions
from deploykit.benchmarking.measurement import Job

CALL = 0.002


class MadeUpProcess:
    """A process whose calls all take the same time."""

    pid = os.getpid()
    asked: list[tuple]
    """What was asked of all."""
    now: float
    call_seconds: Callable[[Job], float]

    def __init__(self, kind, imported=None, forced=None, runs=""):
        self.jobs = []

    def ask(self, method, *arguments):
        self.asked.append((method, *arguments))
        if method == "open":
            self.jobs.append(arguments[0])
            return len(self.jobs) - 1
        if method == "renew":
            self.jobs = [arguments[0]]
            return 0
        if method == "facts":
            fed = [list(each.shape) for each in self.jobs[arguments[0]].batches[0]]
            memory = {"bytes_before": 1 << 28, "bytes_peak": 1 << 29}
            return {
                "towers": ["/CPU:0"],
                "load_ns": 1_000_000,
                "onednn": True,
                "fed": fed,
                **memory,
            }
        assert method == "turn"
        number, seconds, runs, *_ = (*arguments, None)
        call = self.call_seconds(self.jobs[number])
        count = min(runs or 10**9, max(1, round(seconds / call)))
        MadeUpProcess.now += call * count
        calls, taken = [round(call * 1e9)] * count, round(call * 1e9) * count
        return calls, taken, taken, 0, 0

    def close(self):
        self.asked.append(("close",))


def take_made_up_processes(
    monkeypatch, call_seconds: Callable[[Job], float] = lambda job: CALL
) -> list[tuple]:
    """Let all processes that measure be made up; return what will be asked of them."""
    monkeypatch.setattr(system_load, "BUSY", math.inf)  # the machine of the tests marks nothing
    MadeUpProcess.asked, MadeUpProcess.now = [], 0.0
    MadeUpProcess.call_seconds = staticmethod(call_seconds)
    monkeypatch.setattr(worker_sessions, "Worker", MadeUpProcess)
    clock = SimpleNamespace(monotonic=lambda: MadeUpProcess.now)
    monkeypatch.setattr(rounds, "time", clock)
    return MadeUpProcess.asked
