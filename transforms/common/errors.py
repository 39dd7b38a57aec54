"""The error classes, each with its exit status on the command line.

Error                  2  wrong usage or a bad model
  GraphError           2  a graph that is invalid, or that lacks a requested node or tensor
    LoadError          2  a graph that TensorFlow does not import
    MismatchError      2  a file that describes another model than the one it is used with
    CrashError         2  a graph on which TensorFlow's process died
  PipelineError        2  a transform string that cannot be run
  RefusedError         3  a graph that deploykit declines to touch, by policy
  FileError            4  a file that cannot be read or written
  VerificationError    5  a result that differs from its reference by more than the tolerance
    UnverifiedError    5  a result without a reference, or whose reference is wrong itself
    NotQuantizedError  5  a model for which float32 is the right result of quantization
  LimitError           6  a run that took more time or memory than allowed
  InconclusiveError    7  a comparison that the measured data does not decide
BugError               1  an internal error of deploykit in a child process
"""

import contextlib
import copy
import errno
import math
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Self, TypeAlias

from deploykit.transforms.common import messages

Plain: TypeAlias = "bool | int | float | str | list[Plain] | None"


class CodedError(Exception):
    """An error with a `code` and `fields`; `messages.json` contains the message of each code.

    A text that is not a code is itself the message, for example of an error in a user's transform;
    its code is then that of the class. The field `source` names the origin, such as a path: the
    message begins with it.

    Example:
        >>> GraphError("unknown-name", source="model.pb", kind="node", name="a", hint="", known=[])
    """

    exit_status = 1
    fields: Mapping[str, Plain] = MappingProxyType({})

    def __init__(self, code: str = "", /, **fields: object) -> None:
        """Store the code, and the fields as JSON values."""
        super().__init__(code)
        self.fields = {name: plain(value) for name, value in fields.items()}

    @property
    def code(self) -> str:
        """Stable name of the problem; without one, the code of the class."""
        given = self.args[0] if self.args else ""
        return str(given) if messages.template(given) is not None else default_code(type(self))

    def __str__(self) -> str:
        """Return the message."""
        given = self.args[0] if self.args else ""
        template = messages.template(given)
        result = None if template is None else messages.render(template, self.fields)
        message = super().__str__() if result is None else result
        source = self.fields.get("source")
        return f"{source}: {message}" if source else message

    def __repr__(self) -> str:
        """Return the expression that creates the error."""
        arguments = [*map(repr, self.args), *(f"{k}={v!r}" for k, v in self.fields.items())]
        return f"{type(self).__name__}({', '.join(arguments)})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error independently of the arguments of its class."""
        return _restored, (type(self), self.args, self.__dict__)

    def within(self, source: object = "", kind: "type[CodedError] | None" = None) -> Self:
        """Return the error with `source` as its origin; `kind` converts it to another class."""
        changed: Any = copy.copy(self)
        if sources := [str(item) for item in (source, self.fields.get("source")) if item]:
            changed.fields = {**self.fields, "source": ": ".join(sources)}
        if kind is not None:
            changed.__class__ = kind
        return changed  # type: ignore[no-any-return]

    def document(self) -> dict[str, Any]:
        """Return the error as a JSON object."""
        return {
            "code": self.code,
            "class": type(self).__name__,
            "message": str(self),
            "exit_status": self.exit_status,
            "fields": {name: _finite(value) for name, value in self.fields.items()},
        }


