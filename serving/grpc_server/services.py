"""The services of TensorFlow Serving over gRPC: requests -> data plane -> answers."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import grpc

from deploykit.serving.execution.classify_regress import Class, with_context
from deploykit.serving.execution.data_plane import Answer, Plane, Requester, Target
from deploykit.serving.lifecycle.models import Models
from deploykit.serving.protocol.codec import decode_all, encode
from deploykit.serving.protocol.errors import ServingError, reported
from deploykit.serving.protocol.protos import (
    ClassificationResponse,
    ClassificationResult,
    GetModelMetadataResponse,
    GetModelStatusResponse,
    Input,
    ModelServiceServicer,
    ModelSpec,
    ModelVersionStatus,
    MultiInferenceResponse,
    PredictionServiceServicer,
    PredictResponse,
    RegressionResponse,
    RegressionResult,
    ReloadConfigResponse,
    SignatureDefMap,
)
from deploykit.serving.protocol.signatures import CLASSIFY

SIGNATURE_DEF = "signature_def"
Reload = Callable[[Any, str, float | None], None]
"""Takes a ModelServerConfig, who sends it, and how many seconds he waits."""
LONGEST_WAIT = 30 * 24 * 3600.0
"""Seconds; whoever waits longer has no deadline."""


class PredictionService(PredictionServiceServicer):  # type: ignore[misc]
    """Predict, Classify, Regress, MultiInference and GetModelMetadata."""

    def __init__(self, plane: Plane, as_content: bool = False) -> None:
        """Answer tensors in typed fields, as clients read them, or as content."""
        self._plane = plane
        self._as_content = as_content

    def Predict(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: D102
        with _answered(context):
            target = target_of(request)
            inputs = decode_all(request.inputs)
            answer = self._plane.predict(target, inputs, request.output_filter, _caller(context))
            response = PredictResponse(model_spec=_spec(answer))
            for alias, array in answer.outputs.items():
                response.outputs[alias].CopyFrom(encode(array, as_content=self._as_content))
            return response

    def Classify(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: D102
        with _answered(context):
            examples = examples_of(request.input)
            answer = self._plane.classify(target_of(request), examples, _caller(context))
            return ClassificationResponse(model_spec=_spec(answer), result=_classes(answer.classes))

    def Regress(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: D102
        with _answered(context):
            examples = examples_of(request.input)
            answer = self._plane.regress(target_of(request), examples, _caller(context))
            return RegressionResponse(model_spec=_spec(answer), result=_values(answer.values))

    def MultiInference(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: D102
        with _answered(context):
            examples = examples_of(request.input)
            tasks = [(target_of(task, named=False), task.method_name) for task in request.tasks]
            found = self._plane.multi_inference(tasks, examples, _caller(context))
            response = MultiInferenceResponse()
            for answer, (_, method) in zip(found, tasks, strict=True):
                each = response.results.add(model_spec=_spec(answer))
                if method == CLASSIFY:
                    each.classification_result.CopyFrom(_classes(answer.classes))
                else:
                    each.regression_result.CopyFrom(_values(answer.values))
            return response

    def GetModelMetadata(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: D102
        with _answered(context):
            target = target_of(request)
            if not request.metadata_field:
                words = "GetModelMetadataRequest must specify at least one metadata_field"
                raise ServingError("INVALID_ARGUMENT", words)
            for field in request.metadata_field:
                if field != SIGNATURE_DEF:
                    words = f"Metadata field {field} is not supported"
                    raise ServingError("INVALID_ARGUMENT", words)
            answer, signatures = self._plane.signatures(target)
            found = SignatureDefMap()
            for name, signature in signatures.items():
                found.signature_def[name].CopyFrom(signature.proto)
            response = GetModelMetadataResponse(model_spec=_spec(answer))
            response.metadata[SIGNATURE_DEF].Pack(found)
            return response


class ModelService(ModelServiceServicer):  # type: ignore[misc]
    """GetModelStatus and HandleReloadConfigRequest."""

    def __init__(self, models: Models[Any], reload: Reload) -> None:
        """Answer about these models, which `reload` changes."""
        self._models = models
        self._reload = reload

    def GetModelStatus(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: D102
        with _answered(context):
            target = target_of(request)
            response = GetModelStatusResponse()
            for each in self._models.status(target.name, target.version, target.label):
                status = response.model_version_status.add(
                    version=each.version, state=ModelVersionStatus.State.Value(each.state)
                )
                status.status.error_code = grpc.StatusCode[each.code].value[0]
                status.status.error_message = each.message
            return response

    def HandleReloadConfigRequest(  # noqa: D102
        self, request: Any, context: grpc.ServicerContext
    ) -> Any:
        with _answered(context):
            self._reload(request.config, context.peer(), _caller(context).seconds_left())
            return ReloadConfigResponse()


@contextmanager
def _answered(context: grpc.ServicerContext) -> Iterator[None]:
    """Turn what is raised into a status: the caller never sees UNKNOWN."""
    try:
        yield
    except Exception as raised:
        error = reported(raised)
        context.abort(grpc.StatusCode[error.code], error.message)


def _caller(context: grpc.ServicerContext) -> Requester:
    left = context.time_remaining()  # without a deadline: None, or centuries
    deadline = None if left is None or left > LONGEST_WAIT else time.monotonic() + left
    return Requester(deadline, lambda: not context.is_active())


def target_of(request: Any, named: bool = True) -> Target:
    """Return whom a request is for. ServingError: it does not say."""
    if not request.HasField("model_spec"):
        raise ServingError("INVALID_ARGUMENT", "Missing ModelSpec")
    spec = request.model_spec
    if named and not spec.name:
        raise ServingError("INVALID_ARGUMENT", "ModelSpec has no name specified.")
    version = spec.version.value if spec.HasField("version") else None
    return Target(spec.name, version, spec.version_label, spec.signature_name)


def _spec(answer: Answer) -> Any:
    spec = ModelSpec(name=answer.name, signature_name=answer.signature)
    spec.version.value = answer.version
    return spec


def examples_of(given: Input) -> list[bytes]:
    """Return serialized tf.Examples, each with the context that is common to all.

    ServingError: that would be far more than was sent.
    """
    if given.WhichOneof("kind") == "example_list_with_context":
        both = given.example_list_with_context
        common = both.context.SerializeToString()
        return with_context(common, [each.SerializeToString() for each in both.examples])
    return [each.SerializeToString() for each in given.example_list.examples]


def _classes(found: Sequence[Sequence[Class]]) -> ClassificationResult:
    result = ClassificationResult()
    for example in found:
        each = result.classifications.add()
        for label, score in example:
            each.classes.add(label=label, score=score)
    return result


def _values(found: Sequence[float]) -> RegressionResult:
    result = RegressionResult()
    for value in found:
        result.regressions.add(value=value)
    return result
