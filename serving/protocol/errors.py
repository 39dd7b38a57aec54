"""Error responses: a gRPC status code and one message.

The data plane raises them, and gRPC and REST convert them. No other module maps errors to codes.
"""

import json
import logging
from typing import Any

from deploykit.transforms.common.errors import CodedError, Error

logger = logging.getLogger("deploykit")

OK = "OK"
MESSAGE_LENGTH = 1024  # TensorFlow Serving truncates there
MAX_SHOWN = 60
"""Maximum number of characters of a value in a message."""

SERVED_HERE = "served here"
"""Precedes the list of available models or versions in messages of deploykit's server."""

HTTP_STATUS = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "NOT_FOUND": 404,
    "ABORTED": 409,
    "ALREADY_EXISTS": 409,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
"""HTTP status by gRPC code, as in TensorFlow Serving's http_server.cc; all others are 500."""


_CODES = {404: "NOT_FOUND", 408: "DEADLINE_EXCEEDED", 409: "ABORTED", 413: "RESOURCE_EXHAUSTED",
          429: "RESOURCE_EXHAUSTED", 431: "RESOURCE_EXHAUSTED", 499: "CANCELLED",
          501: "UNIMPLEMENTED", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}  # fmt: skip


def code_of(http_status: int) -> str:
    """Return the gRPC code that is nearest to an HTTP status."""
    if http_status < 400:
        return OK
    return _CODES.get(http_status, "INVALID_ARGUMENT" if http_status < 500 else "INTERNAL")


def shortened(message: str) -> str:
    """Return a message truncated for the client, as it may repeat parts of the request."""
    return message[:MESSAGE_LENGTH]


def shown(value: Any) -> str:
    """Return a value as text for a message; lists and objects are abbreviated."""
    if type(value) is list:
        return f"a list of {len(value)}"
    if type(value) is dict:
        return f"an object of {len(value)}"
    text = json.dumps(value[:MAX_SHOWN] if type(value) is str else value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


class ServingError(CodedError):
    """An error response: `status`, a name of grpc.StatusCode, and a message."""

    def __init__(self, status: str = "INTERNAL", code: str = "", /, **fields: object) -> None:
        """Store the status. The message is truncated to 1024 characters."""
        super().__init__(code, **fields)
        self.status = status

    def __str__(self) -> str:
        """Return the message for the client."""
        return shortened(super().__str__())

    @property
    def message(self) -> str:
        """The message for the client."""
        return str(self)

    @classmethod
    def of(cls, status: str, error: CodedError, source: object = "") -> "ServingError":
        """Return the error response for another error."""
        result = cls(status, *error.args)
        result.fields = error.fields
        return result.within(source) if source else result

    @property
    def http_status(self) -> int:
        """The HTTP status of the REST API."""
        return HTTP_STATUS.get(self.status, 500)


def refused(code: str, /, **fields: object) -> ServingError:
    """Return the error for an invalid request."""
    return ServingError("INVALID_ARGUMENT", code, **fields)


def reported(error: Exception) -> ServingError:
    """Return the error response for an exception. Unexpected ones are logged and never UNKNOWN.

    It has no traceback, whose reference cycle would keep the request in memory.
    """
    if isinstance(error, ServingError):
        return error.with_traceback(None)
    if isinstance(error, Error):
        return ServingError.of("INVALID_ARGUMENT", error)
    if isinstance(error, MemoryError):
        return ServingError("RESOURCE_EXHAUSTED", "out-of-memory")
    serving_error = ServingError(
        "INTERNAL", "call-failed-unexpectedly", kind=type(error).__name__, reason=error
    )
    logger.warning("a request failed: %s", serving_error)
    return serving_error
