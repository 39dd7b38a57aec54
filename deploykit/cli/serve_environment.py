"""The process in which `deploykit serve` serves: its environment, set before TensorFlow starts."""

import os
import sys

from deploykit.benchmarking.settings import KEEP_MEMORY, Settings
from deploykit.benchmarking.tuning.for_server import to_set
from deploykit.transforms.core.errors import PipelineError


def prepare_environment(tuned: Settings, show_log: bool) -> None:
    """Set the variables that TensorFlow and gRPC read when they start; what the user set wins.

    Those of the C library it has read already: with them, the program is started once more.
    """
    wanted = to_set(tuned, os.environ)
    os.environ.update(wanted)
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "GRPC_VERBOSITY": "NONE"}
    ours = {"TF_ONEDNN_THREADPOOL_USE_CALLER_THREAD": "1"} | ({} if show_log else quiet)
    for name, value in ours.items():
        os.environ.setdefault(name, value)
    if wanted.keys() & KEEP_MEMORY.keys():
        try:
            os.execv(sys.executable, sys.orig_argv)
        except OSError as error:
            raise PipelineError(f"deploykit cannot start anew: {error}") from None
