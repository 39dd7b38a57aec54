"""Calls of a load, made from data and tried once: what is wrong is said before the load."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import ArrayLike

from deploykit.calling.model_clients import chosen_of, load_of, model_client
from deploykit.calling.request_inputs import feeds_from_data
from deploykit.serving.client.connection import Connection
from deploykit.serving.client.inference_client import UNNAMED
from deploykit.serving.client.load_generator import LoadTarget
from deploykit.serving.protocol.signatures import Signature


class CallOptions(Protocol):
    """Which version of a model is called, and with what."""

    @property
    def version(self) -> int | None: ...  # noqa: D102

    @property
    def version_label(self) -> str: ...  # noqa: D102

    @property
    def signature(self) -> str | None: ...  # noqa: D102

    @property
    def preprocess(self) -> Any: ...  # noqa: D102

    @property
    def batch(self) -> int: ...  # noqa: D102


@dataclass(frozen=True)
class PreparedCalls:
    """What a load sends in turn, and to whom; no call is repeated."""

    signature: str
    takes: Signature
    requests: Sequence[Any]
    endpoint: LoadTarget
    fed: Mapping[str, str]
    """What became of files on the way to each input, in words."""


def prepared_calls(
    address: str,
    model: str,
    data: str | os.PathLike[str] | Mapping[str, ArrayLike],
    how: CallOptions,
    connection: Connection,
) -> PreparedCalls:
    """Make the calls of a load, and make one of them.

    CallError: there is no such server, model or version, or the model refuses the call. FileError,
    GraphError: the data do not fit.
    """
    asked: Any = {"version": how.version, "label": how.version_label}
    with model_client(address, connection) as client:
        signature, takes = chosen_of(client, model, how.signature, data, **asked)
        feeds, fed = feeds_from_data(data, takes, how.preprocess, how.batch)
        asked["signature"] = signature
        client.predict(model, feeds[0], **asked)
        target, requests = load_of(client, model, feeds, address, connection, **asked)
    return PreparedCalls(signature or UNNAMED, takes, requests, target, fed)
