"""A server: creates models, data plane, services and ports, starts them, and drains requests."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc

from deploykit.serving.execution.batching import Batches
from deploykit.serving.execution.data_plane import Plane
from deploykit.serving.execution.engines.open_version import open_version
from deploykit.serving.execution.servable import Servable
from deploykit.serving.execution.uploads import Uploads
from deploykit.serving.grpc_server.floods import Floods
from deploykit.serving.grpc_server.grpc_calls import GrpcCalls
from deploykit.serving.grpc_server.health import Health
from deploykit.serving.grpc_server.open_inference import InferenceService
from deploykit.serving.grpc_server.reflection import Reflection
from deploykit.serving.grpc_server.services import ModelService, PredictionService
from deploykit.serving.grpc_server.threads import CallThreads, UnfinishedRequests
from deploykit.serving.lifecycle.model_config import model_settings, read_models
from deploykit.serving.lifecycle.models import Models
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.open_inference import METHODS
from deploykit.serving.protocol.versions import AVAILABLE, END, VersionStatus
from deploykit.serving.rest.http_requests import HttpLimits
from deploykit.serving.rest.metrics import Metrics
from deploykit.serving.rest.rest import Rest, RestSettings
from deploykit.serving.server.access_log import AccessLog
from deploykit.serving.server.memory_limit import MemoryLimit
from deploykit.serving.server.ports import (
    bracketed,
    channel_options,
    check_ports,
    connected_sockets,
    hang_up,
    refuse_connections,
    refused_port,
)
from deploykit.serving.server.replay_warmup import warm_up
from deploykit.serving.server.settings import ServerSettings
from deploykit.serving.server.shutdown import PortCalls, go_on, refuse_and_answer
from deploykit.serving.server.tls import credentials, https_context
from deploykit.transforms.common.errors import Error
from deploykit.transforms.runtime.memory import give_back

logger = logging.getLogger("deploykit")

_LOCAL = ("unix:", "ipv4:127.", "ipv6:[::1]", "ipv6:%5B::1%5D")
_CLOSING_SECONDS = 0.5  # for models that are no longer in use


class Server:
    """A server that listens after `start`, and completes its requests in `drain`."""

    def __init__(self, settings: ServerSettings) -> None:
        """Create the parts of the server; nothing is loaded, and no port is open.

        Error: a certificate is invalid, or the log file cannot be opened.
        """
        self.settings = settings
        self.port = 0
        self._credentials = None if settings.tls is None else credentials(settings.tls)
        self.health = Health(lambda: {n: bool(v) for n, v in self.available.items()})
        self.models: Models[Servable] = Models(
            self._load,
            poll_seconds=max(settings.file_system_poll_wait_seconds, 0.0),
            retries=settings.max_num_load_retries,
            retry_seconds=max(settings.load_retry_interval_micros, 0) / 1e6,
            early_labels=settings.allow_version_labels_for_unavailable_models,
            on_change=self._changed,
        )
        self.metrics, batching = Metrics(self.models.has), settings.batching
        self.plane = Plane(
            self.models,
            settings.max_in_flight,
            settings.slots,
            self.metrics.observe,
            Batches(batching, settings.slots, self.metrics.queuing.add) if batching else None,
            settings.max_queue_wait_ms / 1000 or float("inf"),
        )
        path = settings.access_log
        unlogged = self.metrics.unlogged
        self.log = AccessLog(path, lambda count: unlogged.add(count=count)) if path else None
        self.uploads = Uploads(settings.max_message_bytes)
        self.rest = self._rest() if settings.rest_api_port is not None else None
        self._memory = MemoryLimit(settings.memory_limit, settings.workers)
        self._serves = False  # whether it has started to
        self._stopped = threading.Event()
        self._threads = CallThreads(settings.max_in_flight, refuse=self.plane.refuse_if_full)
        self._floods = Floods(settings.max_message_bytes)
        self.calls, reflection = self._calls(), Reflection()
        self.grpc = grpc.server(
            self._threads, handlers=[self.calls, reflection], options=channel_options(settings)
        )
        self._unfinished = UnfinishedRequests(
            (self._threads, self.health.threads, reflection.threads), settings.max_message_bytes
        )

    def start(self) -> None:
        """Load the models, then listen. A model that cannot be loaded does not stop the others.

        ServingError: no model can be served. FileError: a port is in use.
        """
        check_ports(self.settings)
        try:
            self.models.configure(self.settings.models)
        except ServingError as error:
            if not self.models.names:
                raise
            logger.warning("%s", error)
        address = f"{bracketed(self.settings.host)}:{self.settings.port}"
        self.port = self._add_port(address, address, "--port")
        if path := self.settings.grpc_socket_path:
            self._add_port(f"unix:{path}", path, "--grpc_socket_path")
        self._unfinished.start()
        self._floods.start(lambda: connected_sockets(self.port))
        self.grpc.start()
        if self.rest is not None:
            self.rest.start()
        self.health.begin()
        self._serves = True
        if self.settings.model_config_file_poll_wait_seconds > 0:
            threading.Thread(target=self._poll_config, daemon=True).start()

    def drain(self, seconds: float, lame_duck: float = 0.0) -> bool:
        """Serve for `lame_duck` seconds while health reports NOT_SERVING.

        Then reject new requests, complete those in progress, and close everything; return whether
        all were completed. It takes at most both times plus two seconds.
        """
        end = time.monotonic() + lame_duck + seconds
        rest = self.rest.listener if self.rest is not None else None
        ports: list[PortCalls] = [self.calls] if rest is None else [self.calls, rest]
        self._stopped.set()
        self.health.end()
        if lame_duck:
            logger.info("shutting down: health is NOT_SERVING, requests are served for %g s, "
                        "twice that while they arrive",
                        lame_duck)  # fmt: skip
            if rest is not None:
                rest.leaving = True
            go_on(ports, lame_duck, min(lame_duck, seconds))  # twice as long while requests arrive
        if self._serves:
            logger.info("draining: rejecting new requests, completing those in progress")
        self.health.leave()
        answered = refuse_and_answer(ports, min(end, time.monotonic() + seconds))
        if rest is not None:
            rest.close()
        if self.port:
            refuse_connections(self.port, self.settings.grpc_socket_path)
            hang_up(self.port, self.settings.grpc_socket_path)
        self.grpc.stop(0).wait(_CLOSING_SECONDS)
        self._unfinished.close()
        self._floods.close()
        self.models.close(_CLOSING_SECONDS)
        if self.log is not None:
            self.log.close()
        return answered

    @property
    def available(self) -> dict[str, list[int]]:
        """The configured models, each with its available versions."""
        return {name: self._versions(name) for name in self.models.names}

    def _versions(self, name: str) -> list[int]:
        with contextlib.suppress(ServingError):
            result = self.models.status(name)
            return [item.version for item in result if item.state == AVAILABLE]
        return []

    def _calls(self) -> GrpcCalls:
        as_content = self.settings.enable_serialization_as_tensor_content
        health = self.health
        inference = InferenceService(self.plane, self.models, health.is_serving, health.threads)
        methods = {
            **PredictionService(self.plane, as_content).methods(),
            **ModelService(self.models, self._reload).methods(),
            **inference.methods(),
            **self.health.methods(),
        }
        write = self._log_of("grpc")
        return GrpcCalls(self._threads, methods, write, self._floods)

    def _log_of(self, protocol: str) -> Callable[..., None] | None:
        log = self.log
        if log is None:
            return None

        def write(method: str, *facts: Any) -> None:
            log.write(f"{protocol}-v2" if method in METHODS else protocol, method, *facts)

        return write

    def _rest(self) -> Rest:
        settings = self.settings
        rest = RestSettings(
            settings.host,
            settings.rest_api_port or 0,
            timeout_in_ms=settings.rest_api_timeout_in_ms,
            cors=settings.rest_api_enable_cors_support,
            metrics_path=settings.monitoring.path if settings.monitoring.enable else "",
            converting=settings.slots,
            limits=_limits(settings),
            reuse_port=settings.workers > 1,
            tls=https_context(settings.tls) if settings.tls and not settings.rest_plain else None,
        )
        made = Rest(self.plane, self.models, rest, self.metrics, self.uploads, self._log_of("rest"))
        made.is_ready = self.health.is_serving
        return made

    def _add_port(self, address: str, shown: str, flag: str) -> int:
        try:
            if self._credentials is None:
                return int(self.grpc.add_insecure_port(address))
            return int(self.grpc.add_secure_port(address, self._credentials))
        except RuntimeError:
            raise refused_port(shown, "cannot listen there", flag) from None

    def _load(self, name: str, version: int, folder: Path) -> Servable:
        loading = replace(self.settings.loading, slots=self.settings.slots)
        servable = None
        try:
            self._memory.check_files(name, version, folder)
            servable = open_version(folder, name, version, loading)
            if self.settings.enable_model_warmup:
                self._warm_up(servable)
            if self.settings.batching and loading.tells:
                _log_unbatched(servable)
            self._memory.check_loaded(name, version)
        except BaseException as error:
            if servable is not None:
                servable.close()
                give_back()
            # `start` reports only models without any version.
            is_refused = getattr(error, "code", "") == "version-over-memory"
            if is_refused and not self.port and loading.tells:
                logger.warning("%s", error)
            raise
        self.metrics.loaded(name, version, servable.engines)
        return servable

    def _warm_up(self, servable: Servable) -> None:
        start, code = time.monotonic(), "OK"
        try:
            count = warm_up(servable, self.settings.num_request_iterations_for_warmup)
        except BaseException as error:
            code = getattr(error, "code", "FAILED_PRECONDITION")
            raise
        finally:
            seconds = time.monotonic() - start
            self.metrics.warm_up.add(seconds, str(servable.folder), code)
        if count:
            logger.info("%s: %d warm-up requests took %.1f s", servable.folder, count, seconds)

    def _changed(self, name: str, status: VersionStatus) -> None:
        # `start` reports failures before it listens; failures during shutdown are expected.
        if status.code != "OK" and self.port and not self._stopped.is_set():
            words = "model %s: version %d cannot be served: %s: %s"
            logger.warning(words, name, status.version, status.code, status.message)
        if status.state == AVAILABLE and self.port and not self._stopped.is_set():
            logger.info("serving %s: %d", name, status.version)
        if status.state == END:
            self.metrics.loaded(name, status.version, ())
        self.health.tell()

    def _reload(self, config: Any, peer: str, seconds: float | None = None) -> None:
        if not (self.settings.allow_reload or peer.startswith(_LOCAL)):
            raise ServingError("PERMISSION_DENIED", "reload-from-elsewhere")
        if self.settings.workers > 1:
            raise ServingError(
                "FAILED_PRECONDITION", "reload-needs-file", workers=self.settings.workers
            )
        self.models.configure(model_settings(config), seconds)

    def _poll_config(self) -> None:
        """Read the file of models periodically; an error in it changes nothing."""
        path, last = self.settings.model_config_file, tuple(self.settings.models)
        assert path is not None
        while not self._stopped.wait(self.settings.model_config_file_poll_wait_seconds):
            try:
                result = read_models(path)
                if result != last:
                    logger.info("%s has changed", path)
                    self.models.configure(result)
                last = result
            except (Error, ServingError) as error:
                logger.warning("%s", error)


def _log_unbatched(servable: Servable) -> None:
    """Log the signatures of a version whose requests are not batched because of their samples."""
    for name, signature in servable.signatures.items():
        for alias, axis in signature.batch_axes.items():
            logger.warning(
                "%s: requests to signature '%s' are not batched: input '%s' takes its samples on "
                "axis %d, and the server joins requests on the first axis",
                servable.folder,
                name,
                alias,
                axis,
            )
            break


def _limits(settings: ServerSettings) -> HttpLimits:
    json = settings.max_json_mb << 20
    if json < settings.max_message_bytes:
        return HttpLimits(body=json, flag="--max_json_mb")
    return HttpLimits(body=settings.max_message_bytes, flag="--max_message_mb")
