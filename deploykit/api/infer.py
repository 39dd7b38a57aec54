"""infer: run batch inference on the cores of one machine or on a Ray cluster."""

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from deploykit.api.public import Command, public
from deploykit.api.shipped import tuned_settings
from deploykit.batch_inference.formats.part_table import format_named
from deploykit.batch_inference.infer_plan import planned
from deploykit.batch_inference.infer_run import STEPS, Inferred, carried_out
from deploykit.batch_inference.infer_task import InferOptions
from deploykit.batch_inference.process_backend import Backend, ProcessBackend
from deploykit.batch_inference.ray_cluster import check_ray, ray_cluster
from deploykit.batch_inference.results_folder import results_folder
from deploykit.importers.model_source import source_of
from deploykit.importers.open_model import open_model
from deploykit.rendering.progress import working
from deploykit.system.machine import usable_cores
from deploykit.transforms.common.errors import GraphError
from deploykit.verification.samples import ModelLike

DEFAULT = InferOptions()


@public(Command(heading="Results", writes_result=False), interface=())
def infer(
    model: ModelLike,
    data: str | os.PathLike[str],
    out: str | os.PathLike[str],
    how: InferOptions = DEFAULT,
) -> Inferred:
    """Run batch inference over a dataset and write the predictions.

    DATA is a folder of TFRecords with their index (DIR/NAME if DIR contains records of several
    names), a folder of images or CSV files, a CSV or Parquet file, or a .npz file of arrays by
    input name. deploykit splits DATA into parts, and TFRecords by shard. Each worker takes the next
    part and writes its predictions to the folder OUT atomically, as one file. Each row states the
    file and the row of DATA that it belongs to. Work of a lost worker is retried. At the end,
    OUT/NAME.index.json lists all parts with their SHA-256, and the skipped rows.

    After Ctrl-C or a crash, the same command resumes with the missing parts. On a cluster,
    deploykit must be installed on every machine, and MODEL, OUT and DATA must have the same paths
    on each.

    Args:
        model: any model that `open_model` accepts. A folder written by `ship` also provides
            preprocessing, labels and settings.
        data: a folder of TFRecords with their index, of images or of CSV files, a CSV or Parquet
            file, or a `.npz` file of arrays by input name.
        out: the folder for the results. On a cluster, it and the data have the same paths on all
            machines.
        how: the workers, the preprocessing and the output format.

    FileError: a file cannot be read or written, or the folder contains other results. GraphError:
    the data does not match the model, or the named row is invalid. RefusedError: an op acts on
    files or processes. LimitError: a part lost its worker too often.

    Commands:
        deploykit infer fashion.pb models/fashion/test_1000.npz answers --top 1
        deploykit infer shipped photos answers --top 5 --format csv
        deploykit infer int8.pb /mnt/records /mnt/answers --engine ray
            --address 10.0.0.7:6379 --format parquet

    Example:
        >>> found = deploykit.infer("fashion.keras", "test_1000.npz", "answers", top=1)
        >>> found.rows
        1000
    """
    source = source_of(model)
    if how.address is not None and how.engine != "ray":
        raise GraphError("option-needs", option="address", needed="engine ray (--engine ray)")
    if how.labels is not None and how.top is None:
        raise GraphError("option-needs", option="labels", needed="top (--top K)")
    format_named(how.format)
    address = check_ray(how.address) if how.engine == "ray" else ""
    with working("infer", *STEPS) as work:
        work.begin("read")
        opened = open_model(source)
        opened.refuse_effects(how.allow_ops)
        plan = planned(opened, data, out, how, tuned_settings(source, how.tuned, opened.sha256))
        folder = results_folder(Path(out), plan.task.name, plan.made_of, how.force)
        with folder as results:
            backend: AbstractContextManager[Backend]
            if how.engine == "ray":
                backend = ray_cluster(address, how.processes)
            else:
                backend = nullcontext(ProcessBackend(how.processes or usable_cores()))
            return carried_out(plan, backend, results, work)
