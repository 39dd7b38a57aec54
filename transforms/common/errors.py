"""The errors of graph work, each with the exit status that the command line gives it.

Error                  2  wrong usage or a bad model
  GraphError           2  a graph that is not well formed, or that lacks what was asked for
    LoadError          2  a graph that TensorFlow does not import
    MismatchError      2  a file that describes another model than the one it is used with
    CrashError         2  a graph on which TensorFlow's process died
  PipelineError        2  a transform string that cannot be run
  RefusedError         3  a graph that deploykit declines to touch, by policy
  FileError            4  a file that cannot be read or written
  VerificationError    5  a result that differs from its reference by more than the bar
    UnverifiedError    5  a result that was compared with nothing, or with answers that are wrong
    NotQuantizedError  5  a model for which float32 is the right result of quantization
  LimitError           6  a run that took more time or memory than allowed
BugError               1  our own code failed where a model is run
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
    """An error with a `code` and `fields`; `messages.json` holds the sentence of each code.

    A text that is no code of it is the message itself, as in an error that a user's own transform
    raises; its code is then that of the class. A `source` among the fields is where it was found,
    such as a path, and the sentence begins with it.

    Example:
        >>> GraphError("unknown-name", source="model.pb", kind="node", name="a", hint="", known=[])
    """

    exit_status = 1
    fields: Mapping[str, Plain] = MappingProxyType({})

    def __init__(self, code: str = "", /, **fields: object) -> None:
        """Keep the code, and the fields as JSON has them."""
        super().__init__(code)
        self.fields = {name: plain(value) for name, value in fields.items()}

    @property
    def code(self) -> str:
        """The problem, as a name that does not change; that of the class where it has none."""
        given = self.args[0] if self.args else ""
        return str(given) if messages.template(given) is not None else default_code(type(self))

    def __str__(self) -> str:
        """Return the sentence."""
        given = self.args[0] if self.args else ""
        template = messages.template(given)
        result = None if template is None else messages.render(template, self.fields)
        message = super().__str__() if result is None else result
        source = self.fields.get("source")
        return f"{source}: {message}" if source else message

    def __repr__(self) -> str:
        """Return what would make it."""
        arguments = [*map(repr, self.args), *(f"{k}={v!r}" for k, v in self.fields.items())]
        return f"{type(self).__name__}({', '.join(arguments)})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Be the same in another process, whatever its class takes to be made."""
        return _restored, (type(self), self.args, self.__dict__)

    def within(self, source: object = "", kind: "type[CodedError] | None" = None) -> Self:
        """Return the same error, found in `source`; as another class, where `kind` is given."""
        changed: Any = copy.copy(self)
        if sources := [str(item) for item in (source, self.fields.get("source")) if item]:
            changed.fields = {**self.fields, "source": ": ".join(sources)}
        if kind is not None:
            changed.__class__ = kind
        return changed  # type: ignore[no-any-return]

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "code": self.code,
            "class": type(self).__name__,
            "message": str(self),
            "exit_status": self.exit_status,
            "fields": {name: _finite(value) for name, value in self.fields.items()},
        }


def _finite(value: Plain) -> Plain:
    """Return a value without numbers that JSON has not."""
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _restored(kind: type[CodedError], args: tuple[Any, ...], state: dict[str, Any]) -> CodedError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def default_code(kind: type[BaseException]) -> str:
    """Return the code of an error with a text of its own: "graph-error" of a GraphError."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", kind.__name__).lower()


def plain(value: object) -> Plain:
    """Return a value as JSON has it: a path, and whatever else it has not, as text."""
    if value is None or isinstance(value, bool):
        return value
    for kind in (str, int, float):
        if isinstance(value, kind):  # a subclass may be unknown to whoever reads it
            return kind(value)
    if callable(item := getattr(value, "item", None)) and getattr(value, "ndim", 1) == 0:
        return plain(item())  # a number of NumPy
    if isinstance(value, Collection | Iterator) and not isinstance(value, bytes):
        return [plain(item) for item in value]
    return str(value)


class Error(CodedError):
    """Something the user can act on; the message is one sentence."""

    exit_status = 2


class GraphError(Error):
    """The graph is not well formed, or has no such node or tensor."""


class LoadError(GraphError):
    """TensorFlow does not import the graph, whatever it would be fed."""


class CrashError(GraphError):
    """TensorFlow's process died while it loaded or ran the graph."""


class MismatchError(GraphError):
    """A file describes other content than that of the file that it is used with."""


class PipelineError(Error):
    """The transform string does not parse, or names what does not exist."""

    def __init__(
        self, code: str = "", /, text: str = "", position: int | None = None, **fields: object
    ) -> None:
        """With `position`, keep the line of `text` and the column, which a caret shows."""
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
        """Return the sentence, and below it the line and the caret."""
        message = super().__str__()
        if "column" not in self.fields:
            return message
        return f"{message}\n  {self.fields['line']}\n  {' ' * int(str(self.fields['column']))}^"


