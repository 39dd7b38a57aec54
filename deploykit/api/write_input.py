"""write_input: write a tf.data pipeline as code that does not need deploykit."""

import os
from dataclasses import dataclass, fields
from typing import Annotated, Literal

from deploykit.api.public import Command, public
from deploykit.data.data import open_data, vector_width
from deploykit.data.pipeline import PLAIN, InputPipelineOptions, Pipeline, pipeline_for
from deploykit.data.pipeline_code import written
from deploykit.data.preprocessing import refuse_batch_axes
from deploykit.data.tfdata import check_lines
from deploykit.importers.model_source import ModelSource, source_of
from deploykit.importers.open_model import ModelLike, open_model, path_of
from deploykit.rendering.progress import working
from deploykit.storage.files import check_output, write
from deploykit.transforms.common.documents import AsHtml, Written
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.common.flag import FORCE, Flag
from deploykit.transforms.engines.engines import MAX_BATCH

WRITTEN = ("preprocess", "header", "shuffle", "cache", "buckets", "private_threads")
"""The fields of `InputPipelineOptions` that the written code supports."""


def _records(pipeline: Pipeline) -> int | None:
    return pipeline.data.records


@dataclass(frozen=True)
class WrittenInput(AsHtml):
    """A tf.data function for a dataset, as Python source code."""

    text: str
    """The Python source code, which only imports TensorFlow (and NumPy for `.npz` files)."""
    style: str
    pipeline: Annotated[Pipeline, Written("records", by=_records)]
    """The pipeline that the code builds."""


@public(
    Command(
        name="input write", heading="Pipeline", requires=(), has_limits=False, writes_result=False
    )
)
def write_input(
    data: Annotated[str | os.PathLike[str], Flag(metavar="DIR")],
    *,
    model: Annotated[ModelLike | None, Flag(metavar="MODEL", heading="Model")] = None,
    piping: Annotated[
        InputPipelineOptions, Flag(only="preprocess header shuffle cache buckets private_threads")
    ] = PLAIN,
    batch: Annotated[int | None, Flag(at_most=MAX_BATCH)] = None,
    style: Literal["tfdata"] = "tfdata",
    output: Annotated[
        str | os.PathLike[str] | None,
        Flag("-o --output", format="text output", heading="Output", metavar="FILE.py"),
    ] = None,
    force: Annotated[bool, FORCE] = False,
) -> WrittenInput:
    """Write the recommended tf.data function for a dataset to stdout or a file.

    DIR is a folder of TFRecords (written by deploykit records), of CSV files or of images, or a
    .npz file. The code needs only TensorFlow (and NumPy for .npz). It builds the same dataset
    that `deploykit benchmark --input tfdata` measures with the same options on this machine. To
    measure the file, run `deploykit benchmark MODEL --data DIR --pipeline FILE:dataset`, with FILE
    without .py.

    Args:
        data: a folder of TFRecords (`deploykit.convert_records`), of CSV files or of images, or an
            `.npz` file.
        model: Make batches for the inputs of this model [default: a tensor for each feature of the
            data].
        piping: the pipeline options `preprocess`, `header`, `shuffle`, `cache`, `buckets` and
            `private_threads`.
        batch: Records in a batch [default: the model's fixed batch, or 32].
        style: Kind of input pipeline.
        output: File to write [default: stdout].

    FileError: a file is missing, unreadable or cannot be written. GraphError: the kind of the data
    is unknown, or the data does not match the model's inputs.

    Commands:
        deploykit input write photos --model model.pb --shuffle
        deploykit input write records --batch 32 -o input_pipeline.py

    Example:
        >>> found = deploykit.write_input("test_1000.npz", model="fashion.keras", batch=16)
        >>> "def " in found.text, found.pipeline.batch
        (True, 16)
    """
    source = source_of(model)
    part = [field.name for field in fields(ModelSource) if field.name != "model"]
    part = [name for name in part if getattr(source, name)]
    for field_ in fields(InputPipelineOptions):
        if field_.name not in WRITTEN and getattr(piping, field_.name) != getattr(
            PLAIN, field_.name
        ):
            raise GraphError("pipeline-option-conflicts", option=field_.name)
    if source.model is None and part:
        raise GraphError("no-effect", option=part[0], where="with model")
    if output is not None:
        check_output(output, force, os.fspath(data), *path_of(model))
    with working("input write"):
        graph = None if source.model is None else open_model(source).graph
        refuse_batch_axes(graph, piping.preprocess, "the input pipeline")
        declared = piping.declared(graph)
        opened = open_data(
            os.fspath(data), declared.columns, rule=declared.rule, width=vector_width(graph)
        )
        check_lines(opened)
        pipeline = pipeline_for(opened, graph, batch=batch, piping=piping)
        written_input = WrittenInput(written(pipeline), style, pipeline)
    if output is not None:
        write(output, [written_input.text.encode()], force)
    return written_input
