"""What a server is told; where TensorFlow Serving has a flag for it, under the flag's name."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deploykit.serving.execution.servable import Loading
from deploykit.serving.lifecycle.model_config import ModelSettings
from deploykit.serving.protocol.batching_parameters import Batching
from deploykit.serving.server.config_files import Monitoring, Tls

LOOPBACK = "127.0.0.1"
MAX_MESSAGE = 256 << 20


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class ServerSettings:
    """All of it, as plain data: it goes to the processes of workers."""

    models: Sequence[ModelSettings]
    model_config_file: Path | None = None
    """Where the models were read, to read it again."""
    model_config_file_poll_wait_seconds: float = 0.0
    file_system_poll_wait_seconds: float = 1.0
    max_num_load_retries: int = 5
    load_retry_interval_micros: int = 60_000_000
    allow_version_labels_for_unavailable_models: bool = False

    host: str = LOOPBACK
    port: int = 8500
    """0: any that is free."""
    grpc_socket_path: str = ""
    grpc_channel_arguments: Sequence[tuple[str, str | int]] = ()
    tls: Tls | None = None
    max_message_bytes: int = MAX_MESSAGE
    rest_api_port: int | None = None
    """None: no REST."""
    rest_api_timeout_in_ms: int = 30_000
    rest_api_enable_cors_support: bool = False
    monitoring: Monitoring = field(default_factory=Monitoring)
    allow_reload: bool = False
    """Whether other machines may change what is served."""
    access_log: str = ""
    """A file, or - for standard output."""

    loading: Loading = field(default_factory=Loading)
    enable_model_warmup: bool = True
    num_request_iterations_for_warmup: int = 1
    batching: Batching | None = None
    enable_serialization_as_tensor_content: bool = False
    max_in_flight: int = 64
    """Calls that are let in, over gRPC and REST together."""
    slots: int = field(default_factory=cores)
    """Calls that compute at once, not counting those of less than a millisecond."""
    drain_seconds: float = 30.0
    workers: int = 1
    """Processes that listen on the same ports."""
