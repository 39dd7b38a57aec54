"""The settings of a server as plain data, which worker processes receive."""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from deploykit.serving.execution.engines.engine import Loading
from deploykit.serving.lifecycle.model_config import ModelSettings, models_in, read_models
from deploykit.serving.protocol.protos import Batching, read_batching
from deploykit.serving.server.config_files import Monitoring, Tls, read_monitoring, read_tls
from deploykit.serving.server.server_flags import MAX_WORKERS, PlainFlags, ServerFlags
from deploykit.transforms.common.errors import Error
from deploykit.transforms.engines.engines import (
    AUTO,
    CHOICES,
    MAX_REQUESTS,
    MAX_THREADS,
    check_engine,
)
from deploykit.transforms.untrusted.files import check_socket_path

_MOST = {
    "slots": MAX_REQUESTS,
    "tensorflow_intra_op_parallelism": MAX_THREADS,
    "tensorflow_inter_op_parallelism": MAX_THREADS,
    "tensorflow_session_parallelism": MAX_THREADS,
    "workers": MAX_WORKERS,
}
_UPSTREAM_NAME = "default"
_MIB = 1 << 20

logger = logging.getLogger("deploykit")


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class ServerSettings(PlainFlags):
    """The settings of a server, with files and folders already read."""

    models: Sequence[ModelSettings]
    model_config_file: Path | None = None
    """The file that lists the models, to be read again."""
    tls: Tls | None = None
    max_message_bytes: int = ServerFlags.max_message_mb * _MIB
    rest_api_port: int | None = None
    """None: REST is disabled; 0: any free port."""
    monitoring: Monitoring = field(default_factory=Monitoring)
    loading: Loading = field(default_factory=Loading)
    batching: Batching | None = None
    slots: int = field(default_factory=cores)
    """Maximum number of requests that run concurrently, not counting those below a millisecond."""


def settings_of(
    base_dir: str | os.PathLike[str] | None, flags: ServerFlags, batch: int | None = None
) -> ServerSettings:
    """Return the settings for these options.

    Args:
        base_dir: the folder of a model or of models, if no option specifies them.
        flags: the options, which override the other arguments.
        batch: target batch size if the options set none; larger requests are split.

    Error: options contradict each other, or a value or file is invalid.
    """
    _check(flags)
    models, file = _models(base_dir, flags)
    loading = _loading(flags)
    slots = max(cores() // max(loading.intra_op, 1), 1)
    plain = {field_.name: getattr(flags, field_.name) for field_ in fields(PlainFlags)}
    if flags.rest_plain:
        logger.warning("--rest_plain: REST uses plain HTTP, and only gRPC uses TLS")
    plain["max_in_flight"] = min(filter(None, (flags.max_in_flight, flags.grpc_max_threads)))
    return ServerSettings(
        models,
        file,
        tls=read_tls(Path(flags.ssl_config_file)) if flags.ssl_config_file else None,
        max_message_bytes=flags.max_message_mb * _MIB,
        rest_api_port=flags.rest_api_port or None,  # TensorFlow Serving also treats 0 as disabled
        monitoring=read_monitoring(Path(flags.monitoring_config_file))
        if flags.monitoring_config_file
        else Monitoring(),
        loading=loading,
        batching=_batching(flags, batch),
        slots=flags.slots or slots,
        **plain,
    )


def _check(flags: ServerFlags) -> None:
    """Raise Error for options that contradict each other."""
    if flags.workers > 1 and flags.grpc_socket_path:
        raise Error("socket-path-one-worker")
    check_socket_path(flags.grpc_socket_path, " (--grpc_socket_path)")
    if flags.rest_api_port and flags.rest_api_port == flags.port:
        raise Error("ports-equal")
    if flags.rest_plain and not (flags.ssl_config_file and flags.rest_api_port):
        raise Error("rest-plain-needs-tls")
    for name, most in _MOST.items():
        if (value := getattr(flags, name)) is not None and value > most:
            raise Error("out-of-range", name=f"--{name}", expected=f"at most {most}", got=value)
    if flags.engine not in CHOICES:
        raise Error("not-one-of", what="the engine", known=CHOICES, got=flags.engine)
    if flags.engine != AUTO:
        check_engine(flags.engine)
    if flags.batching_parameters_file and not flags.enable_batching:
        raise Error("option-needs", option="--batching_parameters_file", needed="--enable_batching")


def _models(
    base_dir: str | os.PathLike[str] | None, flags: ServerFlags
) -> tuple[Sequence[ModelSettings], Path | None]:
    """Return the models, from exactly one source, and the file that lists them, if any."""
    path, file = flags.model_base_path, flags.model_config_file
    if base_dir is not None and path is None and file is None:
        return models_in(Path(base_dir), flags.model_name), None
    if base_dir is None and path is not None and file is None:
        name = flags.model_name or _UPSTREAM_NAME
        return (ModelSettings(name, Path(path).absolute()),), None
    if base_dir is None and path is None and file is not None:
        return read_models(Path(file)), Path(file)
    raise Error("give-one", options=["BASE_DIR", "--model_base_path", "--model_config_file"])


def _batching(flags: ServerFlags, batch: int | None) -> Batching | None:
    if flags.enable_batching is None and batch is not None:
        return Batching(
            max_batch_size=max(batch, Batching.max_batch_size),
            enable_large_batch_splitting=True,
            max_execution_batch_size=batch,
        )
    if not flags.enable_batching:
        return None
    path = flags.batching_parameters_file
    return read_batching(Path(path)) if path else Batching()


def _loading(flags: ServerFlags) -> Loading:
    """Return the threading options of a session, with deploykit's defaults."""
    both = flags.tensorflow_session_parallelism
    intra, inter = flags.tensorflow_intra_op_parallelism, flags.tensorflow_inter_op_parallelism
    if both is not None and (intra is not None or inter is not None):
        raise Error("parallelism-options")
    ours = Loading(allow_ops=tuple(flags.allow_ops), engine=flags.engine)
    threads = [next(item for item in (one, both, usual) if item is not None)
               for one, usual in ((intra, ours.intra_op), (inter, ours.inter_op))]  # fmt: skip
    return replace(ours, intra_op=threads[0], inter_op=threads[1])
