"""Error messages by code, the format of log lines, and escaping of text for terminals."""

import contextlib
import functools
import json
import logging
import re
import shlex
import string
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

_COMMAND = re.compile(
    r"^(\s*):(?=:[a-z-]+( .*)?::)|#(?=#(vso|teamcity)?\[)", re.IGNORECASE | re.MULTILINE
)
"""What CI servers read as a command in a line of a job's output: GitHub at the start of the line,
Azure Pipelines and TeamCity anywhere. Sources: their documentation of workflow commands, logging
commands and service messages."""


def escaped(text: str, keep: str = "") -> str:
    r"""Return a text with non-printable characters as escapes such as `\x1b` or `\n`.

    These are control codes, bidirectional marks, and bytes of a file name that are not UTF-8. The
    characters of `keep` are not escaped. What would be a command to a CI server is escaped too.
    """
    if not text.isprintable():
        text = "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)
    if "##" in text or "::" in text:
        text = _COMMAND.sub(lambda match: f"{match[1] or ''}\\x{ord(match[0][-1]):02x}", text)
    return text


def shell_word(text: str) -> str:
    r"""Quote a text as one word of a shell command; Bash and Zsh read `$'\x1b'` back."""
    if text.isprintable():
        return shlex.quote(text)
    literal = text.replace("\\", "\\\\").replace("'", "\\'")
    pieces = [c if c.isprintable() else c.encode("utf-8", "surrogateescape") for c in literal]
    # octal escapes of bytes: the digits that follow cannot change them
    escapes = [p if isinstance(p, str) else "".join(f"\\{b:03o}" for b in p) for p in pieces]
    return f"$'{''.join(escapes)}'"


def shell_command(*words: str) -> str:
    """Return a shell command with quoted words."""
    return " ".join(map(shell_word, words))


CATALOGUE = Path(__file__).with_name("messages.json")


@functools.cache
def catalogue() -> dict[str, str]:
    """Return the templates by code; the file is read when the first error is shown."""
    messages: dict[str, str] = json.loads(CATALOGUE.read_bytes())
    return messages


def template(code: object) -> str | None:
    """Return the template of a code; None: the code is unknown."""
    return catalogue().get(code) if isinstance(code, str) else None


class _MessageFormatter(string.Formatter):
    def get_value(self, key: int | str, args: Any, kwargs: Mapping[str, Any]) -> Any:
        return kwargs.get(str(key), "?")

    def convert_field(self, value: Any, conversion: Any) -> Any:
        if conversion == "q":
            return [f"'{item}'" for item in (value if isinstance(value, list) else [value])]
        return super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec == "plural":
            return "" if value == 1 else "s"
        if isinstance(value, list) and format_spec:
            between = ", " if format_spec == "," else format_spec
            return between.join(map(str, value)) or "none"
        try:
            return format(value, format_spec)
        except (TypeError, ValueError):  # such as None in place of a number
            return str(value)


def render(text: str, fields: Mapping[str, object]) -> str:
    """Return a template with its fields filled in."""
    return _MessageFormatter().vformat(text, (), fields)


def fields_of(text: str) -> set[str]:
    """Return the names of the fields in a template."""
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


logger = logging.getLogger("deploykit")


class _Formatter(logging.Formatter):
    """Format of log lines: `deploykit: warning: ...`; notes and debug lines have no level."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = f"{process}: " if process else ""

    def format(self, record: logging.LogRecord) -> str:
        level = "warning: " if record.levelno >= logging.WARNING else ""
        return f"deploykit: {self._process}{level}{escaped(record.getMessage())}"


class _Once(logging.Filter):
    """Passes each text once: stages of a command read the same files, and say the same of them.

    A record of an event that may happen again has `extra={"repeats": True}`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._printed: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        is_new = text not in self._printed or getattr(record, "repeats", False)
        if len(self._printed) < _REMEMBERED:
            self._printed.add(text)
        return is_new


_REMEMBERED = 10_000  # lines


def log_to_stderr(process: str = "", repeats: bool = True) -> None:
    """Print the log on stderr.

    Args:
        process: names the process in each line, if given.
        repeats: whether to print a line again that was printed before.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter(process))
    if not repeats:
        handler.addFilter(_Once())
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)


_seen: ContextVar[dict[str, str] | None] = ContextVar("seen", default=None)


@contextlib.contextmanager
def each_once() -> Iterator[None]:
    """Let `is_new` know what was reported since the outermost of these blocks was entered."""
    token = None if _seen.get() is not None else _seen.set({})
    try:
        yield
    finally:
        if token is not None:
            _seen.reset(token)


def is_new(key: str, text: str) -> bool:
    """Return whether a text is to be reported: in such a block, and not the last one of a key."""
    seen = _seen.get()
    if seen is None or seen.get(key) == text:
        return False
    seen[key] = text
    return True
