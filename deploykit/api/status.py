"""How a server and its models are."""

from typing import Any

from deploykit.calling.model_clients import model_client
from deploykit.calling.server_status import ModelVersions, ServedModels, ServerHealth, answers
from deploykit.serving.client.client import Client
from deploykit.serving.client.connection import DEFAULT_CONNECTION, Connection
from deploykit.serving.client.endpoint import CallError
from deploykit.serving.client.inference_client import InferenceClient
from deploykit.serving.client.rest_client import RestClient, is_rest
from deploykit.serving.protocol.version_status import VersionStatus
from deploykit.storage.parameters import with_options
from deploykit.transforms.core.errors import Error


def status(
    address: str,
    model: str | None = None,
    *,
    version: int | None = None,
    version_label: str = "",
    connection: Connection = DEFAULT_CONNECTION,
    **options: Any,
) -> ServerHealth | ServedModels | ModelVersions:
    """Say how a server is, or the versions of one of its models and what they take.

    Where the server does not serve, or no version of the model answers, the result has a `problem`,
    with which the command ends.

    Args:
        address: `host:port` or `unix:path` of gRPC, or a URL of REST: `http://host:port`.
        model: the name under which it is served; default: over REST, all models, which a server of
            deploykit lists; over gRPC, the health service, which TensorFlow Serving has on request;
            with `protocol="v2"`, whether the server is live and ready.
        version: one version alone; default: all.
        version_label: the label of the version instead, such as `stable`.
        connection: how the server is spoken to.
        options: fields of `Connection`, such as `timeout` (in seconds).

    CallError: there is no such server, model or version.

    Example:
        >>> with deploykit.serve("models", port=0) as server:
        ...     found = deploykit.status(server.address, "half_plus_two")
        >>> found.versions[0].state
        'AVAILABLE'
        >>> found.signatures["serving_default"].inputs["x"].shape
        (-1, 1)
    """
    (connection,) = with_options("status", options, connection)
    if model is None and (version is not None or version_label):
        raise Error("version-needs-model")
    if is_rest(address) and connection.protocol == "tensorflow":
        rest = RestClient(address, connection)
        if model is None:
            return ServedModels(address, {name: _versions(rest, name) for name in rest.models()})
        states = rest.status(model, version, version_label)
        signatures = rest.metadata(model, version, version_label) if answers(states) else {}
        return ModelVersions(address, model, states, signatures)
    with model_client(address, connection) as client:
        if model is None:
            return _health(address, client)
        found = client.status(model, version=version, label=version_label)
        ready = answers(found)
        signatures = client.metadata(model, version=version, label=version_label) if ready else {}
        return ModelVersions(address, model, found, signatures)


def _health(address: str, client: Client | InferenceClient) -> ServerHealth:
    """Return how a server is that does not list its models."""
    if isinstance(client, Client):
        return ServerHealth(address, client.health())
    live, ready, name = client.server()
    return ServerHealth(address, "SERVING" if live and ready else "NOT_SERVING", live, name)


def _versions(rest: RestClient, model: str) -> list[VersionStatus]:
    """Return the versions of a model that is listed; it may have none."""
    try:
        return rest.status(model)
    except CallError as error:
        if error.status == "NOT_FOUND":
            return []
        raise
