"""TensorFlow's start, which takes seconds: for the first version that it computes, and once.

A session of a SavedModel needs a fifth of TensorFlow's Python modules. In a process that does
nothing but serve, these alone are imported, which takes a quarter of the time and 170 MiB less.
"""

import contextlib
import functools
import gc
import importlib
import logging
import os
import site
import sys
import sysconfig
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploykit.transforms.core.engines.tensorflow_wheel import PACKAGE, package_folder
from deploykit.transforms.core.protos import without_tensorflow_start

_LOG_LEVEL, _SILENT = "TF_CPP_MIN_LOG_LEVEL", "3"
_DEVICES = "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"
_started = threading.Lock()
_is_alone = False


@dataclass(frozen=True)
class SessionParts:
    """The modules of TensorFlow that a session of a SavedModel needs."""

    session: Any
    """Session."""
    wrapper: Any
    """The C functions below it."""
    ops: Any
    """Graph."""
    loader: Any
    """What loads a SavedModel into a session."""
    errors: Any
    """OpError."""
    config: Any
    """ConfigProto and RunOptions."""


_MODULES = SessionParts(
    session=f"{PACKAGE}.python.client.session",
    wrapper=f"{PACKAGE}.python.client.pywrap_tf_session",
    ops=f"{PACKAGE}.python.framework.ops",
    loader=f"{PACKAGE}.python.saved_model.loader_impl",
    errors=f"{PACKAGE}.python.framework.errors",
    config=f"{PACKAGE}.core.protobuf.config_pb2",
)


def serve_alone() -> None:
    """Say that this process does nothing but serve: nobody else imports TensorFlow in it."""
    global _is_alone
    _is_alone = True


def start_tensorflow() -> SessionParts:
    """Import TensorFlow, and let Python's garbage collector never look at it again; once.

    A full collection goes through all that its modules hold, for as long as many calls take.
    """
    with _started:
        return _session_parts()


@functools.cache
def _session_parts() -> SessionParts:
    with _silence():
        parts = _imported()
        if os.environ.get(_LOG_LEVEL) == _SILENT:
            logging.getLogger(PACKAGE).setLevel(logging.ERROR)
    gc.collect()
    gc.freeze()
    return parts


def _imported() -> SessionParts:
    """Return the modules, imported without TensorFlow's `__init__` where that is possible."""
    if _is_alone and PACKAGE not in sys.modules and not _has_plugins():
        with contextlib.suppress(ImportError, AttributeError):
            with without_tensorflow_start():
                parts = _modules()
            # As TensorFlow's `__init__` does, so that the first session does not rule it out.
            parts.ops.enable_eager_execution()
            return parts
    importlib.import_module(PACKAGE)
    return _modules()


def _modules() -> SessionParts:
    return SessionParts(*[importlib.import_module(name) for name in vars(_MODULES).values()])


def _has_plugins() -> bool:
    """Say whether TensorFlow's `__init__` would load kernels or devices of others."""
    folder = package_folder()
    named = (*sys.path, *site.getsitepackages(), site.getusersitepackages())
    places = [Path(each) for each in (*named, *sysconfig.get_paths().values())]
    return bool(
        os.environ.get(_DEVICES)
        or (folder is not None and (folder / "core" / "kernels").exists())
        or any((place / "tensorflow-plugins").exists() for place in places)
    )


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
