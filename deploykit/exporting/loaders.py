"""Checks that TensorFlow opens a version: with both loaders and with its sequential executor.

SINGLE_THREADED_EXECUTOR refuses TensorFlow 1 control flow, reference variables and graphs on
several devices. TensorFlow rewrites graphs first, so the check runs TensorFlow.
"""

import os
from collections.abc import Callable
from pathlib import Path

from deploykit.benchmarking.devices import config, in_callers_thread
from deploykit.benchmarking.run_config import RunConfig
from deploykit.serving.protocol.signatures import SERVE, read_meta_graph, signatures_of
from deploykit.transforms.common.errors import (
    CrashError,
    Error,
    LimitError,
    VerificationError,
    failed,
)
from deploykit.transforms.runtime.child_process import call
from deploykit.transforms.runtime.session import Session, sentence
from deploykit.transforms.runtime.tensorflow_start import start_tensorflow


def check_loads(folder: Path) -> None:
    """Open a SavedModel with both loaders, in a child process.

    VerificationError: one of them refuses it. LimitError: there is not enough memory or time.
    """
    try:
        refused = call("deploykit.exporting.loaders:refusals", str(folder))
    except CrashError as error:
        refused = [f"TensorFlow's process crashes while it loads: {error}"]
    if refused:
        raise VerificationError("export-not-loadable", reason=refused[0])


def refusals(folder: str) -> list[str]:
    """Return the error of each loader that refuses a SavedModel; runs in a child process.

    LimitError: there is not enough memory.
    """
    import tensorflow as tf

    loaders: dict[str, Callable[[], object]] = {
        "tf.compat.v1.saved_model.load": lambda: Session.of_saved_model(folder, [SERVE]),
        "tf.saved_model.load": lambda: tf.saved_model.load(folder, tags=[SERVE]),
    }
    results = []
    for name, load in loaders.items():
        try:
            load()
        except Exception as error:  # loaders raise many types, from KeyError to their own
            reason = failed("server-cannot-load", error, name=name, reason=sentence(error))
            if isinstance(reason, LimitError):
                raise reason from None
            results.append(str(reason))
    return results


def refused_in_turn(folder: str | os.PathLike[str]) -> str:
    """Return why the sequential executor refuses a SavedModel, or an empty string."""
    try:
        return str(call(f"{__name__}:_refused", os.fspath(folder)))
    except Error as error:
        return str(error)


def _refused(folder: str) -> str:
    """Load a version and prepare each signature, which is when the executor refuses graphs."""
    parts = start_tensorflow()
    signatures = signatures_of(read_meta_graph(Path(folder)))
    graph = parts.ops.Graph()
    session = parts.session.Session(graph=graph, config=config(RunConfig(executor="single")))
    try:
        with graph.as_default():
            parts.loader.load(session, [SERVE], folder)
        for signature in signatures.values():
            fetched, fed = (
                [graph.get_tensor_by_name(tensor.name) for tensor in side.values()]
                for side in (signature.outputs, signature.inputs)
            )
            in_callers_thread(session, fetched, fed)
    except (parts.errors.OpError, ValueError, KeyError, TypeError, RuntimeError) as error:
        return sentence(error)
    finally:
        session.close()
    return ""
