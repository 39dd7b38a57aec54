"""A client of any server of the Open Inference Protocol (KServe v2), over gRPC or HTTP.

It has those methods of `client.Client` that the commands use. Versions of such servers have names.
The protocol has no signatures: deploykit's server takes the signature as a parameter.
"""

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from deploykit.serving.client.client import Client, model_spec
from deploykit.serving.client.endpoint import MODEL_INFER, CallError, Connection, Endpoint
from deploykit.serving.client.http_inference import HttpInference
from deploykit.serving.client.load_generator import LoadTarget
from deploykit.serving.client.rest_client import RestClient, is_rest
from deploykit.serving.protocol.errors import SERVED_HERE, ServingError
from deploykit.serving.protocol.open_inference import INFERENCE_SERVICE, InferRequest, message
from deploykit.serving.protocol.open_inference_client import (
    of_outputs,
    read_response,
    signature_of,
    write_request,
)
from deploykit.serving.protocol.signatures import Signature
from deploykit.serving.protocol.versions import AVAILABLE, NamedVersion
from deploykit.transforms.ir.tensors import Array

_NUMBER = re.compile("0|[1-9][0-9]{0,17}")
UNNAMED = "default"
"""The signature name in results for a server whose protocol has no signatures."""
NOT_READY = "NOT_READY"
"""The state of a version of which the server only reports that it is not ready."""


class InferenceClient:
    """A connection to a server. The address selects gRPC or HTTP."""

    def __init__(self, address: str, connection: Connection) -> None:
        """Check the address; connect later. Raises the errors of `Client` and `RestClient`."""
        self._address, self._connection = address, connection
        self._wire = (HttpInference if is_rest(address) else GrpcInference)(address, connection)

    def server(self) -> tuple[bool, bool, str]:
        """Return (live, ready, name of the server). CallError: the server cannot be reached."""
        live, ready = self._wire.call("ServerLive").live, self._wire.call("ServerReady").ready
        with contextlib.suppress(CallError):  # some servers do not implement ServerMetadata
            about = self._wire.call("ServerMetadata")
            return live, ready, f"{about.name} {about.version}".strip()
        return live, ready, ""

    def status(
        self, model: str, *, version: int | None = None, label: str = ""
    ) -> list[NamedVersion]:
        """Return the versions that the server lists, or the requested one, ready or not.

        A server may list none; the only version is then named "". CallError: the server, model or
        version does not exist.
        """
        requested = _version(model, version, label)
        is_ready = self._is_ready(model, requested)
        try:
            versions = (
                [requested] if requested else self._wire.call("ModelMetadata", model).versions
            )
        except CallError as error:
            if not is_ready and f"versions of {model} {SERVED_HERE}" in str(error):
                return []
            raise
        if requested and not is_ready:
            self._wire.call(
                "ModelMetadata", model, requested
            )  # raises an error if the model does not exist
        return [
            NamedVersion(
                int(version) if _NUMBER.fullmatch(version) else version,
                AVAILABLE if self._is_ready(model, version) else NOT_READY,
            )
            for version in versions or [""]
        ]

    def metadata(
        self, model: str, *, version: int | None = None, label: str = ""
    ) -> dict[str, Signature]:
        """Return the inputs and outputs of a model. CallError: as in `status`."""
        requested = _version(model, version, label)
        return {UNNAMED: signature_of(self._wire.call("ModelMetadata", model, requested))}

    def signatures(
        self, model: str, *, version: int | None = None, label: str = ""
    ) -> dict[str, Signature]:
        """Return signatures by name, over the TensorFlow Serving API of deploykit's server.

        CallError: the server does not have that API.
        """
        connection = replace(self._connection, protocol="tensorflow")
        if is_rest(self._address):
            return RestClient(self._address, connection).metadata(model, version, label)
        with Client(self._address, connection) as client:
            return client.metadata(model, version=version, label=label)

    def predict(
        self,
        model: str,
        inputs: Mapping[str, Array],
        *,
        version: int | None = None,
        label: str = "",
        signature: str = "",
        outputs: Sequence[str] = (),
    ) -> dict[str, Array]:
        """Return outputs by name; strings are bytes. CallError: as in `status`, or refused."""
        requested = _version(model, version, label)
        request = InferRequest(model, requested, signature, inputs=inputs, outputs=outputs)
        try:
            return self._wire.infer(request)
        except ServingError as error:
            raise CallError(
                "response-damaged", "DATA_LOSS", source=self._address, reason=of_outputs(error)
            ) from None

    def load(
        self,
        model: str,
        feeds: Sequence[Mapping[str, Array]],
        *,
        version: int | None = None,
        label: str = "",
        signature: str = "",
    ) -> tuple[LoadTarget, Sequence[Any]]:
        """Return the target of a load test and its requests."""
        requested = _version(model, version, label)
        return self._wire.load(
            [InferRequest(model, requested, signature, inputs=feed) for feed in feeds]
        )

    def close(self) -> None:
        """Close the connection."""
        self._wire.close()

    def __enter__(self) -> "InferenceClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _is_ready(self, model: str, version: str) -> bool:
        try:
            return bool(self._wire.call("ModelReady", model, version).ready)
        except CallError as error:
            if error.status in ("NOT_FOUND", "INVALID_ARGUMENT"):
                return False
            raise


class GrpcInference:
    """Calls a server of the Open Inference Protocol over gRPC."""

    def __init__(self, address: str, connection: Connection) -> None:
        self._endpoint = Endpoint(address, connection, MODEL_INFER)
        self._channel = self._endpoint.channel()

    def call(self, method: str, name: str = "", version: str = "") -> Any:
        """Return the response of a method. CallError: the request failed."""
        request = message(f"{method}Request")(
            **({"name": name, "version": version} if name else {})
        )
        call = self._channel.unary_unary(
            f"/{INFERENCE_SERVICE}/{method}",
            request_serializer=lambda given: given.SerializeToString(),
            response_deserializer=message(f"{method}Response").FromString,
        )
        return self._endpoint.call(call, request)

    def infer(self, requested: InferRequest) -> dict[str, Array]:
        """Return the outputs. ServingError: they are damaged. CallError: the request failed."""
        call = self._channel.unary_unary(MODEL_INFER)
        return read_response(self._endpoint.call(call, write_request(requested)))

    def load(self, requested: Sequence[InferRequest]) -> tuple[LoadTarget, Sequence[bytes]]:
        """Return the target of a load test and its serialized requests."""
        endpoint = replace(self._endpoint, connection=replace(self._endpoint.connection, retries=0))
        return endpoint, [write_request(item) for item in requested]

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()


def _version(model: str, version: int | None, label: str) -> str:
    """Return a version or label as text. Error: both are given."""
    model_spec(model, version, label)
    return label if version is None else str(version)
