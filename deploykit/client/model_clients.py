"""Clients for the protocols of a server, and the requests of a load test."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from numpy.typing import ArrayLike

from deploykit.client.request_inputs import chosen_signature, described_by, feeds_from_data
from deploykit.data.preprocessing import with_header
from deploykit.serving.client.client import Client, predict_request
from deploykit.serving.client.endpoint import Connection, Endpoint
from deploykit.serving.client.inference_client import UNNAMED, InferenceClient
from deploykit.serving.client.load_generator import LoadTarget
from deploykit.serving.protocol.signatures import Signature
from deploykit.storage.csv_files import HeaderRule


def model_client(address: str, connection: Connection) -> Client | InferenceClient:
    """Return a client for a server. Error: the address is not valid for the protocol."""
    return (InferenceClient if connection.protocol == "v2" else Client)(address, connection)


def chosen_of(
    client: Client | InferenceClient, model: str, signature: str | None, given: Any, **version: Any
) -> tuple[str, Signature]:
    """Return the signature name for requests, and the signature itself.

    In the Open Inference Protocol, the name is empty unless the caller gives one. If a server does
    not describe the model's inputs, they are derived from `given`.

    GraphError: the signature does not exist. CallError: the server, model or version does not
    exist.
    """
    if not isinstance(client, InferenceClient):
        return chosen_signature(client.metadata(model, **version), signature)
    if signature:
        return chosen_signature(client.signatures(model, **version), signature)
    result = client.metadata(model, **version)[UNNAMED]
    return "", result if result.inputs else replace(result, inputs=described_by(given))


class CallOptions(Protocol):
    """Model version, preprocessing, header and columns of tables, and batch of requests."""

    @property
    def version(self) -> int | None: ...  # noqa: D102

    @property
    def version_label(self) -> str: ...  # noqa: D102

    @property
    def signature(self) -> str | None: ...  # noqa: D102

    @property
    def preprocess(self) -> Any: ...  # noqa: D102

    @property
    def header(self) -> HeaderRule: ...  # noqa: D102

    @property
    def columns(self) -> Mapping[str, str]: ...  # noqa: D102

    @property
    def batch(self) -> int: ...  # noqa: D102


@dataclass(frozen=True)
class PreparedCalls:
    """The requests of a load test, and their target; failed requests are not retried."""

    signature: str
    takes: Signature
    requests: Sequence[Any]
    endpoint: LoadTarget
    fed: Mapping[str, str]
    """Preprocessing of the files for each input, in words."""


def prepared_calls(
    address: str,
    model: str,
    data: str | os.PathLike[str] | Mapping[str, ArrayLike],
    how: CallOptions,
    connection: Connection,
) -> PreparedCalls:
    """Build the requests of a load test, and send one of them.

    CallError: the server, model or version does not exist, or the model refuses the request.
    FileError, GraphError: the data do not fit.
    """
    requested: Any = {"version": how.version, "label": how.version_label}
    with model_client(address, connection) as client:
        signature, takes = chosen_of(client, model, how.signature, data, **requested)
        feeds, fed = feeds_from_data(
            data, takes, with_header(how.preprocess, how.header, how.columns), how.batch
        )
        requested["signature"] = signature
        client.predict(model, feeds[0], **requested)
        target: LoadTarget
        requests: Sequence[Any]
        if isinstance(client, InferenceClient):
            target, requests = client.load(model, feeds, **requested)
        else:
            requests = [predict_request(model, f, **requested).SerializeToString() for f in feeds]
            target = Endpoint(address, replace(connection, retries=0))
    return PreparedCalls(signature or UNNAMED, takes, requests, target, fed)
