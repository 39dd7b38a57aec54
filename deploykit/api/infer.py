"""infer: run batch inference on the cores of one machine or on a Ray cluster."""

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from deploykit.api.public import Command, public
from deploykit.api.shipped import tuned_settings
from deploykit.batch_inference.formats.part_table import format_named
from deploykit.batch_inference.infer_plan import planned
from deploykit.batch_inference.infer_run import STEPS, Inferred, carried_out
from deploykit.batch_inference.infer_task import SCHEDULERS, InferOptions
from deploykit.batch_inference.process_backend import Backend, ProcessBackend
from deploykit.batch_inference.ray_cluster import check_ray, ray_cluster
from deploykit.batch_inference.results_folder import results_folder
from deploykit.batch_inference.tables.frames import Frame
from deploykit.importers.model_source import ModelSource, source_of
from deploykit.importers.open_model import ModelLike, open_model
from deploykit.rendering.progress import working
from deploykit.storage.table_formats.table_files import is_remote
from deploykit.system.machine import usable_cores
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.common.flag import Flag
from deploykit.transforms.runtime.child_process import started_ahead

DEFAULT = InferOptions()
_FORMER = {"processes": "local"}


@public(Command(heading="Results", writes_result=False), interface=())
def infer(
    model: ModelLike,
    data: Annotated[Any, Flag(format="path")],
    out: Annotated[str | os.PathLike[str] | None, Flag(is_required=True)] = None,
    how: InferOptions = DEFAULT,
) -> Inferred | Any:
    """Run batch inference over a dataset and write the predictions.

    DATA is a table: a CSV, Parquet or JSON Lines file, a folder or a pattern of them, also below
    s3:// or gs://. Its columns are the inputs, by name. Or DATA is TFRecords: a file, or a folder
    (DIR/NAME if DIR contains records of several names), a folder of images, or a .npz file of
    arrays by input name. deploykit splits DATA into parts, and TFRecords by shard. Each worker
    takes the next part and writes its predictions to the folder OUT atomically, as one file. Each
    row states the file and the row of DATA that it belongs to. Work of a lost worker is retried. At
    the end, OUT/NAME.index.json lists all parts with their SHA-256, and the skipped rows.

    After Ctrl-C or a crash, the same command resumes with the missing parts. On a cluster,
    deploykit must be installed on every machine, and MODEL, OUT and DATA must have the same paths
    on each.

    Args:
        model: any model that `open_model` accepts. A folder written by `ship` also provides
            preprocessing, labels and settings.
        data: a CSV, Parquet or JSON Lines file, a folder or a pattern of them, a folder of
            TFRecords or of images, or a `.npz` file of arrays by input name. In
            Python also a pyarrow Table, a pandas or polars DataFrame, or a Ray Dataset; the result
            is then a table of the same kind.
        out: the folder for the results; for a table in memory, there is none. On a cluster, it and
            the data have the same paths on all machines.
        how: the workers, the preprocessing and the output format.

    FileError: a file cannot be read or written, or the folder contains other results. GraphError:
    the data does not match the model, or the named row is invalid. RefusedError: an op acts on
    files or processes. LimitError: a part lost its worker too often.

    Commands:
        deploykit infer sentiment.keras reviews.csv answers --keep-columns id
        deploykit infer fashion.pb models/fashion/test_1000.npz answers --top 1
        deploykit infer shipped photos answers --top 5 --format csv
        deploykit infer int8.pb /mnt/records /mnt/answers --scheduler ray
            --address 10.0.0.7:6379 --format parquet

    Example:
        >>> found = deploykit.infer("fashion.keras", "test_1000.npz", "answers", top=1)
        >>> found.rows
        1000
    """
    frame = Frame.of(data)
    if frame is None:
        if out is None:
            raise GraphError("option-needs", option="data, a path,", needed="out, a folder")
        if is_remote(os.fspath(out)):
            expected = "a folder on this machine"
            raise GraphError("unexpected", what="OUT", got=os.fspath(out), expected=expected)
        return _inferred(model, data, out, how)
    if out is not None or how.format != "parquet":
        raise GraphError("only-for", option="out and format", what="data on disk")
    how = replace(
        how,
        columns={name: str(column) for name, column in how.columns.items()},
        keep_columns=list(dict.fromkeys(map(str, how.keep_columns))),
    )
    with frame.in_folder() as folder:
        file = folder / "data.parquet"
        inferred = _inferred(model, file, folder / "out", how, has_folders=False)
        files = [folder / "out" / shard["file"] for shard in inferred.index["shards"]]
        return frame.predictions(files, how.keep_columns)


def _inferred(
    model: ModelLike,
    data: str | os.PathLike[str],
    out: str | os.PathLike[str],
    how: InferOptions,
    has_folders: bool = True,
) -> Inferred:
    """Run batch inference over data on disk, whose folders may state columns."""
    source = source_of(model)
    how = replace(how, scheduler=_FORMER.get(how.scheduler, how.scheduler))
    _check(how)
    address = check_ray(how.address) if how.scheduler == "ray" else ""
    with working("infer", *STEPS) as work:
        work.begin("read")
        with _children(source):
            opened = open_model(source)
            opened.refuse_effects(how.allow_ops)
            settings = tuned_settings(source, how.tuned, opened.sha256)
            plan = planned(opened, data, out, how, settings, has_folders=has_folders)
        folder = results_folder(Path(out), plan.task.name, plan.made_of, how.force)
        with folder as results:
            return carried_out(plan, _backend(how, address), results, work)


def _children(source: ModelSource) -> AbstractContextManager[None]:
    """Start TensorFlow early, unless the model is a graph, which is opened without it."""
    path = source.model
    if isinstance(path, str | os.PathLike) and not os.fspath(path).endswith(".pb"):
        return started_ahead() if os.path.exists(path) else nullcontext()
    return nullcontext()


def _check(how: InferOptions) -> None:
    """Raise GraphError for options that contradict each other, before anything is read."""
    if how.scheduler not in SCHEDULERS:
        raise GraphError("not-one-of", what="scheduler", known=SCHEDULERS, got=how.scheduler)
    if how.address is not None and how.scheduler != "ray":
        raise GraphError("option-needs", option="address", needed="scheduler ray (--scheduler ray)")
    if how.labels is not None and how.top is None:
        raise GraphError("option-needs", option="labels", needed="top (--top K)")
    format_named(how.format)


def _backend(how: InferOptions, address: str) -> AbstractContextManager[Backend]:
    """Return the backend that runs the workers; it starts them when there is work."""
    if how.scheduler == "ray":
        return ray_cluster(address, how.processes)
    return nullcontext(ProcessBackend(how.processes or usable_cores()))
