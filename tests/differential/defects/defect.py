"""A defect of the original: a graph, a transform string, and what the two tools make of it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deploykit.transforms.ir.graph import Graph
from tests.differential.case import nothing
from tests.differential.judging import Right, Shown
from tests.differential.original import SECONDS

SOON = 5.0  # seconds after which the original counts as hanging; else it is done within one


@dataclass(frozen=True)
class Defect:
    """A line of docs/graph-transform-tool.md: what each tool does in words, and as a check."""

    transform: str
    what: str
    graph: Callable[[], Graph]
    transforms: str
    original: str
    shown: Shown
    deploykit: str
    right: Right
    ours: str = ""  # deploykit's string, where it is another
    outputs: str | None = None  # the list given to the original, where it is not the graph's own
    seconds: float = SECONDS
    files: Callable[[Path], None] = nothing  # see Case
