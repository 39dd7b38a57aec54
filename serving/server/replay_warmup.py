"""Replays a version's warm-up requests before it serves, because first requests are slow."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from deploykit.serving.execution.data_plane import Plane, Requester, Target
from deploykit.serving.execution.servable import Servable
from deploykit.serving.grpc_server.services import examples_of
from deploykit.serving.protocol.codec import decode_all
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.predict_wire import parse_request
from deploykit.serving.protocol.protos import PredictionLog
from deploykit.serving.saved_model.warmup_requests import FILE, read_requests
from deploykit.transforms.common.errors import VerificationError

_WITHOUT_END = Requester()


class _Only:
    """A version that is not available yet, under any name and number."""

    def __init__(self, servable: Servable) -> None:
        self._servable = servable

    @contextmanager
    def using(self, name: str, version: int | None, label: str) -> Iterator[Servable]:
        """Use it within the block."""
        yield self._servable


def warm_up(servable: Servable, iterations: int = 1) -> int:
    """Run a version's warm-up requests, each `iterations` times; return their number.

    FileError, GraphError: their file cannot be read. ServingError: a request fails.
    """
    plane = Plane(_Only(servable), 1, 0)  # the slots belong to versions that serve
    count = 0
    try:
        for log in read_requests(servable.folder):
            for _ in range(iterations):
                _replay(plane, log)
            count += 1
    except ServingError as error:
        where = f"{servable.folder / FILE}: record {count}"
        raise error.within(where) from None
    except VerificationError as error:
        raise ServingError.of("DATA_LOSS", error) from None
    return count


def _replay(plane: Plane, log: PredictionLog) -> None:
    """Run one request as over gRPC. ServingError: it fails or is of an unsupported type."""
    kind = log.WhichOneof("log_type") or "none"
    request: Any = getattr(getattr(log, kind, None), "request", None)
    if kind == "predict_log":
        inputs = decode_all(parse_request(request).tensors)
        plane.predict(_target(request), inputs, request.output_filter, _WITHOUT_END)
    elif kind == "classify_log":
        plane.classify(_target(request), examples_of(request.input), _WITHOUT_END)
    elif kind == "regress_log":
        plane.regress(_target(request), examples_of(request.input), _WITHOUT_END)
    elif kind == "multi_inference_log":
        tasks = [(_target(task), task.method_name) for task in request.tasks]
        plane.multi_inference(tasks, examples_of(request.input), _WITHOUT_END)
    else:
        raise ServingError("UNIMPLEMENTED", "warmup-type-unsupported", kind=kind)


def _target(request: Any) -> Target:
    """Return which signature a request is for; its model is the one that is loaded."""
    return Target(request.model_spec.name, signature=request.model_spec.signature_name)
