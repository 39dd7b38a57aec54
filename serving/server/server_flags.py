"""The options of a server, with the names of TensorFlow Serving's flags where they exist.

It imports nothing large, because the command line shows these defaults.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from deploykit.transforms.common.flag import Flag
from deploykit.transforms.engines.engines import MAX_REQUESTS, MAX_THREADS

LOOPBACK = "127.0.0.1"
MAX_WORKERS = 256


@dataclass(frozen=True, kw_only=True)
class PlainFlags:
    """Options that a server uses unchanged."""

    KEEPS_UNDERSCORES: ClassVar = True
    HEADING: ClassVar = "Network"

    model_config_file_poll_wait_seconds: Annotated[
        float, Flag(metavar="SECONDS", at_least=0, heading="Models")
    ] = 0
    """Interval at which the file of `model_config_file` is read again; 0: never."""
    file_system_poll_wait_seconds: Annotated[
        float, Flag(metavar="SECONDS", at_least=-1, heading="Models")
    ] = 1
    """Interval at which to look for new versions; 0: only at the start."""
    max_num_load_retries: Annotated[int, Flag(at_least=0, heading="Models")] = 5
    """Number of retries after a version fails to load."""
    load_retry_interval_micros: Annotated[int, Flag(metavar="N", at_least=0, heading="Models")] = (
        60_000_000
    )
    """Microseconds between two attempts to load a version."""
    allow_version_labels_for_unavailable_models: Annotated[
        bool, Flag(format="true or false", heading="Models")
    ] = False
    """Accept labels of versions that are not available yet."""
    host: str = LOOPBACK
    """Address to listen on; 0.0.0.0: all interfaces, so that other machines can connect."""
    port: Annotated[int, Flag(at_least=0, at_most=65535)] = 8500
    """Port for gRPC; 0: any free one."""
    grpc_socket_path: Annotated[str, Flag(format="path", metavar="PATH")] = ""
    """Also listen on this Unix socket."""
    grpc_channel_arguments: Annotated[str, Flag(metavar="KEY=VALUE,...")] = ""
    """Channel arguments of gRPC, such as grpc.max_connection_age_ms=2000."""
    rest_api_timeout_in_ms: Annotated[int, Flag(metavar="MS")] = 30_000
    """Time limit of a REST request."""
    rest_plain: Annotated[bool, Flag(format="true or false")] = False
    """With `ssl_config_file`, keep REST plain HTTP, without TLS and without client_verify."""
    rest_api_enable_cors_support: Annotated[bool, Flag(format="true or false")] = False
    """Allow web pages of other sites to call the REST API (CORS)."""
    max_json_mb: Annotated[int, Flag(metavar="MIB", at_most=2047)] = 64
    """Largest body of a REST request, decompressed; parsing needs up to twenty times its size in
    memory."""
    allow_reload: Annotated[bool, Flag(format="true or false")] = False
    """Allow other machines to change the served models."""
    access_log: Annotated[str, Flag(format="log", heading="Monitoring")] = ""
    """Append a line of JSON for each request to this file; - is standard output."""
    enable_model_warmup: Annotated[bool, Flag(format="true or false", heading="Warm-up")] = True
    """Replay a version's warm-up requests before it serves."""
    num_request_iterations_for_warmup: Annotated[int, Flag(heading="Warm-up")] = 1
    """Number of runs of each warm-up request."""
    enable_serialization_as_tensor_content: Annotated[bool, Flag(format="true or false")] = False
    """Return tensors as bytes, which only some clients can read."""
    max_in_flight: Annotated[int, Flag(heading="Threads and load")] = 64
    """Concurrent requests that each worker accepts; more are refused at once
    (RESOURCE_EXHAUSTED)."""
    max_queue_wait_ms: Annotated[
        float, Flag(metavar="MS", at_least=0, heading="Threads and load")
    ] = 0
    """Refuse a request at once (RESOURCE_EXHAUSTED) if it would wait longer for a slot, estimated
    from recent requests. One request may always wait. 0: only `max_in_flight` limits the queue."""
    lame_duck_seconds: Annotated[
        float, Flag(metavar="SECONDS", at_least=0, heading="Threads and load")
    ] = 3
    """After SIGTERM, how long requests are still answered while the health check reports
    NOT_SERVING, so that clients switch to other servers; 0: not at all."""
    drain_seconds: Annotated[
        float, Flag(metavar="SECONDS", at_least=0, heading="Threads and load")
    ] = 30
    """After `lame_duck_seconds`, how long running requests may take to finish."""
    workers: Annotated[int, Flag(at_most=MAX_WORKERS, heading="Threads and load")] = 1
    """Processes that share the port, up to 256; only worthwhile for very small models."""
    memory_limit: Annotated[
        int | None, Flag("--memory-limit", metavar="MIB", at_least=1, heading="Threads and load")
    ] = None
    """Do not serve a version that would need more memory than this, with all that is loaded;
    `workers` share it [default: 70 % of the available memory]."""


