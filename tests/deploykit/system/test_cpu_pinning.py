"""Workers that start at once take a CPU each, of different cores, and share them evenly."""

import collections
import contextlib
import itertools
import os
import random
import subprocess
import sys
import threading

import pytest

from deploykit.system import cpu_usage
from deploykit.system.cpu_usage import take_own_cpu

USABLE = sorted(os.sched_getaffinity(0))
_names = itertools.count()

WORKER = """
import os, sys, threading
from deploykit.system import cpu_usage
cpu_usage._NAME = sys.argv[1]
threading.Thread(target=threading.Event().wait, daemon=True).start()
sys.stdin.readline()
cpu = cpu_usage.take_own_cpu()
allowed = {tuple(os.sched_getaffinity(int(thread))) for thread in os.listdir("/proc/self/task")}
print(cpu, allowed == {(cpu,)}, flush=True)
sys.stdin.readline()
"""


def own_name():
    return f"deploykit-test-{os.getpid()}-{next(_names)}"


class Workers:
    """Processes that take a CPU when they are told to."""

    def __init__(self, name, count):
        command = [sys.executable, "-c", WORKER, name]
        self.processes = [
            subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for _ in range(count)
        ]

    def take(self):
        """Return the CPUs that they took, all at once."""
        for process in self.processes:
            process.stdin.write("\n")
            process.stdin.flush()
        answers = [process.stdout.readline().split() for process in self.processes]
        assert all(answer[1] == "True" for answer in answers)  # every thread moved, to one CPU
        return [int(answer[0]) for answer in answers]

    def close(self):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.communicate()


@pytest.mark.sampled
def test_processes_share_the_cpus_evenly_and_the_kernel_frees_them():
    name = own_name()
    with contextlib.closing(Workers(name, 2 * len(USABLE))) as first:
        assert sorted(first.take()) == sorted(2 * USABLE)
        with contextlib.closing(Workers(name, 1)) as one_more:
            assert one_more.take()[0] in USABLE
    with contextlib.closing(Workers(name, len(USABLE))) as second:  # after kill -9
        assert sorted(second.take()) == USABLE


def claimed_at_once(monkeypatch, cores, count, order=None):
    """Return the CPUs that so many workers of a machine with these cores claim at once."""
    monkeypatch.setattr(cpu_usage, "_NAME", own_name())
    cpus = order or sorted(itertools.chain(*cores))
    by_cpu = {cpu: core for core in cores for cpu in core}
    found = []
    begin = threading.Barrier(count)

    def claim():
        begin.wait()
        found.append(cpu_usage._claimed(cpus, by_cpu))

    threads = [threading.Thread(target=claim) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.fixture
def holds(monkeypatch):
    """What is held in this process, until the test ends."""
    held = []
    monkeypatch.setattr(cpu_usage, "_held", held)
    yield held
    for each in held:
        each.close()


@pytest.mark.parametrize("seed", range(8))
def test_cores_that_nobody_has_go_first(seed, monkeypatch, holds):
    draw = random.Random(seed)
    count, siblings = draw.randint(1, 6), draw.choice((1, 2, 4))
    cores = [tuple(range(core, count * siblings, count)) for core in range(count)]
    order = draw.sample(range(count * siblings), count * siblings)
    found = claimed_at_once(monkeypatch, cores, count, order)
    assert sorted(cpu % count for cpu in found) == list(range(count))
    assert all(cpu == next(each for each in order if each % count == cpu % count) for cpu in found)
    rest = [cpu_usage._claimed(order, {cpu: cores[cpu % count] for cpu in order}) for _ in order]
    assert collections.Counter(found + rest)[order[0]] == 2  # the first one is shared first
    assert set(found + rest) == set(order)


def test_a_core_is_taken_while_only_its_sibling_is_held(monkeypatch, holds):
    cores = {0: (0, 2), 1: (1, 3), 2: (0, 2), 3: (1, 3)}
    monkeypatch.setattr(cpu_usage, "_NAME", own_name())
    assert [cpu_usage._claimed([0, 1, 2, 3], cores) for _ in range(3)] == [0, 1, 2]
    for each in holds[:4]:  # those with a core to themselves end
        each.close()
    assert cpu_usage._claimed([0, 1, 2, 3], cores) == 1  # not 0, whose sibling 2 is at work


def test_a_busy_cpu_goes_last(monkeypatch, holds):
    ticks = dict.fromkeys(("user", "nice", "system", "irq", "softirq", "idle", "steal"), 0.0)
    looks = iter([
        dict.fromkeys(range(4), ticks),
        {0: {**ticks, "user": 0.1}, 1: {**ticks, "steal": 0.05}, 2: {**ticks, "idle": 0.1},
         3: {**ticks, "user": 0.02, "system": 0.02}},
    ])  # fmt: skip
    monkeypatch.setattr(cpu_usage, "cpu_ticks", lambda: next(looks))
    monkeypatch.setattr(cpu_usage, "_NAME", own_name())
    monkeypatch.setattr(cpu_usage, "_core", lambda cpu: (cpu,))
    monkeypatch.setattr(cpu_usage.os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    moved = []
    monkeypatch.setattr(cpu_usage.os, "sched_setaffinity", lambda pid, cpus: moved.append(cpus))
    assert take_own_cpu() == 2
    assert {2} in moved
    assert set(map(frozenset, moved)) == {frozenset({2})}


def test_work_on_a_cpu_is_seen():
    spin = (
        "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); print(flush=True)\nwhile 1: 0"
    )
    command = [sys.executable, "-c", spin, str(USABLE[-1])]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        process.stdout.readline()
        assert any(cpu_usage._busy(USABLE)[USABLE[-1]] > 0 for _ in range(20))
    finally:
        process.kill()
        process.communicate()


def test_where_nothing_can_be_held_the_least_busy_one_is_taken(monkeypatch):
    def refused(*arguments):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(cpu_usage.socket, "socket", refused)
    assert cpu_usage._claimed([3, 1], {3: (3,), 1: (1,)}) == 3


@pytest.mark.parametrize(("text", "core"), [("0-1\n", (0, 1)), ("1,5", (1, 5)), ("7", (1, 7)),
                                        ("", (1,)), ("x", (1,))])  # fmt: skip
def test_siblings_are_read(text, core, monkeypatch, tmp_path):
    (tmp_path / "1").write_text(text)
    monkeypatch.setattr(cpu_usage, "_SIBLINGS", str(tmp_path / "{}"))
    assert cpu_usage._core(1) == core
    assert cpu_usage._core(2) == (2,)  # without a file


def test_a_platform_that_does_not_let_choose_is_left_alone(monkeypatch):
    monkeypatch.delattr(os, "sched_setaffinity")
    assert take_own_cpu() == -1


def test_a_process_that_may_not_move_says_so(monkeypatch, holds):
    def refused(*arguments):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(cpu_usage, "_NAME", own_name())
    monkeypatch.setattr(cpu_usage.os, "sched_setaffinity", refused)
    assert take_own_cpu() == -1
