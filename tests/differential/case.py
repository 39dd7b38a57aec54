"""A case: a graph, and a transform string that both tools are given."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deploykit.transforms.ir.graph import Graph
from tests.support import assert_error


def nothing(folder: Path) -> None:
    """Write no files."""


def placed(text: str, folder: Path) -> str:
    """Return a transform string with the folder of a case's files in its place."""
    return text.replace("{folder}", str(folder))


@dataclass(frozen=True)
class Case:
    """What both tools make alike, but for the deviations that are named.

    `tolerance` holds for constants and for what the graphs compute, relative to the largest value;
    0 means equal bits. `files` writes what is read from the place that `{folder}` stands for.
    """

    what: str
    graph: Callable[[], Graph]
    transforms: str
    ours: str = ""  # deploykit's string, where it is another
    deviations: tuple[str, ...] = ()  # see deviations.py, in the order in which they apply
    tolerance: float = 0.0
    slow: bool = False
    files: Callable[[Path], None] = nothing


def error_of(code: str, /, **fields: object) -> Callable[[BaseException], None]:
    """Return a check of an error: its code, and some of its fields."""
    return lambda error: assert_error(error, code, **fields)


@dataclass(frozen=True)
class Refusal:
    """What both tools refuse: the original's message holds a text, the error here is coded."""

    what: str
    graph: Callable[[], Graph]
    transforms: str
    theirs: str
    ours: Callable[[BaseException], None]  # see `error_of`
    files: Callable[[Path], None] = nothing
