"""The input pipeline that data call for, as a file that needs no deploykit."""

import os
from dataclasses import dataclass, fields
from typing import Any

from deploykit.freezing.interface import Source
from deploykit.freezing.open_model import open_model, path_of
from deploykit.input.data import open_data
from deploykit.input.input_benchmark import pipeline_for
from deploykit.input.pipeline import Pipeline
from deploykit.input.piping import PLAIN, Piping
from deploykit.input.writing import STYLES, written
from deploykit.storage.files import check_output, write
from deploykit.storage.parameters import with_options
from deploykit.text.progress import working
from deploykit.transforms.core.display.as_html import AsHtml
from deploykit.transforms.core.errors import GraphError

WRITTEN = ("preprocess", "shuffle", "cache", "buckets", "private_threads")
"""What of a `Piping` a written file does."""


@dataclass(frozen=True)
class WrittenInput(AsHtml):
    """A tf.data function for data."""

    text: str
    """Python, which imports TensorFlow alone (and NumPy for `.npz` files)."""
    style: str
    pipeline: Pipeline
    """What it does."""

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"style": self.style, "records": self.pipeline.data.records, "text": self.text}


def write_input(
    data: str | os.PathLike[str],
    *,
    model: Any = None,
    piping: Piping = PLAIN,
    batch: int | None = None,
    style: str = STYLES[0],
    output: str | os.PathLike[str] | None = None,
    force: bool = False,
    **options: Any,
) -> WrittenInput:
    """Write the recommended tf.data function for data.

    It builds the very dataset that `deploykit.benchmark(..., input="tfdata")` measures with the
    same options on this machine, and can be measured itself, as its `pipeline`.

    Args:
        data: a folder of TFRecords (`deploykit.convert_records`), of CSV files or of images, or an
            `.npz` file.
        model: whatever `open_model` takes; the batches fit its inputs. Default: one tensor for each
            feature of the data.
        piping: how files are read: `preprocess`, `shuffle`, `cache`, `buckets` and
            `private_threads`.
        batch: records at once; default: what the model demands, or 32.
        style: how batches are made: `tfdata`.
        output: a Python file to write too.
        force: whether to replace it where it exists.
        options: fields of `Piping`, such as `preprocess`, and of `Source`, such as `inputs`, which
            say which part of the model is meant.

    FileError: a file is missing, unreadable or cannot be written. GraphError: the data are of no
    known kind, or do not fit the model's inputs.

    Example:
        >>> found = deploykit.write_input("test_1000.npz", model="fashion.keras", batch=16)
        >>> "def " in found.text, found.pipeline.batch
        (True, 16)
    """
    source, piping = with_options("write_input", options, Source(None), piping)
    part = {name: getattr(source, name) for name in options if hasattr(source, name)}
    for each in fields(Piping):
        if each.name not in WRITTEN and getattr(piping, each.name) != getattr(PLAIN, each.name):
            raise GraphError("pipeline-option-conflicts", option=each.name)
    if model is None and part:
        raise GraphError("no-effect", option=next(iter(part)), where="with model")
    if style not in STYLES:
        raise GraphError("not-one-of", what="the style", known=STYLES, got=style)
    if output is not None:
        check_output(output, force, os.fspath(data), *path_of(model))
    with working("input write"):
        graph = None if model is None else open_model(model, **part).graph
        opened = open_data(os.fspath(data), piping.declared(graph).columns)
        pipeline = pipeline_for(opened, graph, batch=batch, piping=piping)
        found = WrittenInput(written(pipeline), style, pipeline)
    if output is not None:
        write(output, [found.text.encode()], force)
    return found
