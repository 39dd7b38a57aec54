"""The input pipeline that data call for, as a file that needs no deploykit."""

import os
from dataclasses import dataclass
from typing import Any

from deploykit.freezing.interface import Source
from deploykit.freezing.open_model import open_model, path_of
from deploykit.input.data import open_data
from deploykit.input.input_benchmark import pipeline_for
from deploykit.input.pipeline import Pipeline
from deploykit.input.piping import Piping
from deploykit.input.writing import STYLES, written
from deploykit.storage.files import check_output, write
from deploykit.storage.parameters import with_options
from deploykit.text.progress import working
from deploykit.transforms.core.errors import GraphError


@dataclass(frozen=True)
class WrittenInput:
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
    preprocess: Any = None,
    batch: int | None = None,
    style: str = STYLES[0],
    output: str | os.PathLike[str] | None = None,
    force: bool = False,
    **options: Any,
) -> WrittenInput:
    """Write the recommended tf.data function for data.

    It is short, and gives the batches that `deploykit.benchmark(..., input="tfdata")` measures.

    Args:
        data: a folder of TFRecords (`deploykit.convert_records`), of CSV files or of images, or an
            `.npz` file.
        model: whatever `open_model` takes; the batches fit its inputs. Default: one tensor for each
            feature of the data.
        preprocess: what becomes of each feature, sizes, scales, tokens: a JSON file, or what it
            holds; default: what the model was written with, or else what its inputs ask for.
        batch: records at once; default: what the model demands, or 32.
        style: how batches are made: `tfdata`.
        output: a Python file to write too.
        force: whether to replace it where it exists.
        options: fields of `Source`, such as `inputs`, which say which part of the model is meant.

    FileError: a file is missing, unreadable or cannot be written. GraphError: the data are of no
    known kind, or do not fit the model's inputs.

    Example:
        >>> found = deploykit.write_input("test_1000.npz", model="fashion.keras", batch=16)
        >>> "def " in found.text, found.pipeline.batch
        (True, 16)
    """
    (source,) = with_options("write_input", options, Source(None))
    part = {name: getattr(source, name) for name in options}
    if style not in STYLES:
        raise GraphError(f"the style '{style}' is none of: {', '.join(STYLES)}")
    if output is not None:
        check_output(output, force, os.fspath(data), *path_of(model))
    with working("input write"):
        graph = None if model is None else open_model(model, **part).graph
        piping = Piping(preprocess=preprocess)
        opened = open_data(os.fspath(data), piping.declared(graph).columns)
        pipeline = pipeline_for(opened, graph, batch=batch, piping=piping)
        found = WrittenInput(written(pipeline), style, pipeline)
    if output is not None:
        write(output, [found.text.encode()], force)
    return found
