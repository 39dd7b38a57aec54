"""The Open Inference Protocol (KServe v2) over gRPC: requests -> data plane -> responses."""

from collections.abc import Callable
from typing import Any

from deploykit import __version__
from deploykit.serving.execution.data_plane import Plane, Target
from deploykit.serving.execution.open_inference import is_available, model_metadata
from deploykit.serving.grpc_server.grpc_calls import Answers, GrpcCall, Method, of_service, parsed
from deploykit.serving.grpc_server.threads import CallThreads
from deploykit.serving.lifecycle.models import Models
from deploykit.serving.protocol.errors import ServingError, refused
from deploykit.serving.protocol.open_inference import (
    EXTENSIONS,
    INFERENCE_SERVICE,
    SERVER_NAME,
    InferResponse,
    ModelInferRequest,
    check_typed_contents,
    message,
    read_request,
    split_request,
    write_response,
)
from deploykit.serving.protocol.versions import check_name
from deploykit.transforms.common.errors import GraphError


class InferenceService:
    """ServerLive, ServerReady, ModelReady, ServerMetadata, ModelMetadata and ModelInfer."""

    def __init__(
        self,
        plane: Plane,
        models: Models[Any],
        is_ready: Callable[[], bool],
        probes: CallThreads | None = None,
    ) -> None:
        """Serve these models; `is_ready` returns whether the server is ready.

        `probes`: dedicated threads of ServerLive and ServerReady.
        """
        self._probes = probes
        self._plane = plane
        self._models = models
        self._is_ready = is_ready

    def methods(self) -> dict[str, Method]:
        """Return the methods by path."""
        probes: Answers = {
            "ServerLive": lambda *_: message("ServerLiveResponse")(live=True),
            "ServerReady": lambda *_: message("ServerReadyResponse")(ready=self._is_ready()),
        }
        answers: Answers = {
            "ModelReady": self._model_ready,
            "ServerMetadata": lambda *_: message("ServerMetadataResponse")(
                name=SERVER_NAME, version=__version__, extensions=EXTENSIONS
            ),
            "ModelMetadata": self._model_metadata,
        }
        return {
            **of_service(INFERENCE_SERVICE, probes, threads=self._probes),
            **of_service(INFERENCE_SERVICE, answers),
            f"/{INFERENCE_SERVICE}/ModelInfer": Method(self._model_infer, computes=True),
        }

    def _model_ready(self, request: Any, call: GrpcCall) -> Any:
        _note(request.name, call)
        check_name("the version of the model", request.version)
        try:
            target = Target.named(request.name, request.version)
            ready = is_available(self._models.status(target.name, target.version, target.label))
        except ServingError:  # the model or version does not exist
            if not request.name:
                raise
            ready = False
        return message("ModelReadyResponse")(ready=ready)

    def _model_metadata(self, request: Any, call: GrpcCall) -> Any:
        target = _target(request.name, request.version, call)
        _, signatures = self._plane.signatures(target)
        result = model_metadata(target.name, signatures, self._models.status(target.name))
        response = message("ModelMetadataResponse")(
            name=result.name, versions=result.versions, platform=result.platform
        )
        for tensors, into in ((result.inputs, response.inputs), (result.outputs, response.outputs)):
            for tensor in tensors:
                into.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        return response

    def _model_infer(self, request: bytes, call: GrpcCall) -> bytes:
        try:
            head, raw = split_request(request)
            check_typed_contents(head)
        except GraphError as error:
            raise refused("not-a", what="a ModelInferRequest", reason=error) from None
        requested = parsed(ModelInferRequest, head)
        target = _target(requested.model_name, requested.model_version, call)
        given = read_request(requested, raw)
        target = Target(target.name, target.version, target.label, given.signature)
        answer = self._plane.infer(
            target, given.inputs, given.outputs, call.caller(), given.classes
        )
        response = InferResponse(answer.name, str(answer.version), given.id, answer.outputs)
        return write_response(response, is_raw=bool(raw) or not given.inputs)


def _target(name: str, version: str, call: GrpcCall) -> Target:
    """Return the target of a request, and store it for the log. ServingError: an invalid name."""
    _note(name, call)
    return Target.named(name, version)


def _note(name: str, call: GrpcCall) -> None:
    check_name("the name of the model", name)
    call.model = name
