"""A server: models, data plane and services put together, started, and drained."""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from serving.configs import ModelSettings
from serving.grpc_services import ModelService, PredictionService
from serving.models import Models
from serving.plane import Plane
from serving.protos import (
    add_ModelServiceServicer_to_server,
    add_PredictionServiceServicer_to_server,
)
from serving.servable import Loading, Servable

logger = logging.getLogger("deploykit")

UNBOUNDED = -1
SPARE_THREADS = 8  # for refusals, status and health while all calls in flight wait


@dataclass(frozen=True)
class Settings:
    """What a server is told; where TensorFlow Serving has a flag for it, under its name."""

    models: Sequence[ModelSettings]
    port: int = 8500
    host: str = "127.0.0.1"
    max_in_flight: int = 64
    slots: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    loading: Loading = Loading()
    file_system_poll_wait_seconds: float = 1.0
    enable_serialization_as_tensor_content: bool = False


class Server:
    """A server that listens once `start` returns, and answers what is in flight in `drain`."""

    def __init__(self, settings: Settings) -> None:
        """Put it together; nothing is loaded yet."""
        self.settings = settings
        self.models = Models(self._load, poll_seconds=settings.file_system_poll_wait_seconds)
        self.plane = Plane(self.models, settings.max_in_flight, settings.slots)
        self._threads = ThreadPoolExecutor(settings.max_in_flight + SPARE_THREADS)
        self.grpc = grpc.server(self._threads, options=self._channel_options())
        add_PredictionServiceServicer_to_server(
            PredictionService(self.plane, settings.enable_serialization_as_tensor_content),
            self.grpc,
        )
        add_ModelServiceServicer_to_server(ModelService(self.models, self._reload), self.grpc)
        self.port = 0

    def start(self) -> None:
        """Load the models, then listen."""
        self.models.configure(self.settings.models)
        self.port = self.grpc.add_insecure_port(f"{self.settings.host}:{self.settings.port}")
        self.grpc.start()

    def drain(self, seconds: float) -> None:
        """Refuse new calls, answer those in flight, and give everything back."""
        self.grpc.stop(seconds).wait()
        self.models.close()

    def _load(self, name: str, version: int, folder: Path) -> Servable:
        return Servable(folder, name, version, self.settings.loading)

    def _reload(self, config: Any) -> None:
        from serving.configs import model_settings

        self.models.configure(model_settings(config))

    def _channel_options(self) -> list[tuple[str, Any]]:
        return [
            ("grpc.max_receive_message_length", UNBOUNDED),
            ("grpc.max_send_message_length", UNBOUNDED),
            ("grpc.so_reuseport", 0),
        ]
