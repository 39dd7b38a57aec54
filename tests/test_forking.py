"""Forked children do not outlive the process of the tests."""

import os
import select

from deploykit.transforms.runtime.child_process import Worker

SECONDS = 60


def spins():
    while True:
        pass


def test_a_child_that_computes_ends_with_the_process_that_asked():
    worker = Worker(f"{__name__}:spins")
    child = os.pidfd_open(worker.pid)
    assert not select.select([child], [], [], 0.2)[0]
    os.close(worker._child.process._news)  # as the end of this process would
    ended, _, _ = select.select([child], [], [], SECONDS)
    worker._child.process.kill()
    for file in (worker._child.questions, worker._child.answers, worker._child.log):
        file.close()
    os.close(child)
    assert ended
