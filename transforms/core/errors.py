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
import errno
import os
import re
from collections.abc import Iterator


class Error(Exception):
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

    def __init__(self, message: str, text: str = "", position: int | None = None) -> None:
        """Keep the message; with `position`, add the line of `text` and a caret below it."""
        if position is not None:
            start = text.rfind("\n", 0, position) + 1
            line = text[start:].split("\n", 1)[0]
            message = f"{message}\n  {line}\n  {' ' * (position - start)}^"
        super().__init__(message)


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

    def __init__(self, message: str, step: str, reason: str) -> None:
        """Keep the message, the transform ("" for freezing), and what is wrong with its result."""
        super().__init__(message)
        self.step = step
        self.reason = reason


class UnverifiedError(VerificationError):
    """Nothing was compared, or the reference's own answers cannot be right."""


class NotQuantizedError(VerificationError):
    """Float32 is the right result of quantization, so nothing is written without --allow-float."""

    def __init__(self, message: str, report: object = None) -> None:
        """Keep the message, and the report of what was tried."""
        super().__init__(message)
        self.report = report


class LimitError(Error):
    """A run took more time or memory than allowed."""

    exit_status = 6


class BugError(Exception):
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
    kinds = {each.__name__ for each in type(error).__mro__}
    if kinds & {"MemoryError", "ResourceExhaustedError", "LimitError"}:
        return True
    return getattr(error, "errno", None) == errno.ENOMEM or says_no_memory(str(error))


def failed(message: str, error: BaseException) -> Error:
    """Return the error for what a library raised: of the graph, or of the memory that ran out."""
    if lacks_memory(error):
        return LimitError(f"{message} (there is not enough memory; see --memory-limit)")
    return GraphError(message)


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Let a GraphError of the block begin with the path of what is wrong, unless it does."""
    try:
        yield
    except GraphError as error:
        if not path or str(error).startswith(f"{path}:"):
            raise
        raise GraphError(f"{path}: {error}") from None


def nearest(name: str, known: list[str] | tuple[str, ...]) -> str:
    """Return a hint such as ` (did you mean a or b?)`, or an empty string."""
    import difflib

    close = difflib.get_close_matches(name, known[:20_000], n=3, cutoff=0.6)
    close = close or [each for each in known if name and each.startswith(name)][:3]
    return _hint(close)


def misspelt(name: str, known: list[str] | tuple[str, ...]) -> str:
    """Return such a hint for names one or two letters away; of short names, one."""
    import difflib

    most = 2 if len(name) > 5 else 1
    close = difflib.get_close_matches(name, known[:20_000], n=3, cutoff=0.6)
    return _hint([each for each in close if _distance(name, each) <= most])


def _hint(close: list[str]) -> str:
    return f" (did you mean {' or '.join(close)}?)" if close else ""


def _distance(one: str, other: str) -> int:
    """Return how many letters must be put in, left out or replaced."""
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        before, row = row, [i]
        for j, each in enumerate(other, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (letter != each)))
    return row[-1]