@dataclass(frozen=True, kw_only=True)
class ServerFlags(PlainFlags):
    """The options of `deploykit serve` besides the folder of models and the settings of `tune`."""

    HEADING: ClassVar = "Models"

    model_base_path: Annotated[str | os.PathLike[str] | None, Flag(metavar="DIR")] = None
    """Folder of one model; its versions are folders with numbers as names."""
    model_name: Annotated[str, Flag(metavar="NAME")] = ""
    """Name of the model [default: `default`; with BASE_DIR, the name of its folder]."""
    model_config_file: Annotated[str | os.PathLike[str] | None, Flag()] = None
    """Several models with their version policies and labels, as text (ModelServerConfig)."""
    rest_api_port: Annotated[
        int | None, Flag(metavar="PORT", at_least=0, at_most=65535, heading="Network")
    ] = None
    """Port for REST; 0: no REST, as in TensorFlow Serving [default: no REST]."""
    grpc_max_threads: Annotated[int | None, Flag(heading="Threads and load")] = None
    """Another name for `max_in_flight`; the smaller one applies."""
    slots: Annotated[int | None, Flag(at_most=MAX_REQUESTS, heading="Threads and load")] = None
    """Requests that run at the same time [default: cores divided by threads per op]."""
    max_message_mb: Annotated[int, Flag(metavar="MIB", at_most=2047, heading="Network")] = 256
    """Largest request, up to 2047; larger ones are refused without being read."""
    ssl_config_file: Annotated[str | os.PathLike[str] | None, Flag(heading="Network")] = None
    """Key and certificates as PEM text in a text file (SSLConfig), for gRPC and REST; with
    client_verify, clients must present a certificate."""
    monitoring_config_file: Annotated[str | os.PathLike[str] | None, Flag(heading="Monitoring")] = (
        None
    )
    """Serve a page for Prometheus on the REST port (MonitoringConfig)."""
    enable_batching: Annotated[bool | None, Flag(format="true or false", heading="Batching")] = None
    """Batch concurrent requests [default: False, unless `tuned` recommends a batch]."""
    batching_parameters_file: Annotated[str | os.PathLike[str] | None, Flag(heading="Batching")] = (
        None
    )
    """Batching settings (BatchingParameters)."""
    tensorflow_intra_op_parallelism: Annotated[
        int | None, Flag(at_least=-1, at_most=MAX_THREADS, heading="Threads and load")
    ] = None
    """Threads per op; 0: TensorFlow decides [default: 1]."""
    tensorflow_inter_op_parallelism: Annotated[
        int | None, Flag(at_least=-1, at_most=MAX_THREADS, heading="Threads and load")
    ] = None
    """Concurrent ops per request; 0: TensorFlow decides, but short requests run one op at a time;
    -1: always one op at a time [default: 0]."""
    tensorflow_session_parallelism: Annotated[
        int | None, Flag(at_least=-1, at_most=MAX_THREADS, heading="Threads and load")
    ] = None
    """Set `tensorflow_intra_op_parallelism` and `tensorflow_inter_op_parallelism`."""
    engine: Literal["auto", "tensorflow", "openvino"] = "auto"
    """Execution engine. auto: the one that a version was exported for, if it is installed and
    matches TensorFlow on this machine, else TensorFlow."""
    allow_ops: Annotated[
        Sequence[str], Flag("--allow-op", formerly="allowed_ops", metavar="OP")
    ] = ()
    """Serve models with this op, which acts on files, the network or processes; may be repeated."""
