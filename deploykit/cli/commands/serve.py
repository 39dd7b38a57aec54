"""Serve models over the API of TensorFlow Serving."""

import os
import sys
from typing import Any

import click

from deploykit.benchmarking.settings import Settings as Tuned
from deploykit.cli import options
from deploykit.cli.options.serving_flags import Flags, switch
from deploykit.cli.options.types import Finite, PathName
from deploykit.serving.server.server_flags import ServerFlags

_PORT = click.IntRange(0, 65535)
_COUNT = click.IntRange(min=1)
_THREADS = click.IntRange(-1, 4096)


def _impossible(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        raise click.UsageError("--use_alts_credentials works between machines of Google alone; use "
                               "--ssl_config_file")  # fmt: skip


@click.command(cls=Flags, defaults=ServerFlags)
@click.argument("base_dir", type=PathName(), required=False)
@click.option("--model_base_path", type=PathName("DIR"), help="A model, whose versions are "
              "folders with numbers for names.")  # fmt: skip
@click.option("--model_name", metavar="NAME", help="Its name [default: default; that of BASE_DIR "
              "is its folder's].")  # fmt: skip
@click.option("--model_config_file", type=PathName("FILE"), help="Models with their policies and "
              "labels, as text (ModelServerConfig).")  # fmt: skip
@click.option("--model_config_file_poll_wait_seconds", type=Finite(min=0), metavar="SECONDS",
              help="How often to read it again; 0: never.")  # fmt: skip
@click.option("--file_system_poll_wait_seconds", type=Finite(min=-1), metavar="SECONDS",
              help="How often to look for new versions; 0: once.")  # fmt: skip
@click.option("--max_num_load_retries", type=click.IntRange(min=0),
              metavar="N", help="How often loading a version is tried again.")  # fmt: skip
@click.option("--load_retry_interval_micros", type=int,
              metavar="N", help="How long to wait before that.")  # fmt: skip
@switch("allow_version_labels_for_unavailable_models", "Take labels of versions that are "
        "not there yet.")  # fmt: skip
@click.option("--host", help="Where to listen; 0.0.0.0: on "
              "all interfaces, for other machines to connect.")  # fmt: skip
@click.option("--port", type=_PORT, help="Port of gRPC; 0: one "
              "that is free.")  # fmt: skip
@click.option("--rest_api_port", type=_PORT, metavar="PORT", help="Port of REST; 0: none, as for "
              "TensorFlow Serving [default: none].")  # fmt: skip
@click.option("--rest_api_timeout_in_ms", type=_COUNT,
              metavar="MS", help="How long a call of REST may take.")  # fmt: skip
@switch("rest_api_enable_cors_support", "Let pages of other sites call REST.")
@click.option("--grpc_socket_path", metavar="PATH", help="A Unix socket to listen on as well.")
@click.option(
    "--grpc_channel_arguments",
    metavar="KEY=VALUE,...",
    help="Arguments of gRPC's core, such as grpc.max_connection_age_ms=2000.",
)
@click.option("--grpc_max_threads", type=_COUNT, metavar="N", help="Threads that answer gRPC; like "
              "--max_in_flight.")  # fmt: skip
@click.option("--max_in_flight", type=_COUNT, metavar="N",
              help="Calls that each worker lets in; more are refused at once "
              "(RESOURCE_EXHAUSTED).")  # fmt: skip
@click.option("--slots", type=_COUNT, metavar="N", help="Calls that compute at once [default: "
              "cores by threads inside an op].")  # fmt: skip
@click.option("--max_message_mb", type=click.IntRange(1, 2047),
              metavar="MIB", help="Largest request; larger ones are refused unread.")  # fmt: skip
@click.option("--ssl_config_file", type=PathName("FILE"), help="Key and certificates as "
              "PEM text in a text file (SSLConfig); client_verify asks clients for "
              "theirs.")  # fmt: skip
@switch("allow_reload", "Let other machines change what is served.")
@click.option("--access_log", metavar="FILE", help="Add a line of JSON for each call; - is "
              "standard output.")  # fmt: skip
@click.option("--monitoring_config_file", type=PathName("FILE"), help="Page for Prometheus "
              "on the port of REST (MonitoringConfig).")  # fmt: skip
@switch("enable_batching", "Let calls share a batch.")
@click.option("--batching_parameters_file", type=PathName("FILE"), help="How (BatchingParameters).")
@switch("enable_model_warmup", "Replay a version's warm-up requests before it serves.")
@click.option("--num_request_iterations_for_warmup", type=_COUNT,
              metavar="N", help="How often.")  # fmt: skip
@switch("enable_serialization_as_tensor_content", "Answer tensors as bytes, which only some "
        "clients read.")  # fmt: skip
@click.option("--tensorflow_intra_op_parallelism", type=_THREADS, metavar="N", help="Threads "
              "inside an op; 0: as TensorFlow likes [default: 1].")  # fmt: skip
@click.option("--tensorflow_inter_op_parallelism", type=_THREADS, metavar="N", help="Ops at once; "
              "0: as TensorFlow likes, but those of a quick call one by one; -1: one by one "
              "[default: 0].")  # fmt: skip
@click.option("--tensorflow_session_parallelism", type=_THREADS, metavar="N", help="Both.")
@click.option("--tuned", type=PathName("FILE"), callback=options.tuned, help="Threads, calls at "
              "once and environment that deploykit tune found; flags win.")  # fmt: skip
@click.option("--workers", type=click.IntRange(1, 256), metavar="N",
              help="Processes that share the port; tiny models gain.")  # fmt: skip
@click.option(
    "--drain_seconds",
    type=Finite(min=0),
    metavar="SECONDS",
    help="How long calls in flight may take after SIGTERM.",
)
@click.option("--allow-op", "allowed_ops", metavar="OP", multiple=True, help="Serve models with "
              "this op although it acts on files or processes; may be repeated.")  # fmt: skip
@switch("use_alts_credentials", "Not possible here; use --ssl_config_file.",
        callback=_impossible, expose_value=False, default=False, show_default=True)  # fmt: skip
@options.everywhere
def serve(base_dir: str | None, tuned: Tuned, as_json: bool, **flags: Any) -> None:
    """Serve models over the API of TensorFlow Serving, gRPC and REST.

    BASE_DIR holds the versions of one model (folders with numbers for names), or models that do.
    The flags are those of TensorFlow Serving, and some more; --flag=value, --flag value, --switch
    and --noswitch are understood. A flag of TensorFlow Serving that has no effect here says so.

    Each of several workers looks for new versions itself: for about as long as a poll takes, some
    answer with the old version and others with the new one. Each counts its own calls on the page
    for Prometheus, and none takes a reload over gRPC: change the file of --model_config_file.

    SIGTERM or Ctrl-C ends it once all calls in flight are answered; a second one ends it at once.
    """
    from deploykit.cli.report import Report, show
    from deploykit.cli.serve_environment import prepare_environment
    from deploykit.transforms.core.running.child import limits

    prepare_environment(tuned, limits.show_log)
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
