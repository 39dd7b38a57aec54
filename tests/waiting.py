"""Waiting for what another thread or process brings about."""

import time
from collections.abc import Callable

SECONDS = 60  # a busy machine may need many of them


def until(condition: Callable[[], object]) -> None:
    """Wait until the condition holds; fail if it does not in SECONDS.

    A test that waited for ever would end its process, and with it half of CI, see tests/hanging.py.
    """
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "it never came about"
        time.sleep(0.005)