def _finite(value: Plain) -> Plain:
    """Replace the numbers that JSON cannot represent."""
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _restored(kind: type[CodedError], args: tuple[Any, ...], state: dict[str, Any]) -> CodedError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def default_code(kind: type[BaseException]) -> str:
    """Return the code of an error that has only a text: "graph-error" for a GraphError."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", kind.__name__).lower()


def plain(value: object) -> Plain:
    """Return a value as a JSON value; paths and other unsupported types become text."""
    if value is None or isinstance(value, bool):
        return value
    for kind in (str, int, float):
        if isinstance(value, kind):  # the reader may not know a subclass
            return kind(value)
    if callable(item := getattr(value, "item", None)) and getattr(value, "ndim", 1) == 0:
        return plain(item())  # a NumPy number
    if isinstance(value, Collection | Iterator) and not isinstance(value, bytes):
        return [plain(item) for item in value]
    return str(value)


class Error(CodedError):
    """An error that the user can fix; the message is one sentence."""

    exit_status = 2


class GraphError(Error):
    """The graph is invalid, or has no such node or tensor."""


class LoadError(GraphError):
    """TensorFlow cannot import the graph, independent of its inputs."""


class CrashError(GraphError):
    """The TensorFlow process died while it loaded or ran the graph."""


class MismatchError(GraphError):
    """A file describes another model than the one that it is used with."""


class PipelineError(Error):
    """The transform string does not parse, or names an unknown transform or parameter."""

    def __init__(
        self, code: str = "", /, text: str = "", position: int | None = None, **fields: object
    ) -> None:
        """Create the error; with `position`, store the line of `text` and the column."""
        super().__init__(code, **fields)
        if position is not None:
            self.fields: Mapping[str, Plain] = self.at(text, position).fields

    def at(self, text: str, position: int) -> "PipelineError":
        """Return the same error at a position of a transform string."""
        start = text.rfind("\n", 0, position) + 1
        changed = copy.copy(self)
        line = text[start:].split("\n", 1)[0]
        changed.fields = {**self.fields, "line": line, "column": position - start}
        return changed

    def __str__(self) -> str:
        """Return the message, and below it the line and the caret."""
        message = messages.escaped(super().__str__())
        if "column" not in self.fields:
            return message
        line, column = str(self.fields["line"]), int(str(self.fields["column"]))
        shown, before = messages.escaped(line), messages.escaped(line[:column])
        return f"{message}\n  {shown}\n  {' ' * len(before)}^"


class MissingPackageError(Error):
    """An optional package is not installed; the message names the extra that installs it."""


class RefusedError(Error):
    """The request is possible but unsafe, so deploykit refuses it."""

    exit_status = 3


class FileError(Error):
    """A file cannot be read or written."""

    exit_status = 4


class VerificationError(Error):
    """A result differs from its reference by more than the tolerance."""

    exit_status = 5


class StepError(VerificationError):
    """The graph after a pipeline step differs from the model by more than the tolerance."""

    def __init__(self, code: str = "", /, *, step: str = "", **fields: object) -> None:
        """Create the error and store the transform; an empty `step` means freezing."""
        super().__init__(code, step=step, **fields)

    @property
    def step(self) -> str:
        """The transform; an empty string means freezing."""
        return str(self.fields.get("step", ""))

    @property
    def reason(self) -> str:
        """The difference that was found."""
        return str(self.fields.get("reason", ""))


class UnverifiedError(VerificationError):
    """There was nothing to compare with, or the reference outputs are wrong themselves."""


class NotQuantizedError(VerificationError):
    """Float32 is the right result of quantization, so nothing is written without --allow-float."""

    def __init__(self, code: str = "", /, *, report: object = None, **fields: object) -> None:
        """Create the error and store the report of the candidates that were tried."""
        super().__init__(code, **fields)
        self.report = report


class LimitError(Error):
    """A run took more time or memory than allowed."""

    exit_status = 6


class InconclusiveError(Error):
    """The measured data does not decide a comparison."""

    exit_status = 7


class BugError(CodedError):
    """An internal error of deploykit in a child process, not caused by the graph: exit status 1."""


# Out-of-memory messages of TensorFlow, oneDNN (its status 1), protobuf, C++, NumPy and the loader
# of shared libraries.
_NO_MEMORY = re.compile(
    r"bad_alloc|MemoryError|OOM when allocating|out of memory|arena alloc failed|Memory allocation"
    r"|(cannot|failed to|unable to|could not) allocate|not enough memory|thread creation .*failed"
    r"|can't start new thread|pthread_create|Status: 1, message: could not"
    r"|failed to map segment|mmap error: 12|libgcc_s.so.1 must be installed"
    r"|failed to serialize proto",
    re.IGNORECASE,
)


def reports_no_memory(text: str) -> bool:
    """Return whether a message of another program or library reports that memory ran out."""
    return _NO_MEMORY.search(text) is not None


def lacks_memory(error: BaseException) -> bool:
    """Return whether an error of any library means that memory ran out."""
    kinds = {item.__name__ for item in type(error).__mro__}
    if kinds & {"MemoryError", "ResourceExhaustedError", "LimitError"}:
        return True
    return getattr(error, "errno", None) == errno.ENOMEM or reports_no_memory(str(error))


def failed(code: str, error: BaseException, /, **fields: object) -> Error:
    """Return the error for an exception of a library: a GraphError, or a LimitError for memory."""
    graph_error = GraphError(code, **fields)
    return (
        LimitError("not-enough-memory", reason=graph_error) if lacks_memory(error) else graph_error
    )


def unknown_name(kind: str, name: object, known: Iterable[str], hint: str = "") -> GraphError:
    """Return the error for an unknown name; `hint` is the result of `nearest`."""
    return GraphError("unknown-name", kind=kind, name=name, hint=hint, known=known)


def counts_differ(what: str, count: int, other_count: int, other: str = "samples") -> GraphError:
    """Return the error for two counts that must be equal."""
    return GraphError("counts-differ", what=what, count=count, other=other, other_count=other_count)


def cannot_be(action: str, path: object, error: OSError) -> FileError:
    """Return the error for a file that the system refuses to write, create or rename."""
    reason = error.strerror or error
    return FileError("file-action-failed", source=path, action=action, reason=reason)


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Prefix the message of a GraphError in the block with the path, unless it names one in it."""
    try:
        yield
    except GraphError as error:
        if not path or str(error).startswith((f"{path}:", f"{path}{os.sep}")):
            raise
        raise error.within(path) from None


def nearest(name: str, known: list[str] | tuple[str, ...]) -> str:
    """Return a hint such as ` (did you mean a or b?)`, or an empty string."""
    import difflib

    close = difflib.get_close_matches(name, known[:20_000], n=3, cutoff=0.6)
    close = close or [item for item in known if name and item.startswith(name)][:3]
    return _hint(close)


def misspelt(name: str, known: list[str] | tuple[str, ...]) -> str:
    """Return such a hint for names with one or two wrong letters; of short names, one."""
    return _hint(close_names(name, known))


def close_names(name: str, known: list[str] | tuple[str, ...]) -> list[str]:
    """Return up to three names with one or two other letters; one in names up to five letters."""
    import difflib

    most = 2 if len(name) > 5 else 1
    close = difflib.get_close_matches(name, known[:20_000], n=3, cutoff=0.6)
    return [item for item in close if _distance(name, item) <= most]


def _hint(close: list[str]) -> str:
    return f" (did you mean {' or '.join(close)}?)" if close else ""


def _distance(one: str, other: str) -> int:
    """Return the edit distance: the letters to insert, delete or replace."""
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        before, row = row, [i]
        for j, item in enumerate(other, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (letter != item)))
    return row[-1]
