"""Starting TensorFlow, which takes seconds: only when necessary, once, and without its log."""

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
    """Selects the behavior of TensorFlow 2; it comes first, as the others depend on it."""

    session: Any
    """Session."""
    wrapper: Any
    """The C functions of a session."""
    ops: Any
    """Graph, Operation, device_v2."""
    importer: Any
    """import_graph_def."""
    loader: Any
    """Loads a SavedModel into a session."""
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
    """The features of this build of TensorFlow, such as oneDNN."""


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
    """Make `start_tensorflow` import only the modules that sessions need.

    No other thread of this process may import TensorFlow meanwhile: it would get an empty module.
    """
    global _is_alone
    _is_alone = True


def start_tensorflow() -> SessionParts:
    """Import TensorFlow once, and exclude it from Python's garbage collection.

    A full collection would traverse all objects of its modules, which takes as long as many calls.
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
    """Return the modules, imported without TensorFlow's `__init__` if possible."""
    if _is_alone and PACKAGE not in sys.modules and not _has_plugins():
        with contextlib.suppress(ImportError, AttributeError):
            with without_tensorflow_start():
                parts = _modules()
            # As TensorFlow's `__init__` does, so that the first session does not disable it.
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
    """Return whether TensorFlow's `__init__` would load third-party kernels or devices."""
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
    """Discard the standard error of C++ code, if TensorFlow's log is off."""
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
    """Suppress messages of TensorFlow's Python code below this level in the block.

    In a notebook it prints notes, such as the file that it wrote, twice. The level of its logger is
    not sufficient, as TensorFlow resets it at the first message.
    """
    logger = logging.getLogger("tensorflow")

    def matters(record: logging.LogRecord) -> bool:
        return record.levelno >= level

    logger.addFilter(matters)
    try:
        yield
    finally:
        logger.removeFilter(matters)
