"""What children do in tests. Little is imported: each is a process."""

import os
import signal
import sys
import time
import weakref

from deploykit.transforms.common.errors import RefusedError
from deploykit.transforms.runtime import process_limits


def add(a, b):
    return a + b


def killed():
    os.kill(os.getpid(), signal.SIGSEGV)


def fails_a_check():
    """As TensorFlow does, whose check shows the node behind the line with the reason."""
    lines = (
        "I0000 00:00:1.2 3 a.cc:4] said before",
        "F0000 00:00:1.2 3 b.cc:5] Check failed: No key 'T' found in ",
        'name: "conv"',
        "attr {",
        "}",
        "*** Check failure stack trace: ***",
        "    @ 0x7f  f()",
    )
    os.write(2, "\n".join(lines).encode())
    os.abort()


def out_of_memory():
    os.kill(os.getpid(), signal.SIGKILL)


def leaves_without_an_answer():
    os._exit(0)


def hangs():
    time.sleep(60)


def refuses():
    raise RefusedError("not this one")


def takes(count):
    return len(bytearray(count))


def fails():
    raise KeyError("a bug")


def variables(*names):
    return [os.environ.get(name) for name in names]


def loops(seconds):
    with process_limits.internal_run():
        time.sleep(seconds)
    return seconds


class Counter:
    def __init__(self, start):
        if start < 0:
            raise RefusedError("not below zero")
        self.count = start

    def add(self, more):
        self.count += more
        return self.count

    def die(self):
        os.kill(os.getpid(), signal.SIGSEGV)

    def variable(self, name):
        return os.environ.get(name)


class Counted:
    """Tells its process, and what an earlier one left there."""

    made = 0

    def __init__(self) -> None:
        Counted.made += 1

    def found(self) -> tuple[int, int]:
        return os.getpid(), Counted.made


CYCLES = []


class Cycle:
    """An object that reference counts alone do not free, as a session of TensorFlow."""

    def __init__(self):
        self.itself = self
        CYCLES.append(weakref.ref(self))

    def others(self):
        """Return whether each one before is still there."""
        return [each() is not None for each in CYCLES[:-1]]


class Ending:
    """An object that ends its process once it is dropped."""

    def __del__(self):
        os._exit(3)


class Lasting:
    """An object that takes long to be dropped."""

    def __del__(self):
        time.sleep(60)


def writes_to_its_log():
    os.write(2, b"F0000 00:00:1.2 3 b.cc:5] earlier work")


def where_a_graph_runs(graph_def):
    """Run a graph, and return the process and whether all of TensorFlow was imported for it."""
    from deploykit.transforms.runtime import session

    assert session.run_each(graph_def, ["c"])["c"].tolist() == [1.0, 2.0]
    return os.getpid(), "keras" in sys.modules