class MissingPackageError(Error):
    """An optional package is not installed; the text names the extra that brings it."""


class RefusedError(Error):
    """What was asked for is possible but unsafe or unwise, so it is not done."""

    exit_status = 3


class FileError(Error):
    """A file cannot be read or written."""

    exit_status = 4


class VerificationError(Error):
    """A result differs from its reference by more than the bar."""

    exit_status = 5


class StepError(VerificationError):
    """A step of a pipeline made a graph that differs from the model by more than the bar."""

    def __init__(self, code: str = "", /, *, step: str = "", **fields: object) -> None:
        """Keep the transform as well; empty: it is freezing."""
        super().__init__(code, step=step, **fields)

    @property
    def step(self) -> str:
        """The transform; empty: it is freezing."""
        return str(self.fields.get("step", ""))

    @property
    def reason(self) -> str:
        """What is wrong with its result."""
        return str(self.fields.get("reason", ""))


class UnverifiedError(VerificationError):
    """Nothing was compared, or the reference's own answers cannot be right."""


class NotQuantizedError(VerificationError):
    """Float32 is the right result of quantization, so nothing is written without --allow-float."""

    def __init__(self, code: str = "", /, *, report: object = None, **fields: object) -> None:
        """Keep the report of what was tried as well."""
        super().__init__(code, **fields)
        self.report = report


class LimitError(Error):
    """A run took more time or memory than allowed."""

    exit_status = 6


class BugError(CodedError):
    """Our own code failed in a child process, which is no fault of the graph: exit status 1."""


# How TensorFlow, oneDNN (its status 1), protobuf, C++, NumPy and the system say that there is no
# memory left.
_NO_MEMORY = re.compile(
    r"bad_alloc|MemoryError|OOM when allocating|out of memory|arena alloc failed|Memory allocation"
    r"|(cannot|failed to|unable to|could not) allocate|not enough memory|thread creation .*failed"
    r"|can't start new thread|pthread_create|Status: 1, message: could not"
    r"|failed to serialize proto",
    re.IGNORECASE,
)


def says_no_memory(text: str) -> bool:
    """Say whether a message of another program or library means that memory ran out."""
    return _NO_MEMORY.search(text) is not None


def lacks_memory(error: BaseException) -> bool:
    """Say whether something failed because a process may take no more memory, whoever says so."""
    kinds = {item.__name__ for item in type(error).__mro__}
    if kinds & {"MemoryError", "ResourceExhaustedError", "LimitError"}:
        return True
    return getattr(error, "errno", None) == errno.ENOMEM or says_no_memory(str(error))


def failed(code: str, error: BaseException, /, **fields: object) -> Error:
    """Return the error for what a library raised: of the graph, or of the memory that ran out."""
    graph_error = GraphError(code, **fields)
    return (
        LimitError("not-enough-memory", reason=graph_error) if lacks_memory(error) else graph_error
    )


def unknown_name(kind: str, name: object, known: Iterable[str], hint: str = "") -> GraphError:
    """Return the error for a name that is not among those there are; `hint` is of `nearest`."""
    return GraphError("unknown-name", kind=kind, name=name, hint=hint, known=known)


def counts_differ(what: str, count: int, other_count: int, other: str = "samples") -> GraphError:
    """Return the error for two things of which there should be as many."""
    return GraphError("counts-differ", what=what, count=count, other=other, other_count=other_count)


def cannot_be(action: str, path: object, error: OSError) -> FileError:
    """Return the error for a file that the system does not let be written, made, renamed..."""
    reason = error.strerror or error
    return FileError("file-action-failed", source=path, action=action, reason=reason)


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Let a GraphError of the block begin with the path of what is wrong, unless it does."""
    try:
        yield
    except GraphError as error:
        if not path or str(error).startswith(f"{path}:"):
            raise
        raise error.within(path) from None


def nearest(name: str, known: list[str] | tuple[str, ...]) -> str:
    """Return a hint such as ` (did you mean a or b?)`, or an empty string."""
    import difflib

    close = difflib.get_close_matches(name, known[:20_000], n=3, cutoff=0.6)
    close = close or [item for item in known if name and item.startswith(name)][:3]
    return _hint(close)


def misspelt(name: str, known: list[str] | tuple[str, ...]) -> str:
    """Return such a hint for names one or two letters away; of short names, one."""
    import difflib

    most = 2 if len(name) > 5 else 1
    close = difflib.get_close_matches(name, known[:20_000], n=3, cutoff=0.6)
    return _hint([item for item in close if _distance(name, item) <= most])


def _hint(close: list[str]) -> str:
    return f" (did you mean {' or '.join(close)}?)" if close else ""


def _distance(one: str, other: str) -> int:
    """Return how many letters must be put in, left out or replaced."""
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        before, row = row, [i]
        for j, item in enumerate(other, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (letter != item)))
    return row[-1]
