"""The Open Inference Protocol (KServe v2) over HTTP: documents <-> data plane."""

from collections.abc import Callable
from typing import Any

import orjson

from deploykit import __version__
from deploykit.serving.execution.data_plane import Plane, Requester, Target
from deploykit.serving.execution.open_inference import (
    is_available,
    model_metadata,
)
from deploykit.serving.lifecycle.models import Models
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.open_inference import (
    EXTENSIONS,
    PLATFORM,
    SERVER_NAME,
    InferResponse,
)
from deploykit.serving.rest.connection import Response, error_response
from deploykit.serving.rest.json_infer import write_infer
from deploykit.serving.rest.json_requests import Document


class OpenInference:
    """Handles requests under `/v2`."""

    def __init__(self, plane: Plane, models: Models[Any], is_ready: Callable[[], bool]) -> None:
        """Serve these models; `is_ready` returns whether the server is ready."""
        self._plane = plane
        self._models = models
        self._is_ready = is_ready

    def health(self, path: str) -> Response:
        """Respond to a probe: live if the process responds, ready once the models are loaded."""
        if path.endswith("/live"):
            return Response(200, b'{"live":true}')
        is_ready = self._is_ready()
        return Response(200 if is_ready else 503, orjson.dumps({"ready": is_ready}))

    def server_metadata(self) -> bytes:
        """Return name, version and extensions of the server."""
        return orjson.dumps(
            {"name": SERVER_NAME, "version": __version__, "extensions": list(EXTENSIONS)}
        )

    def model_ready(self, target: Target) -> Response:
        """Respond whether a model or version is available; 404 if it does not exist."""
        try:
            is_ready = is_available(self._models.status(target.name, target.version, target.label))
        except ServingError as error:
            return error_response(404, error.message)
        results = {"name": target.name, "ready": is_ready}
        return Response(200 if is_ready else 503, orjson.dumps(results))

    def model_metadata(self, target: Target) -> bytes:
        """Return the versions, inputs and outputs of a model. ServingError: it does not exist."""
        _, signatures = self._plane.signatures(target)
        result = model_metadata(target.name, signatures, self._models.status(target.name))
        document: dict[str, Any] = {
            "name": result.name,
            "versions": result.versions,
            "platform": PLATFORM,
            "inputs": result.inputs,
            "outputs": result.outputs,
        }
        return orjson.dumps(document)

    def infer(self, target: Target, document: Document, caller: Requester) -> Response:
        """Return the outputs of a model. ServingError: the request is invalid or fails."""
        requested = document.infer
        answer = self._plane.infer(target, document.inputs, list(requested.outputs), caller)
        response = InferResponse(answer.name, str(answer.version), requested.id, answer.outputs)
        body, content_type, headers = write_infer(response, requested)
        return Response(200, body, content_type, headers)
