"""TensorFlow's start, which takes seconds: for the first version that it computes, and once."""

import contextlib
import gc
import logging
import os
import threading
from collections.abc import Iterator

_LOG_LEVEL, _SILENT = "TF_CPP_MIN_LOG_LEVEL", "3"
_started = threading.Event()


def start_tensorflow() -> None:
    """Import TensorFlow, and let Python's garbage collector never look at it again; once.

    A full collection goes through all that its modules hold, for as long as many calls take.
    """
    if _started.is_set():
        return
    _started.set()
    with _silence():
        import tensorflow as tf

        if os.environ.get(_LOG_LEVEL) == _SILENT:
            tf.get_logger().setLevel(logging.ERROR)
    gc.collect()
    gc.freeze()


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Drop what C++ writes to standard error, if TensorFlow's log is off."""
    if os.environ.get(_LOG_LEVEL) != _SILENT:
        yield
        return
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
