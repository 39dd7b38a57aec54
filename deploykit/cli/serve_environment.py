"""The process in which `deploykit serve` serves: its environment, set before TensorFlow starts."""

import os
import sys

from deploykit.benchmarking.settings import KEEP_MEMORY, RunConfig
from deploykit.benchmarking.tuning.for_server import to_set
from deploykit.hardware.allocators import PRELOAD, TUNABLES
from deploykit.transforms.core.errors import PipelineError

_READ_AT_START = {*KEEP_MEMORY, PRELOAD, TUNABLES}
_STARTED_ANEW = "DEPLOYKIT_STARTED_ANEW"


def prepare_environment(tuned: RunConfig, show_log: bool) -> None:
    """Set the variables that TensorFlow and gRPC read when they start; what the user set wins.

    Those of the C library it has read already: with them, the program is started once more. Once,
    as the loader takes them from a program that may do more than its user.
    """
    is_second = os.environ.pop(_STARTED_ANEW, None) is not None
    wanted = to_set(tuned, os.environ)
    os.environ.update(wanted)
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "GRPC_VERBOSITY": "NONE"}
    ours = {"TF_ONEDNN_THREADPOOL_USE_CALLER_THREAD": "1"} | ({} if show_log else quiet)
    for name, value in ours.items():
        os.environ.setdefault(name, value)
    if wanted.keys() & _READ_AT_START and not is_second:
        try:
            os.execve(sys.executable, sys.orig_argv, {**os.environ, _STARTED_ANEW: "1"})
        except OSError as error:
            raise PipelineError("restart-failed", reason=error) from None
