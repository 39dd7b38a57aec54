"""Output of the commands for model servers."""

import logging
import os
import sys
from typing import Annotated

import click

from deploykit.cli.call import Invocation
from deploykit.cli.presenters.measuring import PLOT
from deploykit.exporting.manifests import ManifestKind
from deploykit.transforms.common.documents import document
from deploykit.transforms.common.errors import Error
from deploykit.transforms.common.flag import Flag

logger = logging.getLogger("deploykit")


_ELSEWHERE = "Deployment files"


def export(
    call: Invocation,
    *,
    manifests: Annotated[tuple[ManifestKind, ...], Flag(format="kinds", heading=_ELSEWHERE)] = (),
    batching: Annotated[bool, Flag(heading=_ELSEWHERE)] = False,
    tuned: Annotated[str | None, Flag(format="path", heading=_ELSEWHERE)] = None,
    force: Annotated[bool, Flag(heading="Output")] = False,
) -> None:
    """Print the version that was written.

    Args:
        manifests: Also write files to BASE_DIR that serve all its models: config (models.config,
            monitoring.config, a template of ssl.config), docker (Dockerfiles for TensorFlow Serving
            and for deploykit serve, the latter without TensorFlow if OpenVINO runs all models, and
            compose.yaml), kubernetes (Deployment, Service, HorizontalPodAutoscaler,
            PodDisruptionBudget), kserve (InferenceService, ServingRuntime), or all; separated by
            commas.
        batching: Also write batching.config, and enable batching in the other files.
        tuned: Put the threads, batch size and environment from this deploykit tune file into
            these files; a batch size above 1 enables batching.
        force: Replace existing files in BASE_DIR, but never a version.
    """
    from deploykit.benchmarking.results import load_tuned
    from deploykit.benchmarking.run_config import RunConfig
    from deploykit.exporting.deployment import Manifests

    settings = RunConfig() if tuned is None else load_tuned(tuned)
    value = call.result(
        manifests=Manifests(manifests, batching, settings, force, tuned or "tuned", tuned)
    )
    call.report.output_file, call.report.bytes_out = str(value.folder), value.bytes
    call.show(value)


def serve(
    call: Invocation,
    *,
    use_alts_credentials: Annotated[
        bool, Flag("--use_alts_credentials", format="true or false", heading="Network")
    ] = False,
) -> None:
    """Serve until a signal arrives; the environment is set before TensorFlow starts.

    Args:
        use_alts_credentials: Not supported; use --ssl_config_file.
    """
    if use_alts_credentials:
        raise click.UsageError("--use_alts_credentials only works between Google's machines; use "
                               "--ssl_config_file")  # fmt: skip
    from deploykit.api.shipped import tuned_of
    from deploykit.cli.serving_flags import prepare_environment
    from deploykit.transforms.runtime.child_process import limits

    prepare_environment(tuned_of(call.values["base_dir"], call.values["tuned"]), limits.show_log)
    from deploykit.serving.server.process import own_process

    own_process()
    try:
        with call.result() as server:
            call.report.input_file = None
            call.show(server)
            sys.stdout.flush()
            server.wait()
    except KeyboardInterrupt:  # before the server listened
        pass
    sys.stdout.flush()
    os._exit(0)  # an aborted request may still run for long


def predict(
    call: Invocation,
    *,
    given: Annotated[
        tuple[str, ...], Flag("--input", format="named values", metavar="[NAME=]VALUE")
    ] = (),
) -> None:
    """Print the outputs.

    Args:
        given: Input value, such as 2.5 or [1, 2], plain text or any file for a string input, a .npy
            file, an image, or a .npz file of all inputs by name. May be repeated. NAME is optional
            if the model has one input, and is not written before a .npz file.
    """
    call.values["inputs"] = (*call.values["inputs"], *given)
    if not call.values["inputs"]:
        raise Error("input-not-given")
    value = call.result()
    call.report.input_file = None
    call.report.inputs, call.report.outputs = tuple(value.inputs), tuple(value.outputs)
    call.show(value)


def status(call: Invocation) -> None:
    """Print whether the server is ready, or the versions of a model."""
    from deploykit.transforms.common.errors import VerificationError

    value = call.result()
    if value.problem:
        call.report.error = VerificationError("server-not-serving", reason=value.problem)
    call.show(value)


def load_test(call: Invocation, *, plot_file: Annotated[str | None, PLOT] = None) -> None:
    """Print latency and throughput of each load.

    Args:
        plot_file: Plot latency over throughput.
    """
    from deploykit.reporting.charts.plots import check_plot, plot_loads
    from deploykit.storage.files import write

    if plot_file is not None:
        check_plot(plot_file)
    value = call.result()
    if plot_file is not None:
        write(plot_file, [plot_loads(document(value), plot_file)], call.values["force"])
    if value.takes is not None:
        call.report.inputs = tuple(value.takes.inputs)
        call.report.outputs = tuple(value.takes.outputs)
    call.show(value)
