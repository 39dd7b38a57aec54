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
from pathlib import Path
from types import SimpleNamespace

from deploykit.transforms.engines.packages import PACKAGE, package_folder
from deploykit.transforms.ir.protos import without_tensorflow_start
from deploykit.transforms.runtime import resident_memory

_LOG_LEVEL, _SILENT = "TF_CPP_MIN_LOG_LEVEL", "3"
_DEVICES = "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"
_started = threading.Lock()
_is_alone = False


_MODULES = {
    "tf2": "python.tf2",  # selects the behavior of TensorFlow 2; the others depend on it
    "session": "python.client.session",  # Session
    "wrapper": "python.client.pywrap_tf_session",  # the C functions of a session
    "ops": "python.framework.ops",  # Graph, Operation, device_v2
    "importer": "python.framework.importer",  # import_graph_def
    "loader": "python.saved_model.loader_impl",  # loads a SavedModel into a session
    "errors": "python.framework.errors",  # OpError
    "config": "core.protobuf.config_pb2",  # ConfigProto, RunOptions, RunMetadata
    "rewriter": "core.protobuf.rewriter_config_pb2",  # RewriterConfig
    "arrays": "python.ops.array_ops",  # rank and other ops on the shapes of tensors
    "raw_arrays": "python.ops.gen_array_ops",  # the same as single nodes, as in tf.raw_ops
    "math": "python.ops.math_ops",  # reduce_mean and other ops on numbers
    "histograms": "python.ops.histogram_ops",  # histogram_fixed_width
    "restoring": "python.ops.gen_io_ops",  # restore_v2
    "checkpoints": "python.training.py_checkpoint_reader",  # NewCheckpointReader
    "objects": "core.protobuf.trackable_object_graph_pb2",  # TrackableObjectGraph
    "features": "python.util._pywrap_util_port",  # features of this build, such as oneDNN
}
"""The modules of TensorFlow that a session needs, by their names in `start_tensorflow`."""


def expect_sessions() -> None:
    """Make `start_tensorflow` import only the modules that sessions need.

    No other thread of this process may import TensorFlow meanwhile: it would get an empty module.
    """
    global _is_alone
    _is_alone = True


def start_tensorflow() -> SimpleNamespace:
    """Import TensorFlow once, and exclude it from Python's garbage collection.

    A full collection would traverse all objects of its modules, which takes as long as many calls.
    """
    with _started:
        return _session_parts()


@functools.cache
def _session_parts() -> SimpleNamespace:
    with _silence(), resident_memory.importing_engine():
        parts = _imported()
        if os.environ.get(_LOG_LEVEL) == _SILENT:
            logging.getLogger(PACKAGE).setLevel(logging.ERROR)
    gc.collect()
    gc.freeze()
    return parts


def _imported() -> SimpleNamespace:
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


def _modules() -> SimpleNamespace:
    importlib.import_module(f"{PACKAGE}.{_MODULES['tf2']}").enable()  # as its `__init__` does
    paths = {name: f"{PACKAGE}.{path}" for name, path in _MODULES.items()}
    return SimpleNamespace(**{name: importlib.import_module(p) for name, p in paths.items()})


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


@contextlib.contextmanager
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
