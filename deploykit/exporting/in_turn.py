"""Whether TensorFlow's executor that runs all ops of a call one by one takes a version.

SINGLE_THREADED_EXECUTOR refuses loops and conditions of TensorFlow 1, variables that are
references, and what is spread over devices. TensorFlow itself is asked, as it rewrites graphs.
"""

import os
from pathlib import Path

from deploykit.benchmarking.session_config import config, in_callers_thread
from deploykit.benchmarking.settings import RunConfig
from deploykit.serving.protocol.signatures import SERVE, read_meta_graph, signatures_of
from deploykit.transforms.core.errors import Error
from deploykit.transforms.core.running.child import call
from deploykit.transforms.core.running.session import sentence
from deploykit.transforms.core.running.tensorflow_start import start_tensorflow


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
        for each in signatures.values():
            fetched, fed = (
                [graph.get_tensor_by_name(tensor.name) for tensor in side.values()]
                for side in (each.outputs, each.inputs)
            )
            in_callers_thread(session, fetched, fed)
    except (parts.errors.OpError, ValueError, KeyError, TypeError, RuntimeError) as error:
        return sentence(error)
    finally:
        session.close()
    return ""
