"""Runs parts one after another, in a separate process on a separate CPU.

It only runs on request, so it stops if the driver has died.
"""

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from deploykit.batch_inference.answers import UnrankedError, answer_columns
from deploykit.batch_inference.formats.part_table import (
    PartTable,
    features_of,
    format_named,
    in_numpy,
)
from deploykit.batch_inference.infer_task import IN_NUMPY, InferTask, PartDone, PartProgress
from deploykit.batch_inference.reading.data_parts import (
    BadRow,
    DataPart,
    RowBatch,
    key_of,
    place_of,
)
from deploykit.batch_inference.reading.readers import reader_for
from deploykit.batch_inference.row_inputs import Inputs, RowInputs
from deploykit.benchmarking.engines.engine_choice import opened
from deploykit.benchmarking.engines.runner import Runner
from deploykit.benchmarking.measurement import Job
from deploykit.storage.files import write
from deploykit.storage.table_formats.table_format import CHANGED
from deploykit.system.cpu_usage import take_own_cpu
from deploykit.transforms.common.errors import FileError, GraphError
from deploykit.transforms.ir.tensors import Array


class PartWorker:
    """Runs a model over parts of data, and writes a file for each part."""

    def __init__(self, task: InferTask) -> None:
        """Pin the process to a CPU; the first rows load the model.

        FileError, GraphError: the data or the output format is not available.
        """
        take_own_cpu()
        self._task = task
        self._read_part = reader_for(task.pipeline.data)
        self._pieces = format_named(task.format)
        self._inputs = RowInputs(task.pipeline)
        self._runner: Runner | None = None
        self._part = DataPart(0, ())
        self._batches: Iterator[RowBatch] = iter(())
        self._cpu_seconds = 0.0

    def begin(self, part: DataPart) -> None:
        """Start a part, and discard an unfinished one."""
        self._part = part
        self._batches = self._read_part(part, self._task.pipeline.batch)
        self._table = PartTable(self._task.columns)
        self._bad: list[BadRow] = []
        self._read = hashlib.sha256()

    def step(self, seconds: float) -> PartProgress:
        """Run rows for about the given seconds; the last step of a part writes its file.

        GraphError: a row is invalid and may not be skipped, or the model cannot run.
        FileError: a file cannot be read or written. LimitError: out of memory.
        """
        rows, done, end = 0, None, time.monotonic() + seconds
        while done is None and (not rows or time.monotonic() < end):
            batch = next(self._batches, None)
            if batch is None:
                done = self._written()
            else:
                self._compute(batch)
                rows += len(batch.rows) + len(batch.bad)
        before, self._cpu_seconds = self._cpu_seconds, time.process_time()
        return PartProgress(rows, self._cpu_seconds - before, done, loading=not before)

    def _compute(self, batch: RowBatch) -> None:
        """Run the model on the valid rows of a batch, and add the results to the table."""
        self._read.update(b"".join(_bytes_of(batch)))
        inputs, batch = self._inputs.of(batch)
        self._check(batch)
        columns: dict[str, Array] = {}
        if batch.rows:
            outputs = self._outputs(inputs, len(batch.rows))
            try:
                columns = answer_columns(self._task, outputs, len(batch.rows))
            except UnrankedError as error:
                batch = batch.without(dict.fromkeys(error.rows, str(error)))
                self._check(batch)
                ranked = {n: np.delete(array, error.rows, 0) for n, array in outputs.items()}
                columns = answer_columns(self._task, ranked, len(batch.rows))
        self._bad += batch.bad
        self._table.add(batch.files, batch.rows, columns, batch.kept)

    def _check(self, batch: RowBatch) -> None:
        """Raise GraphError for an invalid row that may not be skipped."""
        if batch.bad and not self._task.skip:
            (first, *_) = batch.bad
            raise GraphError("item-failed", source=self._place(first), reason=first.reason)

    def _place(self, bad: BadRow) -> str:
        data = self._task.pipeline.data
        place, own = place_of(data.kind, bad.file, bad.row), Path(data.path).name
        return f"{data.path}{place.removeprefix(own)}" if bad.file == own else (
            os.path.join(data.path, place)
        )  # fmt: skip

    def _outputs(self, inputs: Inputs, rows: int) -> dict[str, Array]:
        """Return the outputs of the model; a fixed batch is padded with the last row."""
        task = self._task
        if task.pipeline.whole and rows < task.pipeline.batch:
            fill = np.minimum(np.arange(task.pipeline.batch), rows - 1)
            inputs = {name: array[fill] for name, array in inputs.items()}
        if task.takes_scalars:
            inputs = {name: array.reshape(array.shape[1:]) for name, array in inputs.items()}
        arrays = tuple(inputs.values())
        tensors = tuple(task.outputs.values())
        if self._runner is None:
            job = Job(task.model, tuple(inputs), tensors, (arrays,), task.settings)
            self._runner = opened(job)
        results = dict(
            zip(task.outputs, map(np.asarray, self._runner.outputs(arrays)), strict=True)
        )
        if task.takes_scalars:
            return {name: item[None] for name, item in results.items()}
        if task.pipeline.whole and rows < task.pipeline.batch:
            return {name: item[:rows] if item.ndim else item for name, item in results.items()}
        return results

    def _written(self) -> PartDone:
        """Write the file of the part. FileError: rows are missing, or it cannot be written."""
        task, part, rows = self._task, self._part, self._table.rows
        if rows + len(self._bad) != part.rows:
            raise FileError(
                "part-rows-changed",
                source=part.files[0],
                rows=rows + len(self._bad),
                rows_before=part.rows,
                changed=CHANGED,
            )
        columns = self._table.columns()
        if task.format in IN_NUMPY:
            columns = {n: in_numpy(n, item, task.format) for n, item in columns.items()}
        result = hashlib.sha256()

        def pieces() -> Iterator[bytes]:
            for piece in self._pieces(columns):
                result.update(piece)
                yield piece

        file = task.file_of(part.number)
        size = write(Path(task.folder, file), pieces(), force=True)
        keys = [key_of(task.pipeline.data, path) for path in part.files]
        bad = tuple(sorted(self._bad, key=lambda item: (keys.index(item.file), item.row)))
        digests = result.hexdigest(), self._read.hexdigest()
        return PartDone(part.number, file, rows, size, *digests, bad, features_of(columns))


def _bytes_of(batch: RowBatch) -> Iterator[bytes]:
    yield from batch.contents
    for name in sorted(batch.arrays):
        array = batch.arrays[name]
        yield repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
