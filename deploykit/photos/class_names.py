"""What the classes of a model are called."""

import os
from collections.abc import Sequence

from deploykit.transforms.core.errors import GraphError, counts_differ
from deploykit.transforms.core.files.reading import read_text


def labels_from(labels: str | os.PathLike[str] | Sequence[str]) -> list[str]:
    """Return names of classes; a path is that of a file as `read_labels` takes it."""
    return read_labels(labels) if isinstance(labels, str | os.PathLike) else list(labels)


def read_labels(path: str | os.PathLike[str]) -> list[str]:
    """Return the lines of a file: line n is the name of class n. GraphError: it is no such file."""
    text = read_text(path, "file with a label on each line")
    lines = [line.strip() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise GraphError("file-empty", source=path, expected="a label on each line")
    return lines


def check_labels(labels: Sequence[str], scores: int, output: str) -> None:
    """Raise GraphError where there are labels, but not one for each score of an output."""
    if labels and len(labels) != scores:
        raise counts_differ("labels", len(labels), scores, "scores")
