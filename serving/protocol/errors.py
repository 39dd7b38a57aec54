"""What a server answers instead of a result: a status code of gRPC and one message.

The data plane raises it, gRPC and REST translate it; no other place maps errors to codes.
"""

import logging

from deploykit.transforms.common.errors import CodedError, Error

logger = logging.getLogger("deploykit")

OK = "OK"
MESSAGE_LENGTH = 1024  # TensorFlow Serving cuts there

SERVED_HERE = "served here"
"""Stands in what a server of ours says of a model or version that it lacks, before those it has."""

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
"""Of REST, as TensorFlow Serving's http_server.cc has them; others are 500."""


_CODES = {404: "NOT_FOUND", 408: "DEADLINE_EXCEEDED", 409: "ABORTED", 413: "RESOURCE_EXHAUSTED",
          429: "RESOURCE_EXHAUSTED", 431: "RESOURCE_EXHAUSTED", 499: "CANCELLED",
          501: "UNIMPLEMENTED", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}  # fmt: skip


def code_of(http_status: int) -> str:
    """Return the code of gRPC that is nearest to a status of REST."""
    if http_status < 400:
        return OK
    return _CODES.get(http_status, "INVALID_ARGUMENT" if http_status < 500 else "INTERNAL")


def shortened(message: str) -> str:
    """Return what callers hear of a message, which may repeat what they sent."""
    return message[:MESSAGE_LENGTH]


class ServingError(CodedError):
    """A request that is answered with a status, a name of grpc.StatusCode, and a message."""

    def __init__(self, status: str = "INTERNAL", code: str = "", /, **fields: object) -> None:
        """Keep the status; the message is cut at 1024 characters."""
        super().__init__(code, **fields)
        self.status = status

    def __str__(self) -> str:
        """Return the sentence that the caller reads."""
        return shortened(super().__str__())

    @property
    def message(self) -> str:
        """The sentence that the caller reads."""
        return str(self)

    @classmethod
    def of(cls, status: str, error: CodedError, source: object = "") -> "ServingError":
        """Return what a request is answered with that ends with another error."""
        result = cls(status, *error.args)
        result.fields = error.fields
        return result.within(source) if source else result

    @property
    def http_status(self) -> int:
        """The status of REST."""
        return HTTP_STATUS.get(self.status, 500)


def refused(code: str, /, **fields: object) -> ServingError:
    """Return the error for a request that is not what it should be."""
    return ServingError("INVALID_ARGUMENT", code, **fields)


def reported(error: Exception) -> ServingError:
    """Return what the caller hears of an error; one of ours is logged, and never UNKNOWN.

    It has no traceback any more, which would keep the request as long as both know each other.
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
    logger.warning("a call failed: %s", serving_error)
    return serving_error
