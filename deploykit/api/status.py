"""How a server and its models are."""

from typing import Annotated

from deploykit.api.public import Command, public
from deploykit.calling.model_clients import model_client
from deploykit.calling.server_status import ModelVersions, ServedModels, ServerHealth, answers
from deploykit.serving.client.client import Client
from deploykit.serving.client.connection import DEFAULT_CONNECTION, Connection
from deploykit.serving.client.endpoint import CallError
from deploykit.serving.client.inference_client import InferenceClient
from deploykit.serving.client.rest_client import RestClient, is_rest
from deploykit.serving.protocol.version_status import VersionStatus
from deploykit.transforms.core.display.flag import MOST_INT64, Flag
from deploykit.transforms.core.errors import Error


@public(Command(requires=(), has_limits=False))
def status(
    address: str,
    model: str | None = None,
    *,
    version: Annotated[int | None, Flag(at_least=0, at_most=MOST_INT64, heading="Server")] = None,
    version_label: Annotated[str, Flag(metavar="LABEL", heading="Server")] = "",
    connection: Connection = DEFAULT_CONNECTION,
) -> ServerHealth | ServedModels | ModelVersions:
    """Show whether a server is healthy, or which models and versions it serves.

    ADDRESS is host:port for gRPC, or a URL for REST. With MODEL, shows its versions and their
    inputs and outputs. Without MODEL, REST lists all models of a deploykit server; TensorFlow
    Serving has no such list. gRPC queries the health service, which TensorFlow Serving only has if
    it was started with it. With `protocol` v2, shows whether the server is live and ready. Exits
    with 5 if the server is not serving, or a model has no available version.

    Args:
        address: `host:port` or `unix:path` of gRPC, or a URL of REST: `http://host:port`.
        model: the name under which it is served; default: over REST, all models, which a server of
            deploykit lists; over gRPC, the health service, which TensorFlow Serving has on request;
            with `protocol="v2"`, whether the server is live and ready.
        version: Version of the model [default: the newest].
        version_label: Choose the version by its label, such as stable.
        connection: how the server is spoken to.

    CallError: there is no such server, model or version.

    Commands:
        deploykit status localhost:8500
        deploykit status localhost:8500 fashion
        deploykit status http://localhost:8501
        deploykit status http://localhost:8000 resnet --protocol v2

    Example:
        >>> with deploykit.serve("models", port=0) as server:
        ...     found = deploykit.status(server.address, "half_plus_two")
        >>> found.versions[0].state
        'AVAILABLE'
        >>> found.signatures["serving_default"].inputs["x"].shape
        (-1, 1)
    """
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
