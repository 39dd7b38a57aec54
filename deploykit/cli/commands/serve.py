"""Serve models over the API of TensorFlow Serving."""

import os
import sys
from typing import Any

import click

from deploykit.cli import options
from deploykit.cli.options.serving_flags import Flags, switch
from deploykit.cli.options.types import Finite, PathName, TextOutput, Whole
from deploykit.serving.server.server_flags import MOST_WORKERS, ServerFlags
from deploykit.transforms.core.engines.engines import CHOICES, MOST_REQUESTS, MOST_THREADS

_PORT = Whole(0, 65535)
_COUNT = Whole(1)
_THREADS = Whole(-1, MOST_THREADS)


def _impossible(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        raise click.UsageError("--use_alts_credentials works between machines of Google alone; use "
                               "--ssl_config_file")  # fmt: skip


_models = options.under("Models")
_network = options.under("Network")
_load = options.under("Threads and load")
_batching = options.under("Batching")
_warmup = options.under("Warm-up")
_watching = options.under("Monitoring")


@click.command(
    cls=Flags,
    defaults=ServerFlags,
    examples=(
        "deploykit serve served --rest_api_port=8501",
        "deploykit serve --model_base_path=$PWD/served/fashion --model_name=fashion",
    ),
)
@click.argument("base_dir", type=PathName(), required=False)
@_models("--model_base_path", type=PathName("DIR"), help="Folder of one model; its versions are "
         "folders with numbers as names.")  # fmt: skip
@_models("--model_name", metavar="NAME", help="Name of the model [default: `default`; with "
         "BASE_DIR, the name of its folder].")  # fmt: skip
@_models("--model_config_file", type=PathName("FILE"), help="Several models with their version "
         "policies and labels, as text (ModelServerConfig).")  # fmt: skip
@_models("--model_config_file_poll_wait_seconds", type=Finite(0), metavar="SECONDS",
         help="How often this file is read again; 0: never.")  # fmt: skip
@_models("--file_system_poll_wait_seconds", type=Finite(-1), metavar="SECONDS",
         help="How often to look for new versions; 0: only at the start.")  # fmt: skip
@_models("--max_num_load_retries", type=Whole(0), metavar="N",
         help="How often to try again to load a version that failed.")  # fmt: skip
@_models("--load_retry_interval_micros", type=int, metavar="N",
         help="Microseconds between these tries.")  # fmt: skip
@switch("allow_version_labels_for_unavailable_models", "Take labels of versions that are not "
        "there yet.", "Models")  # fmt: skip
@_network("--host", help="Address to listen on; 0.0.0.0: all interfaces, so that other "
          "machines can connect.")  # fmt: skip
@_network("--port", type=_PORT, help="Port for gRPC; 0: any free one.")
@_network("--rest_api_port", type=_PORT, metavar="PORT", help="Port for REST; 0: no REST, as in "
          "TensorFlow Serving [default: no REST].")  # fmt: skip
@_network("--rest_api_timeout_in_ms", type=_COUNT, metavar="MS",
          help="How long a REST call may take.")  # fmt: skip
@switch("rest_api_enable_cors_support", "Let pages of other sites call REST.", "Network")
@_network("--grpc_socket_path", type=PathName("PATH"), help="Also listen on this "
          "Unix socket.")  # fmt: skip
@_network("--grpc_channel_arguments", metavar="KEY=VALUE,...",
          help="Settings of gRPC's core, such as grpc.max_connection_age_ms=2000.")  # fmt: skip
@_load("--grpc_max_threads", type=_COUNT, metavar="N", help="Threads that answer gRPC; limits "
       "calls as --max_in_flight does.")  # fmt: skip
@_load("--max_in_flight", type=_COUNT, metavar="N",
       help="Calls that each worker accepts at the same time; more are refused at once "
       "(RESOURCE_EXHAUSTED).")  # fmt: skip
@_load("--max_queue_wait_ms", type=Finite(0), metavar="MS",
       help="Refuse a request at once (RESOURCE_EXHAUSTED) if it would wait longer for a slot, "
       "estimated from recent requests. One request may always wait. 0: only "
       "--max_in_flight limits the queue.")  # fmt: skip
@_load("--slots", type=Whole(1, MOST_REQUESTS), metavar="N", help="Calls that compute at the "
       "same time [default: cores divided by threads inside an op].")  # fmt: skip
@_network("--max_message_mb", type=Whole(1, 2047), metavar="MIB", help="Largest request, up "
          "to 2047; larger ones are refused without being read.")  # fmt: skip
@_network("--max_json_mb", type=Whole(1, 2047), metavar="MIB", help="Largest body of a REST call, "
          "unpacked; reading one takes up to twenty times its size.")  # fmt: skip
@_network("--ssl_config_file", type=PathName("FILE"), help="Key and certificates as PEM text in a "
          "text file (SSLConfig), for gRPC and REST; with client_verify, clients must show "
          "theirs.")  # fmt: skip
@switch("rest_plain", "With --ssl_config_file, keep REST plain HTTP, without TLS and without "
        "client_verify.", "Network")  # fmt: skip
@switch("allow_reload", "Let other machines change what is served.", "Network")
@_watching("--access_log", type=TextOutput("FILE"), help="Append a line of JSON for each call to "
           "this file; - is standard output.")  # fmt: skip
@_watching("--monitoring_config_file", type=PathName("FILE"),
           help="Serve a page for Prometheus on the REST port (MonitoringConfig).")  # fmt: skip
@switch("enable_batching", "Let calls share a batch [default: no, unless --tuned "
        "recommends a batch].", "Batching")  # fmt: skip
@_batching("--batching_parameters_file", type=PathName("FILE"),
           help="How calls share a batch (BatchingParameters).")  # fmt: skip
@switch("enable_model_warmup", "Replay a version's warm-up requests before it serves.", "Warm-up")
@_warmup("--num_request_iterations_for_warmup", type=_COUNT, metavar="N",
         help="How often each warm-up request is run.")  # fmt: skip
@switch("enable_serialization_as_tensor_content", "Answer tensors as bytes, which only some "
        "clients read.", "Network")  # fmt: skip
@_load("--tensorflow_intra_op_parallelism", type=_THREADS, metavar="N",
       help="Threads inside an op; 0: TensorFlow decides [default: 1].")  # fmt: skip
@_load("--tensorflow_inter_op_parallelism", type=_THREADS, metavar="N", help="Ops at the same "
       "time; 0: TensorFlow decides, but ops of quick calls run one by one; -1: one by one "
       "[default: 0].")  # fmt: skip
@_load("--tensorflow_session_parallelism", type=_THREADS, metavar="N",
       help="Sets both of these.")  # fmt: skip
@_load("--tuned", type=PathName("FILE"), help="Take threads, calls at the same time, batches and "
       "environment from what deploykit tune found; flags and variables that are set "
       "win.")  # fmt: skip
@_load("--workers", type=Whole(1, MOST_WORKERS), metavar="N",
       help="Processes that share the port, up to 256; worth it for very small "
       "models.")  # fmt: skip
@_load("--lame_duck_seconds", type=Finite(0), metavar="SECONDS",
       help="After SIGTERM, how long calls are still answered as ever, while health says "
       "NOT_SERVING, so that callers go elsewhere; 0: not at all.")  # fmt: skip
@_load("--drain_seconds", type=Finite(0), metavar="SECONDS",
       help="After that, how long calls may take to finish.")  # fmt: skip
@_models("--engine", type=click.Choice(CHOICES), help="What computes. auto: what a version was "
         "exported for, where it is installed and gives TensorFlow's answers on this machine; "
         "TensorFlow otherwise.")  # fmt: skip
@_models("--allow-op", "allowed_ops", metavar="OP", multiple=True, help="Serve models with this op "
         "although it reads or writes files or starts processes; may be repeated.")  # fmt: skip
@switch("use_alts_credentials", "Not possible here; use --ssl_config_file.", "Network",
        callback=_impossible, expose_value=False, default=False, show_default=True)  # fmt: skip
@options.everywhere
def serve(base_dir: str | None, tuned: str | None, as_json: bool, **flags: Any) -> None:
    """Serve models over TensorFlow Serving's gRPC and REST API.

    BASE_DIR holds the versions of one model (folders with numbers as names), or several such
    models. Or it is what deploykit ship wrote: then its model is served under its name, with the
    settings that deploykit tune found for it; flags and --tuned win.

    The flags are those of TensorFlow Serving and some more, written as --flag=value, --flag value,
    --switch or --noswitch. A flag of TensorFlow Serving that has no effect here gives a warning.

    With several workers, each looks for new versions itself: until all have seen one, some answer
    with the old version and others with the new one. Each counts its own calls on the page for
    Prometheus. They take no reload over gRPC; change the file of --model_config_file instead.

    After SIGTERM, health says NOT_SERVING and calls are answered for --lame_duck_seconds, or up to
    twice that time while they come. Then new calls are refused (UNAVAILABLE, 503), and the server
    stops when all running ones are answered. Ctrl-C leaves out the first part; a second signal
    stops the server at once.
    """
    from deploykit.api.shipped import tuned_of
    from deploykit.cli.report import Report, show
    from deploykit.cli.serve_environment import prepare_environment
    from deploykit.transforms.core.running.child import limits

    prepare_environment(tuned_of(base_dir, tuned), limits.show_log)
    import deploykit
    from deploykit.serving.server.process import own_process
    from deploykit.text.server_start import lines

    own_process()
    try:
        with deploykit.serve(base_dir, tuned=tuned, **flags) as server:
            report = Report("serve", more=server.document())
            show(report, as_json, text=lines(report.more))
            sys.stdout.flush()
            server.wait()
    except KeyboardInterrupt:  # before it listened
        pass
    sys.stdout.flush()
    os._exit(0)  # a call that was cut off may compute for long yet
