"""A tf.data service in a process of its own: a dispatcher and its workers."""

import contextlib
from collections.abc import Iterator

from deploykit.transforms.runtime.child_process import Worker


class Servers:
    """They run until this process ends; TensorFlow lets them listen on all interfaces."""

    def __init__(self, workers: int) -> None:
        import tensorflow as tf

        service = tf.data.experimental.service
        self._dispatcher = service.DispatchServer()
        address = self.address().removeprefix("grpc://")
        self._workers = [
            service.WorkerServer(service.WorkerConfig(address)) for _ in range(workers)
        ]

    def address(self) -> str:
        return self._dispatcher.target


@contextlib.contextmanager
def serving(workers: int) -> Iterator[str]:
    """Yield the address of a new service; it ends at once, as its process does."""
    with contextlib.closing(Worker(f"{__name__}:Servers", workers)) as servers:
        yield servers.ask("address")
