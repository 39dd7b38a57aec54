"""Whether TensorFlow opens a version: with both of its loaders, and to run ops one by one.

The executor for that, SINGLE_THREADED_EXECUTOR, refuses loops and conditions of TensorFlow 1,
variables that are references, and what is spread over devices. TensorFlow itself is asked, as it
rewrites graphs.
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
        refused = [f"TensorFlow's process ends while it loads: {error}"]
    if refused:
        raise VerificationError("export-not-loadable", reason=refused[0])


def refusals(folder: str) -> list[str]:
    """Return why each loader refuses a SavedModel; for a child process.

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
        except Exception as error:  # they raise much, from KeyError to errors of their own
            reason = failed("server-cannot-load", error, name=name, reason=sentence(error))
            if isinstance(reason, LimitError):
                raise reason from None
            results.append(str(reason))
    return results


def refused_in_turn(folder: str | os.PathLike[str]) -> str:
    """Say why the executor does not take a version of a SavedModel; empty: it does."""
    try:
        return str(call(f"{__name__}:_refused", os.fspath(folder)))
    except Error as error:
        return str(error)


def _refused(folder: str) -> str:
    """Load a version, and make each signature ready to run, which is when graphs are refused."""
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
