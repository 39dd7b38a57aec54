"""What the flags of `deploykit serve` come to: the settings of a server, and its environment."""

import os
import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click

from deploykit.benchmarking.settings import KEEP_MEMORY
from deploykit.benchmarking.settings import Settings as Tuned
from deploykit.serving.execution.servable import Loading
from deploykit.serving.lifecycle.base_path import models_in
from deploykit.serving.lifecycle.model_config import read_models
from deploykit.serving.protocol.batching_parameters import Batching, read_batching
from deploykit.serving.server.config_files import read_monitoring, read_tls
from deploykit.serving.server.settings import ServerSettings, cores
from deploykit.transforms.core.errors import PipelineError

_PARALLELISM = (
    "give either --tensorflow_session_parallelism, or --tensorflow_intra_op_parallelism and "
    "--tensorflow_inter_op_parallelism"
)
_UPSTREAM_NAME = "default"
_MIB = 1 << 20


def settings_of(base_dir: str | None, tuned: Tuned, flags: Mapping[str, Any]) -> ServerSettings:
    """Return what the flags say. Error: a file is not what it should be, or models are not."""
    given = {name: value for name, value in flags.items() if value is not None}
    direct = {field.name for field in fields(ServerSettings)}
    found = {name: value for name, value in given.items() if name in direct}
    found |= _models(base_dir, given)
    if not found.get("rest_api_port"):
        found["rest_api_port"] = None  # as TensorFlow Serving takes a 0
    if path := given.get("ssl_config_file"):
        found["tls"] = read_tls(Path(path))
    if path := given.get("monitoring_config_file"):
        found["monitoring"] = read_monitoring(Path(path))
    if given["enable_batching"]:
        path = given.get("batching_parameters_file")
        found["batching"] = read_batching(Path(path)) if path else Batching()
    elif given.get("batching_parameters_file"):
        raise click.UsageError("--batching_parameters_file goes with --enable_batching")
    found["max_message_bytes"] = given["max_message_mb"] * _MIB
    if "grpc_max_threads" in given:
        found["max_in_flight"] = min(found["max_in_flight"], given["grpc_max_threads"])
    found["loading"] = _loading(tuned, given)
    found.setdefault("slots", _slots(tuned, found["loading"]))
    _check(found, given)
    return ServerSettings(**found)


def _models(base_dir: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the models, of which there is one source."""
    path = given.get("model_base_path")
    file = given.get("model_config_file")
    if sum(each is not None for each in (base_dir, path, file)) != 1:
        raise click.UsageError("give one of BASE_DIR, --model_base_path and --model_config_file")
    if file is not None:
        return {"models": read_models(Path(file)), "model_config_file": Path(file)}
    name = given.get("model_name", "")
    if path is not None:
        # It may be empty as yet, as for TensorFlow Serving.
        from deploykit.serving.lifecycle.model_config import ModelSettings

        return {"models": (ModelSettings(name or _UPSTREAM_NAME, Path(path).absolute()),)}
    return {"models": models_in(Path(str(base_dir)), name)}


def _loading(tuned: Tuned, given: Mapping[str, Any]) -> Loading:
    """Return the threads of a session: what is given, else what was found best, else ours."""
    both = given.get("tensorflow_session_parallelism")
    intra = given.get("tensorflow_intra_op_parallelism")
    inter = given.get("tensorflow_inter_op_parallelism")
    if both is not None and (intra is not None or inter is not None):
        raise click.UsageError(_PARALLELISM)
    ours = Loading(allowed_ops=given["allowed_ops"])
    best = tuned.threads or (ours.intra_op, ours.inter_op)
    threads = [next(each for each in (one, both, found) if each is not None)
               for one, found in zip((intra, inter), best, strict=True)]  # fmt: skip
    return replace(ours, intra_op=threads[0], inter_op=threads[1])


def _slots(tuned: Tuned, loading: Loading) -> int:
    """Return how many calls compute at once, so that there are as many threads as cores."""
    if tuned.concurrency > 1:
        return tuned.concurrency
    return max(cores() // max(loading.intra_op, 1), 1)


def _check(found: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise UsageError for flags that contradict each other."""
    if found["workers"] > 1 and found.get("grpc_socket_path"):
        raise click.UsageError("--grpc_socket_path goes with one worker: a path is no port that "
                               "several can share")  # fmt: skip
    if given.get("use_alts_credentials"):
        raise click.UsageError("--use_alts_credentials works between machines of Google alone; use "
                               "--ssl_config_file")  # fmt: skip
    if found["rest_api_port"] and found["rest_api_port"] == found["port"]:
        raise click.UsageError("--rest_api_port and --port must differ")


def prepare_environment(tuned: Tuned, show_log: bool) -> None:
    """Set the variables that TensorFlow and gRPC read when they start; what the user set wins.

    Those of the C library it has read already: with them, the program is started once more.
    """
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "GRPC_VERBOSITY": "NONE"}
    ours = {"TF_ONEDNN_THREADPOOL_USE_CALLER_THREAD": "1"} | ({} if show_log else quiet)
    for name, value in ours.items():
        os.environ.setdefault(name, value)
    wanted = tuned.environment
    late = any(os.environ.get(name) != value for name, value in wanted.items()
               if name in KEEP_MEMORY)  # fmt: skip
    for name, changed in wanted.items():
        if changed is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = changed
    if late:
        try:
            os.execv(sys.executable, sys.orig_argv)
        except OSError as error:
            raise PipelineError(f"deploykit cannot start anew: {error}") from None
