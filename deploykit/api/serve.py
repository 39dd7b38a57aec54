"""serve: a model server with TensorFlow Serving's API."""

import logging
import os
from dataclasses import replace
from typing import Annotated

from deploykit.api.public import Command, public
from deploykit.api.shipped import check_served_models, shipped_in
from deploykit.benchmarking.run_config import RunConfig
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.server import process, workers
from deploykit.serving.server.memory_limit import default_limit
from deploykit.serving.server.process import RunningServer
from deploykit.serving.server.server_flags import ServerFlags
from deploykit.serving.server.settings import settings_of
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.common.flag import Flag

logger = logging.getLogger("deploykit")

DEFAULT = ServerFlags()


@public(Command(requires=(), has_limits=False, writes_result=False))
def serve(
    base_dir: str | os.PathLike[str] | None = None,
    flags: ServerFlags = DEFAULT,
    *,
    tuned: Annotated[
        str | os.PathLike[str] | RunConfig | None, Flag(heading="Threads and load")
    ] = None,
) -> RunningServer:
    """Serve models over TensorFlow Serving's gRPC and REST API.

    BASE_DIR contains the versions of one model (folders with numbers as names), or several such
    models. It may also be a folder written by deploykit ship. Then its model is served under its
    name, with the settings from deploykit tune. Flags and `tuned` override these settings.

    The flags are those of TensorFlow Serving and some more, written as --flag=value, --flag value,
    --switch or --noswitch. A TensorFlow Serving flag that has no effect here logs a warning.

    With several workers, each loads new versions by itself. Until all have done so, some still
    serve the old version. Each worker counts its own requests for Prometheus. Reload over gRPC is
    not available. Change the file of `model_config_file` instead, and set
    `model_config_file_poll_wait_seconds`.

    After SIGTERM, the health check reports NOT_SERVING. The server still accepts requests for
    `lame_duck_seconds`, or up to twice as long if more arrive. Then it rejects new requests
    (UNAVAILABLE, 503), and stops once all running ones have finished. Ctrl-C skips the first phase;
    a second signal stops the server at once.

    Args:
        base_dir: a folder with the versions of one model (folders with numbers as names), with
            several such models, or written by `deploykit ship`. Default: `model_base_path` or
            `model_config_file`.
        flags: the flags of TensorFlow Serving, and some more.
        tuned: Use the threads, concurrency, batching and environment from this deploykit tune file.
            Flags and environment variables that are set override them.

    Error: flags contradict each other. FileError: a file or folder cannot be read, or a port is in
    use. GraphError: no model was found, or the list of models is invalid. The server retries to
    load a version that fails.

    Commands:
        deploykit serve served --rest_api_port=8501
        deploykit serve --model_base_path=$PWD/served/fashion --model_name=fashion

    Example:
        >>> with deploykit.serve("models", port=0) as server:
        ...     found = deploykit.predict(server.address, "half_plus_two", {"x": [[2.0]]})
        >>> found.outputs["y"].tolist()
        [[3.0]]
    """
    name, batch = "tuned", None
    shipped, warning = shipped_in(base_dir)
    if warning:
        logger.warning("%s", warning)
    if shipped is not None:
        base_dir = shipped.model
        flags = replace(flags, model_name=flags.model_name or shipped.name)
        shipped.say(tuned is None)
        if tuned is None and shipped.tuned.settings is not None:
            name, tuned = str(shipped.report.tuned), shipped.tuned.settings
    file = None if tuned is None or isinstance(tuned, RunConfig) else os.fspath(tuned)
    if tuned is not None:
        # Most servers start without tuned settings; skipping these imports makes that faster.
        from deploykit.api.tuning import check_batch, tuned_flags
        from deploykit.benchmarking.results import load_tuned

        chosen = tuned if isinstance(tuned, RunConfig) else load_tuned(tuned)
        flags, batch = tuned_flags(flags, chosen, file or name)
    settings = settings_of(base_dir, flags, batch)
    if file is not None:
        check_served_models(file, settings.models)
    if batch is not None:
        check_batch(settings.models, batch, file or name)
    if settings.memory_limit is None:
        settings = replace(settings, memory_limit=default_limit())
    try:
        if settings.workers > 1:
            return workers.start(settings)
        return process.start(settings)
    except ServingError as error:
        raise error.within(kind=GraphError) from None
