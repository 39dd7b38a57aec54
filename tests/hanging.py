"""A test that hangs, and a process of tests that does not end, say where they stand, and end.

The stacks of all threads go to stderr. A test that hangs fails: its process ends, which xdist tells
as the failure of this test. Its time counts anew for its teardown, and so for that of the fixtures
of its module and session. Where only the end of a process hangs, when all tests have been run, its
status is that of the tests.
"""

import contextlib
import faulthandler
import os
import sys
import threading

import pytest

SECONDS = 240  # of a test; the longest quick one takes less than 60 on a busy machine
SLOW_SECONDS = 3600
END_SECONDS = 60  # of the end of a process

_shown = pytest.StashKey[int]()


def pytest_configure(config):
    config.stash[_shown] = os.dup(2)  # what is captured would be lost


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    _end_in_time(item)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item):
    _end_in_time(item)


def _end_in_time(item: pytest.Item) -> None:
    """End the process unless this is called again in time: no Python has to run for that."""
    is_slow = item.get_closest_marker("slow") or item.get_closest_marker("full")
    seconds = SLOW_SECONDS if is_slow else SECONDS
    faulthandler.dump_traceback_later(seconds, file=item.config.stash[_shown], exit=True)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    def end():
        faulthandler.dump_traceback(file=shown)
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(session.exitstatus)

    shown = session.config.stash[_shown]
    faulthandler.cancel_dump_traceback_later()
    timer = threading.Timer(END_SECONDS, end)
    timer.daemon = True
    timer.start()
