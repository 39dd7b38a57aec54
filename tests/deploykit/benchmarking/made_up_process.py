"""Processes that are made up: what is asked of them is kept, and every call takes 2 ms.

Their clock is theirs alone, so figures are the same each time.
"""

import math
import os
from types import SimpleNamespace

from deploykit.benchmarking import rounds, system_load, worker_sessions
from deploykit.benchmarking.engines import engine_choice

CALL = 0.002


class MadeUpProcess:
    """A process whose calls all take 2 ms."""

    pid = os.getpid()
    asked: list[tuple]
    """What was asked of all."""
    now: float

    def __init__(self, kind, job=None, forced=None, runs=""):
        self.jobs = [] if job is None else [job]

    def ask(self, method, *arguments):
        self.asked.append((method, *arguments))
        if method == "open":
            self.jobs.append(arguments[0])
            return len(self.jobs) - 1
        if method == "go_on_with":
            self.jobs = [arguments[0]]
            return None
        if method == "facts":
            (number,) = arguments or (0,)
            fed = [list(each.shape) for each in self.jobs[number].batches[0]]
            memory = {"bytes_before": 1 << 28, "bytes_peak": 1 << 29}
            return {
                "towers": ["/CPU:0"],
                "load_ns": 1_000_000,
                "onednn": True,
                "fed": fed,
                **memory,
            }
        seconds, runs, *_ = (*arguments[method == "turn" :], None)
        count = min(runs or 10**9, max(1, round(seconds / CALL)))
        MadeUpProcess.now += CALL * count
        calls, taken = [2_000_000] * count, 2_000_000 * count
        return (calls, taken, taken, 0, 0) if method == "turn" else (calls, taken)

    def close(self):
        self.asked.append(("close",))


def take_made_up_processes(monkeypatch) -> list[tuple]:
    """Let all processes that measure be made up; return what will be asked of them."""
    monkeypatch.setattr(system_load, "BUSY", math.inf)  # the machine of the tests marks nothing
    MadeUpProcess.asked, MadeUpProcess.now = [], 0.0
    for module in (engine_choice, worker_sessions):
        monkeypatch.setattr(module, "Worker", MadeUpProcess)
    clock = SimpleNamespace(monotonic=lambda: MadeUpProcess.now)
    monkeypatch.setattr(rounds, "time", clock)
    return MadeUpProcess.asked
