"""`deploykit infer` beside processes that somebody who knows TensorFlow would write for one job.

EfficientNet-Lite0 on photos in TFRecords, a worker a core, schedulers in turn. A bare process is
pinned to its core, decodes photos in the graph of the model, runs it in the thread that calls, and
keeps its memory, all of which `infer` does; it writes the best classes of each shard. Its rate is
that of its own time, from when its model is loaded; that of `infer` is of the time of all workers.
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
MAX_CPUS = 1.05  # of a worker


@dataclass(frozen=True)
class Turn:
    """Rows a second of all workers, the CPUs that each took, and the seconds of the whole run."""

    rate: float
    cpus: float
    seconds: float


def figures() -> list[Figure]:
    """Measure in turns, A B C C B A, and compare within each."""
    model = made_by("efficientnet_lite0/build.py") / "frozen.pb"
    data = many_photos()
    found: dict[str, list[Turn]] = {"bare": [], **{name: [] for name in AT_LEAST}}
    for number in range(ROUNDS):
        for name in list(found)[:: -1 if number % 2 else 1]:
            run = bare if name == "bare" else inferred
            with tempfile.TemporaryDirectory() as folder:
                found[name].append(run(name, model, data, Path(folder)))
            print(f"{number}: {name}: {found[name][-1]}", file=sys.stderr, flush=True)
    return [
        Figure("two bare processes" if usable_cores() == 2 else "bare processes", "photos/s",
               [each.rate for each in found["bare"]]),
        *(figure for name in AT_LEAST for figure in _of(name, found)),
    ]  # fmt: skip


def _of(name: str, found: Mapping[str, list[Turn]]) -> list[Figure]:
    pairs = list(zip(found[name], found["bare"], strict=True))
    what = f"infer --scheduler {name}"
    return [
        Figure(f"{what}", "photos/s", [each.rate for each in found[name]]),
        Figure(f"{what}, of bare processes", "x", [ours.rate / bare.rate for ours, bare in pairs],
               at_least=AT_LEAST[name]),
        Figure(f"{what}, CPUs a worker", "", [each.cpus for each in found[name]],
               at_most=MAX_CPUS),
        Figure(f"{what}, whole run, of bare processes", "x",
               [ours.seconds / bare.seconds for ours, bare in pairs]),
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


def work(model: str, core: int, folder: str, shards: list[str]) -> dict[str, float]:
    """Be a bare process: compute the best classes, and write a file for each shard."""
    import time

    begin = time.perf_counter()
    os.sched_setaffinity(0, {core})
    import numpy as np
    import tensorflow as tf

    def prepared(record: tf.Tensor) -> tf.Tensor:
        spec = {"image": tf.io.FixedLenFeature((), tf.string)}
        photo = tf.io.decode_jpeg(tf.io.parse_single_example(record, spec)["image"], 3)
        return tf.image.resize(tf.cast(photo, tf.float32), (224, 224)) / 127.5 - 1

    graph_def = tf.compat.v1.GraphDef.FromString(Path(model).read_bytes())
    with tf.Graph().as_default() as graph:
        records = tf.compat.v1.placeholder(tf.string, (None,))
        images = tf.map_fn(prepared, records, fn_output_signature=tf.float32, parallel_iterations=1)
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
    print(json.dumps(work(_model, int(_core), _folder, json.loads(_shards))))
