"""What a server can be told, under the names of TensorFlow Serving's flags where that has them.

Nothing heavy is imported: the command line shows these defaults.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike

LOOPBACK = "127.0.0.1"
MOST_WORKERS = 256


@dataclass(frozen=True, kw_only=True)
class PlainFlags:
    """What a server takes as it stands."""

    model_config_file_poll_wait_seconds: float = 0
    """How often the file of models is read again; 0: never."""
    file_system_poll_wait_seconds: float = 1
    """How often to look for new versions; 0: once."""
    max_num_load_retries: int = 5
    load_retry_interval_micros: int = 60_000_000
    allow_version_labels_for_unavailable_models: bool = False
    host: str = LOOPBACK
    port: int = 8500
    """Of gRPC; 0: any that is free."""
    grpc_socket_path: str = ""
    """A Unix socket to listen on as well."""
    grpc_channel_arguments: str = ""
    """Arguments of gRPC's core, as `key=value,key=value`."""
    rest_api_timeout_in_ms: int = 30_000
    rest_plain: bool = False
    """REST is plain HTTP although `ssl_config_file` is given; without this, it is HTTPS."""
    rest_api_enable_cors_support: bool = False
    max_json_mb: int = 64
    """The largest body of a REST call, in MiB, unpacked: to read it may take twenty times as much
    memory. `max_message_mb` bounds it as well."""
    allow_reload: bool = False
    """Whether other machines may change what is served."""
    access_log: str = ""
    """A file, or - for standard output."""
    enable_model_warmup: bool = True
    num_request_iterations_for_warmup: int = 1
    enable_serialization_as_tensor_content: bool = False
    max_in_flight: int = 64
    """Calls that are let in, over gRPC and REST together."""
    max_queue_wait_ms: float = 0
    """The longest that a request may be expected to wait for a slot; more are refused at once.
    0: `max_in_flight` alone limits the queue."""
    lame_duck_seconds: float = 3
    """How long calls are answered as ever after SIGTERM, while health says that the server ends;
    longer while they come. 0: not at all."""
    drain_seconds: float = 30
    """How long the rest of the end may take: calls that still come, and those in flight."""
    workers: int = 1
    """Processes that listen on the same ports."""


@dataclass(frozen=True, kw_only=True)
class ServerFlags(PlainFlags):
    """What `deploykit serve` takes besides the folder of models and the settings of `tune`."""

    model_base_path: str | PathLike[str] | None = None
    """The folder of a model, which may be empty as yet."""
    model_name: str = ""
    """Default: `default` for a base path; that of its folder for the folder of one model."""
    model_config_file: str | PathLike[str] | None = None
    """Models with their policies and labels, as text (ModelServerConfig)."""
    rest_api_port: int | None = None
    """None or 0: no REST."""
    grpc_max_threads: int | None = None
    """Like `max_in_flight`; the smaller number holds."""
    slots: int | None = None
    """Calls that compute at once; default: cores by threads inside an op."""
    max_message_mb: int = 256
    """The largest request, in MiB."""
    ssl_config_file: str | PathLike[str] | None = None
    """Key and certificates as PEM text in a text file (SSLConfig)."""
    monitoring_config_file: str | PathLike[str] | None = None
    """A page for Prometheus on the port of REST (MonitoringConfig)."""
    enable_batching: bool | None = None
    """None: no, unless `tune` recommends a batch."""
    batching_parameters_file: str | PathLike[str] | None = None
    """How calls share a batch (BatchingParameters)."""
    tensorflow_intra_op_parallelism: int | None = None
    """Threads inside an op; 0: as TensorFlow likes; default: 1."""
    tensorflow_inter_op_parallelism: int | None = None
    """Ops at once; 0: as TensorFlow likes, but those of a quick call one by one; -1: one by one;
    default: 0."""
    tensorflow_session_parallelism: int | None = None
    """Both."""
    engine: str = "auto"
    """`tensorflow`, `openvino`, or `auto`: what a version was exported for, where that is installed
    and gives TensorFlow's answers on this machine, and TensorFlow otherwise."""
    allowed_ops: Sequence[str] = ()
    """Models with these ops are served although they act on files or processes."""
