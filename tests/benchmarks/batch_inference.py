"""`deploykit infer` beside what somebody who knows TensorFlow would write for one job.

EfficientNet-Lite0 on photos in TFRecords, a worker a core, schedulers in turn. A bare process is
pinned to its core, decodes photos in the graph of the model, runs it in the thread that calls, and
keeps its memory, all of which `infer` does; it writes the best classes of each shard. Its rate is
that of its own time, from when its model is loaded; that of `infer` is of the time of all workers.
A loop of tf.data is one process with all cores: it decodes in parallel, prefetches batches, and
writes the best classes of all photos. Its rate is from its first batch on.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploykit.benchmarking.run_config import KEEP_MEMORY
from deploykit.data.data import Data
from deploykit.system.machine import usable_cores
from tests.benchmarks.figures import RESULTS, Figure
from tests.benchmarks.input import as_records, photos
from tests.benchmarks.measuring import deploykit
from tests.benchmarks.nets import made_by

ROUNDS = 7
COPIES = 8  # of 160 photos
TOP = 5
AT_LEAST = {"local": 0.95, "ray": 0.92}  # of the bare processes
LOOP_AT_LEAST = {"local": 0.95, "ray": None}  # of a loop of tf.data
MAX_CPUS = 1.05  # of a worker


@dataclass(frozen=True)
class Turn:
    """Rows a second of all workers, the CPUs that each took, and the seconds of the whole run."""

    rate: float
    cpus: float
    seconds: float


def figures() -> list[Figure]:
    """Measure in turns, A B C D D C B A, and compare within each."""
    model = made_by("efficientnet_lite0/build.py") / "frozen.pb"
    data = many_photos()
    found: dict[str, list[Turn]] = {name: [] for name in ("bare", "loop", *AT_LEAST)}
    runs = {"bare": bare, "loop": loop}
    for number in range(ROUNDS):
        for name in list(found)[:: -1 if number % 2 else 1]:
            with tempfile.TemporaryDirectory() as folder:
                run = runs.get(name, inferred)
                found[name].append(run(name, model, data, Path(folder)))
            print(f"{number}: {name}: {found[name][-1]}", file=sys.stderr, flush=True)
    return [
        Figure("two bare processes" if usable_cores() == 2 else "bare processes", "photos/s",
               [each.rate for each in found["bare"]]),
        Figure("loop of tf.data", "photos/s", [each.rate for each in found["loop"]]),
        *(figure for name in AT_LEAST for figure in _of(name, found)),
    ]  # fmt: skip


def _of(name: str, found: Mapping[str, list[Turn]]) -> list[Figure]:
    pairs = list(zip(found[name], found["bare"], strict=True))
    loops = list(zip(found[name], found["loop"], strict=True))
    what = f"infer --scheduler {name}"
    return [
        Figure(f"{what}", "photos/s", [each.rate for each in found[name]]),
        Figure(f"{what}, of bare processes", "x", [ours.rate / bare.rate for ours, bare in pairs],
               at_least=AT_LEAST[name]),
        Figure(f"{what}, of the loop", "x", [ours.rate / peer.rate for ours, peer in loops],
               at_least=LOOP_AT_LEAST[name]),
        Figure(f"{what}, CPUs a worker", "", [each.cpus for each in found[name]],
               at_most=MAX_CPUS),
        Figure(f"{what}, whole run, of bare processes", "x",
               [ours.seconds / bare.seconds for ours, bare in pairs]),
        Figure(f"{what}, whole run, of the loop", "x",
               [ours.seconds / peer.seconds for ours, peer in loops]),
    ]  # fmt: skip


def many_photos() -> Data:
    """Return records with each of the made-up photos several times."""
    many = RESULTS / "data" / f"photos-{COPIES}"
    if not many.exists():
        partial = many.with_name(f"{many.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        for copy in range(COPIES):
            shutil.copytree(photos(), partial / str(copy))
        partial.rename(many)
    return as_records(many, many.name)


def inferred(scheduler: str, model: Path, data: Data, folder: Path) -> Turn:
    """Run `deploykit infer`."""
    how = [
        "--preprocess",
        "-1..1",
        "--top",
        str(TOP),
        "--scheduler",
        scheduler,
        "--format",
        "npz",
        "--json",
    ]
    command = deploykit("infer", str(model), data.path, str(folder / "out"), *how)
    document = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    run = document["run"]
    assert document["rows"] == data.records
    return Turn(run["rows_per_second"], run["cpus"] / run["workers"], document["seconds"])


def bare(_: str, model: Path, data: Data, folder: Path) -> Turn:
    """Run a bare process on each core, which share the shards."""
    cores = sorted(os.sched_getaffinity(0))
    environment = {**os.environ, **KEEP_MEMORY, "TF_NUM_INTRAOP_THREADS": "1",
                   "TF_NUM_INTEROP_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}  # fmt: skip
    running = []
    for number, core in enumerate(cores):
        shards = json.dumps(data.files[number :: len(cores)])
        command = [sys.executable, "-m", __name__, str(model), str(core), str(folder), shards]
        running.append(
            subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        )
    told = [json.loads(each.communicate()[0]) for each in running]
    assert sum(each["rows"] for each in told) == data.records
    rate = sum(each["rate"] for each in told)
    cpus = sum(each["cpus"] for each in told) / len(told)
    return Turn(rate, cpus, max(each["seconds"] for each in told))


def decoded(record: Any) -> Any:
    """Return the photo of a serialized Example as the model takes it."""
    import tensorflow as tf

    spec = {"image": tf.io.FixedLenFeature((), tf.string)}
    photo = tf.io.decode_jpeg(tf.io.parse_single_example(record, spec)["image"], 3)
    return tf.image.resize(tf.cast(photo, tf.float32), (224, 224)) / 127.5 - 1


def loop(_: str, model: Path, data: Data, folder: Path) -> Turn:
    """Run a loop of tf.data as a process of its own."""
    shards = json.dumps(data.files)
    command = [sys.executable, "-m", __name__, str(model), "", str(folder), shards]
    environment = {**os.environ, **KEEP_MEMORY, "TF_CPP_MIN_LOG_LEVEL": "3"}
    run = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL)  # fmt: skip
    told = json.loads(run.stdout)
    assert told["rows"] == data.records
    return Turn(told["rate"], told["cpus"], told["seconds"])


def work_in_loop(model: str, folder: str, shards: list[str]) -> dict[str, float]:
    """Be the loop: read, decode and batch with tf.data, and run the model on all cores."""
    import time

    begin = time.perf_counter()
    import numpy as np
    import tensorflow as tf

    graph_def = tf.compat.v1.GraphDef.FromString(Path(model).read_bytes())

    def scores(images: tf.Tensor) -> tf.Tensor:
        return tf.import_graph_def(graph_def, {"images": images}, ["probabilities:0"])[0]

    run = tf.function(scores, input_signature=[tf.TensorSpec((None, 224, 224, 3), tf.float32)])
    photos = tf.data.TFRecordDataset(shards).map(decoded, tf.data.AUTOTUNE)
    classes, best = [], []
    rows, steady, first, cpu = 0, 0, 0.0, 0.0
    for images in photos.batch(32).prefetch(tf.data.AUTOTUNE):
        values, indices = tf.math.top_k(run(images), TOP)
        classes.append(indices.numpy())
        best.append(values.numpy())
        rows += len(classes[-1])
        if first:
            steady += len(classes[-1])
        else:
            first, cpu = time.perf_counter(), time.process_time()
    np.savez(
        Path(folder, "found.npz"), classes=np.concatenate(classes), scores=np.concatenate(best)
    )
    end = time.perf_counter()
    used = (time.process_time() - cpu) / (end - first)
    return {
        "rows": rows, "rate": steady / (end - first), "cpus": used, "seconds": end - begin
    }  # fmt: skip


def work(model: str, core: int, folder: str, shards: list[str]) -> dict[str, float]:
    """Be a bare process: compute the best classes, and write a file for each shard."""
    import time

    begin = time.perf_counter()
    os.sched_setaffinity(0, {core})
    import numpy as np
    import tensorflow as tf

    graph_def = tf.compat.v1.GraphDef.FromString(Path(model).read_bytes())
    with tf.Graph().as_default() as graph:
        records = tf.compat.v1.placeholder(tf.string, (None,))
        images = tf.map_fn(decoded, records, fn_output_signature=tf.float32, parallel_iterations=1)
        images.set_shape((None, 224, 224, 3))
        (scores,) = tf.import_graph_def(graph_def, {"images": images}, ["probabilities:0"])
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1)
    config.inter_op_parallelism_threads = -1  # in the thread that calls
    run = tf.compat.v1.Session(graph=graph, config=config).make_callable(scores, [records])
    rows, steady, first, cpu = 0, 0, 0.0, 0.0
    for shard in shards:
        contents = list(tf.compat.v1.io.tf_record_iterator(shard))
        classes, best = [], []
        for start in range(0, len(contents), 32):
            found = run(contents[start : start + 32])
            order = np.argsort(-found, axis=1)[:, :TOP]
            classes.append(order)
            best.append(np.take_along_axis(found, order, axis=1))
            rows += len(found)
            if first:
                steady += len(found)
            else:
                first, cpu = time.perf_counter(), time.process_time()
        name = f"{Path(shard).name}.npz"
        np.savez(Path(folder, name), classes=np.concatenate(classes), scores=np.concatenate(best))
    end = time.perf_counter()
    used = (time.process_time() - cpu) / (end - first)
    return {
        "rows": rows, "rate": steady / (end - first), "cpus": used, "seconds": end - begin
    }  # fmt: skip


if __name__ == "__main__":
    _model, _core, _folder, _shards = sys.argv[1:]
    _files = json.loads(_shards)
    _told = work(_model, int(_core), _folder, _files) if _core else (
        work_in_loop(_model, _folder, _files)
    )  # fmt: skip
    print(json.dumps(_told))
