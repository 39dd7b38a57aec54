"""`deploykit infer` on a CSV file of texts, beside the loop of tf.data that one writes by hand.

The model has a TextVectorization layer, embeddings and two dense layers. Both read the same CSV
file, keep the id, and write Parquet. The loop batches 256 rows, prefetches, and lets TensorFlow use
all cores; `infer` runs a worker on each. Runs are interleaved, whole, with their start. Peak memory
is that of the largest process of `infer`, for 100,000 rows and for 20 times as many.
"""

import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.figures import RESULTS, Figure
from tests.benchmarks.measuring import deploykit

ROUNDS = 7
ROWS, MANY = 100_000, 2_000_000
BATCH = 256
WORDS = [f"word{number}" for number in range(2000)]


def figures() -> list[Figure]:
    """Measure in turns, A B B A, and compare within each."""
    folder = RESULTS / "data"
    model, data = text_model(folder / "text-model"), texts(folder / "texts.csv", ROWS)
    found: dict[str, list[float]] = {"tf.data": [], "infer": []}
    for number in range(ROUNDS):
        for name in list(found)[:: -1 if number % 2 else 1]:
            with tempfile.TemporaryDirectory() as out:
                run = loop if name == "tf.data" else inferred
                found[name].append(ROWS / run(model, data, Path(out))[0])
            print(f"{number}: {name}: {found[name][-1]:.0f} rows/s, load {os.getloadavg()[0]:.1f}",
                  file=sys.stderr, flush=True)  # fmt: skip
    memory = {}
    for rows in (ROWS, MANY):
        with tempfile.TemporaryDirectory() as out:
            memory[rows] = inferred(model, texts(folder / f"texts-{rows}.csv", rows), Path(out))[1]
    ratios = [ours / peer for ours, peer in zip(found["infer"], found["tf.data"], strict=True)]
    return [
        Figure("loop of tf.data", "rows/s", found["tf.data"]),
        Figure("infer", "rows/s", found["infer"]),
        Figure("infer, of the loop", "x", ratios, at_least=1.0),
        Figure(f"peak memory, {ROWS:,} rows", "MB", [memory[ROWS]]),
        Figure(f"peak memory, {MANY:,} rows, of that", "x", [memory[MANY] / memory[ROWS]],
               at_most=1.1),
    ]  # fmt: skip


def text_model(folder: Path) -> Path:
    """Save a model with a TextVectorization layer."""
    if folder.exists():
        return folder
    import keras

    split = keras.layers.TextVectorization(output_sequence_length=32, vocabulary=WORDS)
    text = keras.Input((), dtype="string", name="text")
    tokens = keras.layers.Embedding(len(WORDS) + 2, 128)(split(text))
    hidden = keras.layers.Dense(256, "relu")(tokens)
    pooled = keras.layers.GlobalAveragePooling1D()(hidden)
    keras.Model(text, keras.layers.Dense(8, "softmax", name="scores")(pooled)).export(folder)
    return folder


def texts(path: Path, rows: int) -> Path:
    """Write a CSV file of ids and texts of 16 words."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "review"])
            for row in range(rows):
                words = [WORDS[(row * 31 + place * 7) % len(WORDS)] for place in range(16)]
                writer.writerow([row, " ".join(words) + ("," if row % 3 else ' "so"')])
    return path


def inferred(model: Path, data: Path, out: Path) -> tuple[float, float]:
    """Run `deploykit infer`; return its seconds and its peak memory in MB."""
    how = ["--batch", str(BATCH), "--keep-columns", "id", "--json"]
    return _timed(deploykit("infer", str(model), str(data), str(out / "found"), *how))


def loop(model: Path, data: Path, out: Path) -> tuple[float, float]:
    """Run the loop as a process of its own."""
    return _timed([sys.executable, "-m", __name__, str(model), str(data), str(out / "found")])


def _timed(command: list[str]) -> tuple[float, float]:
    """Return the seconds of a command, and the memory of the largest of its processes in MB."""
    code = (
        "import json,resource,subprocess,sys;"
        "subprocess.run(sys.argv[1:],check=True,stdout=subprocess.DEVNULL,"
        "stderr=subprocess.DEVNULL);"
        "print(json.dumps(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))"
    )
    begin = time.perf_counter()
    run = subprocess.run([sys.executable, "-c", code, *command], check=True, capture_output=True)
    return time.perf_counter() - begin, json.loads(run.stdout) / 1024


def work(model: str, data: str, out: str) -> None:
    """Be the loop: read with tf.data, run the model, and write Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import tensorflow as tf

    served = tf.saved_model.load(model).signatures["serving_default"]
    rows = tf.data.experimental.CsvDataset(data, ["", ""], header=True)
    writer = None
    for ids, reviews in rows.batch(BATCH).prefetch(tf.data.AUTOTUNE):
        (scores,) = served(text=reviews).values()
        table = pa.table({"id": ids.numpy(), "scores": list(scores.numpy())})
        writer = writer or pq.ParquetWriter(out, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


if __name__ == "__main__":
    work(*sys.argv[1:])
