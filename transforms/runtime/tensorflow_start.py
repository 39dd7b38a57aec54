"""The start of TensorFlow, which takes seconds: only when needed, once, and with its log
suppressed.
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
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploykit.transforms.engines.packages import PACKAGE, package_folder
from deploykit.transforms.ir.protos import without_tensorflow_start

_LOG_LEVEL, _SILENT = "TF_CPP_MIN_LOG_LEVEL", "3"
_DEVICES = "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"
_started = threading.Lock()
_is_alone = False


@dataclass(frozen=True)
class SessionParts:
    """The modules of TensorFlow that a session needs."""

    tf2: Any
    """What chooses the behavior of TensorFlow 2; it comes first, as the others ask it."""

    session: Any
    """Session."""
    wrapper: Any
    """The C functions below it."""
    ops: Any
    """Graph, Operation, device_v2."""
    importer: Any
    """import_graph_def."""
    loader: Any
    """What loads a SavedModel into a session."""
    errors: Any
    """OpError."""
    config: Any
    """ConfigProto, RunOptions, RunMetadata."""
    rewriter: Any
    """RewriterConfig."""
    arrays: Any
    """rank and other ops on the shapes of tensors."""
    math: Any
    """reduce_mean and other ops on numbers."""
    histograms: Any
    """histogram_fixed_width."""
    restoring: Any
    """restore_v2."""
    checkpoints: Any
    """NewCheckpointReader."""
    objects: Any
    """TrackableObjectGraph."""
    features: Any
    """What this build of TensorFlow has, such as oneDNN."""


_MODULES = SessionParts(
    tf2=f"{PACKAGE}.python.tf2",
    session=f"{PACKAGE}.python.client.session",
    wrapper=f"{PACKAGE}.python.client.pywrap_tf_session",
    ops=f"{PACKAGE}.python.framework.ops",
    importer=f"{PACKAGE}.python.framework.importer",
    loader=f"{PACKAGE}.python.saved_model.loader_impl",
    errors=f"{PACKAGE}.python.framework.errors",
    config=f"{PACKAGE}.core.protobuf.config_pb2",
    rewriter=f"{PACKAGE}.core.protobuf.rewriter_config_pb2",
    arrays=f"{PACKAGE}.python.ops.array_ops",
    math=f"{PACKAGE}.python.ops.math_ops",
    histograms=f"{PACKAGE}.python.ops.histogram_ops",
    restoring=f"{PACKAGE}.python.ops.gen_io_ops",
    checkpoints=f"{PACKAGE}.python.training.py_checkpoint_reader",
    objects=f"{PACKAGE}.core.protobuf.trackable_object_graph_pb2",
    features=f"{PACKAGE}.python.util._pywrap_util_port",
)


def expect_sessions() -> None:
    """Let `start_tensorflow` import what sessions need, and no more.

    No other thread of this process may import TensorFlow meanwhile: it would get an empty module.
    """
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
    first, *others = vars(_MODULES).values()
    tf2 = importlib.import_module(first)
    tf2.enable()  # as TensorFlow's `__init__` does
    return SessionParts(tf2, *[importlib.import_module(name) for name in others])


def _has_plugins() -> bool:
    """Say whether TensorFlow's `__init__` would load kernels or devices of others."""
    folder = package_folder()
    named = (*sys.path, *site.getsitepackages(), site.getusersitepackages())
    places = [Path(item) for item in (*named, *sysconfig.get_paths().values())]
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
    retained = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(retained, 2)
        os.close(retained)


@contextmanager
def quiet(level: int = logging.WARNING) -> Iterator[None]:
    """Let TensorFlow's Python code say nothing below this level meanwhile.

    In a notebook it prints notes, such as which file it wrote, twice; the level of its logger
    would not hold, as TensorFlow sets that itself when it first says something.
    """
    logger = logging.getLogger("tensorflow")

    def matters(record: logging.LogRecord) -> bool:
        return record.levelno >= level

    logger.addFilter(matters)
    try:
        yield
    finally:
        logger.removeFilter(matters)
