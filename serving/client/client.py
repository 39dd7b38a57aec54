"""A client of the TensorFlow Serving API for NumPy arrays, which needs no TensorFlow."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import grpc
import numpy as np
from google.protobuf.struct_pb2 import Struct

from deploykit.serving.client.endpoint import DEFAULT_CONNECTION, CallError, Connection, Endpoint
from deploykit.serving.protocol import protos
from deploykit.serving.protocol.codec import decode, encode
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.protos import Example, Input, ModelSpec, PredictRequest
from deploykit.serving.protocol.signatures import UNAVAILABLE, Signature, signatures_in
from deploykit.serving.protocol.versions import VersionStatus
from deploykit.transforms.common.errors import Error
from deploykit.transforms.ir.tensors import Array

Features = Mapping[str, Any]
"""The features of a tf.Example by name: a number, text or bytes, or a list of one of these."""

_NARROWER = {"float64": np.float32, "int64": np.int32}
_HEALTH = {b"\x08\x01": "SERVING", b"\x08\x02": "NOT_SERVING"}  # a serialized HealthCheckResponse


class Client:
    """A connection to a server. Several threads may share it.

    Example:
        >>> images = np.zeros((2, 28, 28, 1), np.float32)
        >>> with deploykit.Client("127.0.0.1:8500") as client:
        ...     answer = client.predict("fashion", {"images": images})
        >>> answer["probabilities"].shape
        (2, 10)
    """

    def __init__(
        self, address: str, connection: Connection = DEFAULT_CONNECTION, **options: Any
    ) -> None:
        """Create a channel, which connects on first use.

        Args:
            address: `host:port` or `unix:path`.
            connection: certificates, timeout of a request in seconds, and number of retries.
            options: fields of `Connection`, such as `timeout`.

        Error: the address is invalid, or the connection is for another protocol. FileError: a
        certificate or key cannot be read.
        """
        connection = replace(connection, **options)
        if connection.protocol != "tensorflow":
            raise Error("client-protocol", protocol=connection.protocol)
        self._endpoint = Endpoint(address, connection)
        self._channel = self._endpoint.channel()
        self._methods = {
            name: self._channel.unary_unary(
                f"/{service}/{name}",
                request_serializer=request.SerializeToString,
                response_deserializer=response.FromString,
            )
            for service in (protos.PREDICTION_SERVICE, protos.MODEL_SERVICE)
            for name, (request, response) in protos.methods_of(service).items()
        }

    def predict(
        self,
        model: str,
        inputs: Mapping[str, Any],
        *,
        version: int | None = None,
        label: str = "",
        signature: str = "",
        outputs: Sequence[str] = (),
    ) -> dict[str, Array]:
        """Return the outputs of a model by alias. String outputs are bytes.

        Arrays keep their dtype; Python numbers and lists become float32 or int32, as in TensorFlow.
        CallError: the server, model or version does not exist, or the model rejects the inputs.
        """
        request = predict_request(model, inputs, version, label, signature, outputs)
        answer = self._endpoint.call(self._methods["Predict"], request)
        return {alias: self._decoded(proto, alias) for alias, proto in answer.outputs.items()}

    def classify(
        self,
        model: str,
        examples: Sequence[Features],
        *,
        context: Features | None = None,
        version: int | None = None,
        label: str = "",
        signature: str = "",
    ) -> list[list[tuple[str, float]]]:
        """Return the classes of each example as (label, score) pairs.

        `context` contains features that all examples share. CallError: as in `predict`.
        """
        request = protos.ClassificationRequest(
            model_spec=model_spec(model, version, label, signature),
            input=examples_input(examples, context),
        )
        answer = self._endpoint.call(self._methods["Classify"], request)
        return [
            [(class_.label, class_.score) for class_ in example.classes]
            for example in answer.result.classifications
        ]

    def regress(
        self,
        model: str,
        examples: Sequence[Features],
        *,
        context: Features | None = None,
        version: int | None = None,
        label: str = "",
        signature: str = "",
    ) -> Array:
        """Return one float32 value per example; the arguments are those of `classify`."""
        request = protos.RegressionRequest(
            model_spec=model_spec(model, version, label, signature),
            input=examples_input(examples, context),
        )
        answer = self._endpoint.call(self._methods["Regress"], request)
        return np.array([regression.value for regression in answer.result.regressions], np.float32)

    def metadata(
        self, model: str, *, version: int | None = None, label: str = ""
    ) -> dict[str, Signature]:
        """Return the signatures of a model by name. CallError: as in `predict`."""
        request = protos.GetModelMetadataRequest(
            model_spec=model_spec(model, version, label), metadata_field=["signature_def"]
        )
        answer = self._endpoint.call(self._methods["GetModelMetadata"], request)
        signature_def_map = protos.SignatureDefMap()
        answer.metadata["signature_def"].Unpack(signature_def_map)
        refused = Struct()
        if UNAVAILABLE in answer.metadata:
            refused.ParseFromString(answer.metadata[UNAVAILABLE].value)
        return signatures_in(signature_def_map, dict(refused))

    def status(
        self, model: str, *, version: int | None = None, label: str = ""
    ) -> list[VersionStatus]:
        """Return the status of each version that the server knows. CallError: as in `predict`."""
        request = protos.GetModelStatusRequest(model_spec=model_spec(model, version, label))
        answer = self._endpoint.call(self._methods["GetModelStatus"], request)
        return [
            VersionStatus(
                item.version,
                protos.ModelVersionStatus.State.Name(item.state),
                _code_name(item.status.error_code),
                item.status.error_message,
            )
            for item in answer.model_version_status
        ]

    def reload(self, config: str) -> None:
        """Replace the server's list of models by the text of a `models.config`.

        CallError: the server rejects the list, or one of its models could not be loaded. Error: the
        text is not a ModelServerConfig.
        """
        from google.protobuf import text_format

        try:
            parsed = text_format.Parse(config, protos.ModelServerConfig())
        except text_format.ParseError as error:
            raise Error("models-config-text", reason=error) from None
        request = protos.ReloadConfigRequest(config=parsed)
        status = self._endpoint.call(self._methods["HandleReloadConfigRequest"], request).status
        if status.error_code:
            code = _code_name(status.error_code)
            raise CallError(
                "call-failed",
                status=code,
                source=self._endpoint.address,
                reason=status.error_message,
                grpc_status=code,
            )

    def health(self) -> str:
        """Return the status of the server's health service: SERVING, NOT_SERVING or UNKNOWN.

        It is empty if the server has no health service, as in TensorFlow Serving by default.
        CallError: the server cannot be reached.
        """
        check = self._channel.unary_unary("/grpc.health.v1.Health/Check")
        try:
            answer = self._endpoint.call(check, b"")
        except CallError as error:
            if error.status == "UNIMPLEMENTED":
                return ""
            raise
        return _HEALTH.get(answer, "UNKNOWN")

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _decoded(self, proto: Any, alias: str) -> Array:
        try:
            return decode(proto, alias)
        except ServingError as error:
            address = self._endpoint.address
            raise CallError(
                "response-damaged", status="DATA_LOSS", source=address, reason=error
            ) from None


def _code_name(number: int) -> str:
    return next((code.name for code in grpc.StatusCode if code.value[0] == number), "UNKNOWN")


def predict_request(
    model: str,
    inputs: Mapping[str, Any],
    version: int | None = None,
    label: str = "",
    signature: str = "",
    outputs: Sequence[str] = (),
) -> Any:
    """Return a PredictRequest. The arguments are those of `Client.predict`."""
    request = PredictRequest(
        model_spec=model_spec(model, version, label, signature), output_filter=outputs
    )
    for alias, value in inputs.items():
        request.inputs[alias].CopyFrom(encode(as_array(value), as_content=True))
    return request


def as_array(value: Any) -> Array:
    """Return an array. Python numbers and lists become float32 or int32 if the values fit."""
    array = np.asarray(value)
    if isinstance(value, np.ndarray | np.generic) or array.dtype.name not in _NARROWER:
        return array
    narrower = _NARROWER[array.dtype.name]
    fits = array.dtype.kind == "f" or (array == array.astype(narrower)).all()
    return array.astype(narrower) if fits else array


def model_spec(model: str, version: int | None, label: str, signature: str = "") -> Any:
    """Return the ModelSpec of a request. Error: both a version and a label are given."""
    if version is not None and label:
        raise Error("version-and-label", version=version, label=label, model=model)
    spec = ModelSpec(name=model, signature_name=signature, version_label=label or None)
    if version is not None:
        spec.version.value = version
    return spec


def examples_input(examples: Sequence[Features], context: Features | None) -> Any:
    """Return tf.Examples and their context. Error: a feature mixes types of values."""
    given = Input()
    kind = given.example_list if context is None else given.example_list_with_context
    kind.examples.extend([_example(example) for example in examples])
    if context is not None:
        given.example_list_with_context.context.CopyFrom(_example(context))
    return given


def _example(features: Features) -> Any:
    example = Example()
    for name, value in features.items():
        feature = example.features.feature[name]
        values = np.asarray(value, object).reshape(-1).tolist()
        if all(isinstance(value, bytes | str) for value in values):
            texts = [value.encode() if isinstance(value, str) else value for value in values]
            feature.bytes_list.value.extend(texts)
        elif all(isinstance(value, int | np.integer) for value in values):
            feature.int64_list.value.extend(values)
        else:
            try:
                feature.float_list.value.extend([float(value) for value in values])
            except (TypeError, ValueError):
                raise Error("feature-mixed", name=name) from None
    return example
