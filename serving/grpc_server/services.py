"""The services of TensorFlow Serving over gRPC: requests -> data plane -> responses."""

from collections.abc import Callable, Sequence
from typing import Any

import grpc
from google.protobuf.struct_pb2 import Struct

from deploykit.serving.execution.classify_regress import Class, with_context
from deploykit.serving.execution.data_plane import Plane, Target
from deploykit.serving.grpc_server.grpc_calls import (
    GrpcCall,
    Method,
    model_named,
    of_service,
    parsed,
)
from deploykit.serving.lifecycle.models import Models
from deploykit.serving.protocol import protos
from deploykit.serving.protocol.codec import decode_all
from deploykit.serving.protocol.errors import refused
from deploykit.serving.protocol.predict_wire import answered_by, parse_request, walked, written
from deploykit.serving.protocol.signatures import (
    CLASSIFY,
    UNAVAILABLE,
    signature_map,
    unavailable_in,
)
from deploykit.serving.protocol.versions import check_names

SIGNATURE_DEF = "signature_def"
Reload = Callable[[Any, str, float | None], None]
"""Takes a ModelServerConfig, the client's address, and the seconds until its deadline."""


class PredictionService:
    """Predict, Classify, Regress, MultiInference and GetModelMetadata."""

    def __init__(self, plane: Plane, as_content: bool = False) -> None:
        """Write output tensors as `tensor_content` or, by default, in typed fields."""
        self._plane = plane
        self._as_content = as_content

    def methods(self) -> dict[str, Method]:
        """Return the methods by path."""
        computing = {
            "Classify": self._classify,
            "Regress": self._regress,
            "MultiInference": self._multi_inference,
        }
        return {
            f"/{protos.PREDICTION_SERVICE}/Predict": Method(self._predict, computes=True),
            **of_service(protos.PREDICTION_SERVICE, computing, computes=True),
            **of_service(protos.PREDICTION_SERVICE, {"GetModelMetadata": self._metadata}),
        }

    def _predict(self, request: bytes, call: GrpcCall) -> bytes:
        result = walked(request) or parse_request(parsed(protos.PredictRequest, request))
        call.model = "" if result.spec is None else model_named(result.spec)
        target = _target(result.spec)
        inputs = decode_all(result.tensors)
        answered = self._plane.predict(target, inputs, result.outputs, call.caller())
        spec = answered_by(answered.name, answered.version, answered.signature)
        return written(spec, answered.outputs, self._as_content)

    def _classify(self, request: Any, call: GrpcCall) -> Any:
        examples = examples_of(request.input)
        answer = self._plane.classify(target_of(request), examples, call.caller())
        return protos.ClassificationResponse(
            model_spec=answer.spec, result=_classes(answer.classes)
        )

    def _regress(self, request: Any, call: GrpcCall) -> Any:
        examples = examples_of(request.input)
        answer = self._plane.regress(target_of(request), examples, call.caller())
        return protos.RegressionResponse(model_spec=answer.spec, result=_values(answer.values))

    def _multi_inference(self, request: Any, call: GrpcCall) -> Any:
        examples = examples_of(request.input)
        tasks = [(target_of(task, named=False), task.method_name) for task in request.tasks]
        result = self._plane.multi_inference(tasks, examples, call.caller())
        response = protos.MultiInferenceResponse()
        for answer, (_, method) in zip(result, tasks, strict=True):
            item = response.results.add(model_spec=answer.spec)
            if method == CLASSIFY:
                item.classification_result.CopyFrom(_classes(answer.classes))
            else:
                item.regression_result.CopyFrom(_values(answer.values))
        return response

    def _metadata(self, request: Any, call: GrpcCall) -> Any:
        target = target_of(request)
        if not request.metadata_field:
            raise refused("metadata-field-missing")
        check_names("a metadata_field", request.metadata_field)
        for field in request.metadata_field:
            if field != SIGNATURE_DEF:
                raise refused("metadata-field-unsupported", field=field)
        answer, signatures = self._plane.signatures(target)
        response = protos.GetModelMetadataResponse(model_spec=answer.spec)
        response.metadata[SIGNATURE_DEF].Pack(signature_map(signatures))
        if missing := unavailable_in(signatures):
            fields = Struct()
            fields.update(missing)
            response.metadata[UNAVAILABLE].Pack(fields)
        return response


class ModelService:
    """GetModelStatus and HandleReloadConfigRequest."""

    def __init__(self, models: Models[Any], reload: Reload) -> None:
        """Serve these models, which `reload` changes."""
        self._models = models
        self._reload = reload

    def methods(self) -> dict[str, Method]:
        """Return the methods by path."""
        answers = {"GetModelStatus": self._status, "HandleReloadConfigRequest": self._reload_config}
        return of_service(protos.MODEL_SERVICE, answers)

    def _status(self, request: Any, call: GrpcCall) -> Any:
        target = target_of(request)
        response = protos.GetModelStatusResponse()
        for item in self._models.status(target.name, target.version, target.label):
            status = response.model_version_status.add(
                version=item.version, state=protos.ModelVersionStatus.State.Value(item.state)
            )
            status.status.error_code = grpc.StatusCode[item.code].value[0]
            status.status.error_message = item.message
        return response

    def _reload_config(self, request: Any, call: GrpcCall) -> Any:
        self._reload(request.config, call.context.peer(), call.caller().seconds_left())
        return protos.ReloadConfigResponse()


def target_of(request: Any, named: bool = True) -> Target:
    """Return the target of a request. ServingError: it is missing."""
    return _target(request.model_spec if request.HasField("model_spec") else None, named)


def _target(spec: protos.ModelSpec | None, named: bool = True) -> Target:
    if spec is None:
        raise refused("model-spec-missing")
    if named and not spec.name:
        raise refused("model-spec-without-name")
    version = spec.version.value if spec.HasField("version") else None
    return Target(spec.name, version, spec.version_label, spec.signature_name)


def examples_of(given: protos.Input) -> list[bytes]:
    """Return serialized tf.Examples, each with the shared context.

    ServingError: the result would be far larger than the request.
    """
    if given.WhichOneof("kind") == "example_list_with_context":
        both = given.example_list_with_context
        common = both.context.SerializeToString()
        return with_context(common, [example.SerializeToString() for example in both.examples])
    return [example.SerializeToString() for example in given.example_list.examples]


def _classes(examples: Sequence[Sequence[Class]]) -> protos.ClassificationResult:
    result = protos.ClassificationResult()
    for example in examples:
        item = result.classifications.add()
        for label, score in example:
            item.classes.add(label=label, score=score)
    return result


def _values(values: Sequence[float]) -> protos.RegressionResult:
    result = protos.RegressionResult()
    for value in values:
        result.regressions.add(value=value)
    return result
