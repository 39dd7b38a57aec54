"""The readers of samples in this process: what each finds in a file, in one form."""

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from deploykit.batch_inference.reading.partitions import cut_parts
from deploykit.batch_inference.reading.readers import reader_for
from deploykit.batch_inference.row_inputs import RowInputs
from deploykit.batch_inference.tables.table_data import ColumnChoice, open_table, takes_columns
from deploykit.client.request_inputs import arrays_from
from deploykit.data.data import Data, open_data
from deploykit.data.pipeline import InputPipelineOptions, pipeline_for
from deploykit.data.samples import open_samples
from deploykit.records.open_source import open_source
from deploykit.serving.protocol.signatures import Signature, Tensor
from deploykit.transforms.common.errors import CodedError, naming
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import split
from deploykit.transforms.ir.protos import SignatureDef
from deploykit.verification.synthetic.sample_inputs import type_and_shape

PIXELS = "0..255"
"""The preprocessing of images: their values stay as they are."""
KINDS = {
    r"is null|null in its list": "null",
    r"has \d+ values?|has \d+ (float32|int64|string)|the shape \[": "width",
    "no feature|unknown feature|there is no feature": "missing",
    "beyond the range|not an integer|neither 0 nor 1|is not of int64": "value",
    "not JSON|JSON object": "json",
    "surrogate|utf-8|UTF-8": "text",
    "onvert|expected (a|numbers)|is not of": "type",
    "image|PNG|decode|empty": "image",
    "Example|checksum|truncated|corrupted|damaged|cannot be used|buffer": "record",
}
"""What a reason says, and the kind of a bad row."""
_PLACE = re.compile(r"(?:row|record|sample|line) (\d+)")


@dataclass
class Outcome:
    """The rows as text, their labels, the kind of each bad row by its place, or a refusal."""

    rows: list[str] = field(default_factory=list)
    bad: dict[int | str, str] = field(default_factory=dict)
    refusal: str = ""
    labels: list[float] | None = None


def kind_of(reason: str) -> str:
    """Return the kind of a bad row."""
    return next((kind for text, kind in KINDS.items() if re.search(text, reason)), reason)


def text_of(value: Any) -> str:
    """Return the values of a row as text; of images, their number, sum and shape."""
    array = np.asarray(value, object if isinstance(value, bytes | str) else None)
    if array.ndim == 3:
        return f"{array.shape} {array.sum():g}"
    cells = (item.decode() if isinstance(item, bytes) else item for item in array.ravel().tolist())
    return " ".join(cell if isinstance(cell, str) else f"{cell:g}" for cell in cells)


def converted(path: str, model: Graph) -> Outcome:
    """Read as `records convert --on-error skip` does."""
    result, source = Outcome(), open_source([path])
    for batch in map(source.read, source.parts()):
        for item in batch.rows():
            values = dict(item)
            if (label := values.pop("label", None)) is not None:
                result.labels = [*(result.labels or []), label]
            value = next(iter(values.values()))
            result.rows.append("an image" if "image" in values else text_of(value))
        for problem in batch.problems:
            row = re.match(r"row (\d+): ", problem.reason)
            place = int(row[1]) if row else Path(problem.file).name
            result.bad[place] = kind_of(problem.reason)
    return result


def loaded(path: str, model: Graph) -> Outcome:
    """Read as commands with --data do, which end with the first bad row."""
    found = open_samples(path, model, _preprocess(model))
    found.feeds()
    labels = None if found.labels is None else found.labels.tolist()
    (array,) = found.arrays.values()
    return Outcome(list(map(text_of, array)), labels=labels)


def inferred(path: str, model: Graph) -> Outcome:
    """Read as `infer --on-error skip` does."""
    declared = InputPipelineOptions(preprocess=_preprocess(model)).declared(model)
    choice = ColumnChoice()
    data: Data
    with naming(path):
        if takes_columns(path, model, declared, choice):
            data, declared = open_table(path, model, declared, choice)
        else:
            data = open_data(path, None, model, may_be_empty=True)
        pipeline = pipeline_for(data, model, preprocessing=declared, batch=2, epochs=1, threads=1)
    pipeline = replace(pipeline, data=replace(data, features=pipeline.features))
    return _of_parts(data, pipeline)


def _of_parts(data: Data, pipeline: Any) -> Outcome:
    result, inputs = Outcome(), RowInputs(pipeline)
    read = reader_for(pipeline.data)
    for part in cut_parts(data, None):
        seen = 0
        for batch in read(part, 2):
            arrays, batch = inputs.of(batch)
            seen += len(batch.rows) + len(batch.bad)
            for array in arrays.values():
                result.rows += map(text_of, array)
            for item in batch.bad:
                place = item.file if data.kind == "images" else item.row
                result.bad[place] = kind_of(item.reason)
        assert seen == part.rows
    return result


def requested(path: str, model: Graph) -> Outcome:
    """Read as `predict` does."""
    inputs = {}
    for tensor in model.inputs:
        type_, shape, _ = type_and_shape(model, tensor)
        inputs[split(tensor)[0]] = Tensor(tensor, type_, shape)
    signature = Signature("", inputs, {}, SignatureDef())
    is_image = Path(path).suffix not in (".npz", ".npy")
    arrays, _ = arrays_from([path], signature, _preprocess(model) if is_image else None)
    (array,) = arrays.values()
    return Outcome(list(map(text_of, array)))


def _preprocess(model: Graph) -> str | None:
    shape = type_and_shape(model, model.inputs[0])[1]
    return PIXELS if shape is not None and len(shape) == 4 else None


class Here:
    """A worker of `child_process` in this process."""

    def __init__(self, function: str, *arguments: Any) -> None:
        module, name = function.split(":")
        self._object = getattr(importlib.import_module(module), name)(*arguments)

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method."""
        return getattr(self._object, method)(*arguments)

    def close(self) -> None:
        """Do nothing."""


Reader = Callable[[str, Graph], Outcome]


def outcome(read: Reader, path: Path, model: Graph) -> Outcome:
    """Return what a reader finds; an error about a row is a bad row."""
    try:
        return read(str(path), model)
    except CodedError as error:
        return _outcome_of(error, path)


def _outcome_of(error: CodedError, path: Path) -> Outcome:
    assert path.name in str(error) or error.code == "no-samples", error
    place = _place(error, str(path))
    if place is None:
        return Outcome(refusal=error.code)
    return Outcome(bad={place: kind_of(str(error).replace(str(path), ""))})


def _place(error: CodedError, path: str) -> int | str | None:
    """Return the row that an error is about; None: it is about the file."""
    text = str(error).replace(path, "")
    if Path(path).is_dir() and (found := re.match(r"/([^:]+): ", text)):
        return found[1]
    if found := _PLACE.search(text):
        return int(found[1]) - ("line" in found[0])
    if error.code == "data-value-misfit":
        return error.fields["index"][0]
    return None
