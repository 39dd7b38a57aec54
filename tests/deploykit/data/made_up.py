"""Small data on disk in every format, each record with an `id`, and one epoch of each style."""

import hashlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from deploykit.data.data import Data, open_data
from deploykit.data.pipeline import Pipeline
from deploykit.data.preprocessing import Preprocessing, Steps
from deploykit.data.preprocessing_plan import plan
from deploykit.data.queues import Queue
from deploykit.data.reading import batches
from deploykit.data.tfdata import TfData, dataset
from deploykit.importers.image_range import UNIT
from deploykit.records.examples import Feature
from deploykit.records.index import Index, Shard, index_path, shard_name
from deploykit.transforms.ir.graph import Graph

COUNT, FILES, WIDTH = 23, 3, 6
TEXTS = ["to be or not", "be", "", "the quick brown fox jumps", "a  b"]


def numbers(count: int = COUNT, width: int = WIDTH) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, (count, width)).astype(np.float32)


def parts(count: int = COUNT, files: int = FILES) -> list[range]:
    ends = [count * n // files for n in range(files + 1)]
    return [range(a, b) for a, b in itertools.pairwise(ends)]


def csv_lines(rows: np.ndarray, first: int) -> list[str]:
    return [
        ",".join([*(repr(float(v)) for v in row), str(first + n)]) for n, row in enumerate(rows)
    ]


def write_csv(folder: Path, header: bool = False) -> Data:
    """Write numbers with their id as the last column."""
    folder.mkdir()
    rows = numbers()
    for number, part in enumerate(parts()):
        lines = csv_lines(rows[part.start : part.stop], part.start)
        if header:
            lines.insert(0, ",".join([*(f"x{n}" for n in range(WIDTH)), "id"]))
        (folder / f"{number}.csv").write_text("\n".join(lines) + "\n")
    return open_data(str(folder), {"x": (0, WIDTH), "id": WIDTH})


def write_arrays(folder: Path) -> Data:
    path = folder / "data.npz"
    np.savez(path, x=numbers(), id=np.arange(COUNT), scalar=np.float32(3))
    return open_data(str(path))


def example(**features):
    """Return an Example of lists of bytes, ints and floats."""
    import tensorflow as tf

    def listed(values):
        if isinstance(values[0] if len(values) else b"", bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        if isinstance(values[0], int):
            return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))

    return tf.train.Example(
        features=tf.train.Features(feature={k: listed(v) for k, v in features.items()})
    ).SerializeToString()


def write_shards(folder: Path, features: dict[str, Feature], contents: list[bytes],
                 compression: str = "") -> Data:  # fmt: skip
    import tensorflow as tf

    folder.mkdir(exist_ok=True)
    shards = []
    for number, part in enumerate(parts(len(contents))):
        path = folder / shard_name("train", number, FILES)
        with tf.io.TFRecordWriter(str(path), compression) as writer:
            for n in part:
                writer.write(contents[n])
        written = path.read_bytes()
        digest = hashlib.sha256(written).hexdigest()
        shards.append(Shard(path.name, len(part), len(written), digest))
    index = Index("train", features, tuple(shards), compression)
    index_path(folder, "train").write_text(index.text())
    return open_data(str(folder))


def write_records(folder: Path, compression: str = "") -> Data:
    """Write floats, raw bytes of an array and an id."""
    rows = numbers()
    pixels = np.random.default_rng(1).integers(0, 256, (COUNT, 4, 5, 1)).astype(np.uint8)
    features = {
        "x": Feature("float32", (WIDTH,)),
        "pixels": Feature("uint8", (4, 5, 1), "raw"),
        "id": Feature("int64"),
    }
    contents = [
        example(x=[float(v) for v in rows[n]], pixels=[pixels[n].tobytes()], id=[n])
        for n in range(COUNT)
    ]
    return write_shards(folder, features, contents, compression)


def write_texts(folder: Path) -> Data:
    """Write a text, its tokens, and an id."""
    features = {
        "text": Feature("string"),
        "tokens": Feature("string", (None,)),
        "codes": Feature("int64", (None,)),
        "id": Feature("int64"),
    }
    contents = []
    for n in range(COUNT):
        text = TEXTS[n % len(TEXTS)]
        tokens = [word.encode() for word in text.split()]
        codes = [len(word) for word in tokens] or [0]
        contents.append(example(text=[text.encode()], tokens=tokens, codes=codes, id=[n]))
    return write_shards(folder, features, contents)


def jpeg(seed: int, height: int = 9, width: int = 12) -> bytes:
    import tensorflow as tf

    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)
    return tf.io.encode_jpeg(pixels).numpy()


def write_images(folder: Path, count: int = 8) -> Data:
    """Write images of different sizes, numbered by a labels.csv."""
    folder.mkdir()
    for n in range(count):
        (folder / f"{n:02}.jpg").write_bytes(jpeg(n, 9 + n, 12))
    listed = "\n".join(f"{n:02}.jpg,{n}" for n in range(count)) + "\n"
    (folder / "labels.csv").write_text(listed)
    return open_data(str(folder))


def steps_for(data: Data, graph: Graph | None, declared: Preprocessing) -> dict[str, Steps]:
    return {tensor: planned.steps for tensor, planned in plan(data, graph, declared).items()}


def batches_eagerly(piped: Pipeline) -> Iterator[dict[str, np.ndarray]]:
    for each in dataset(piped).as_numpy_iterator():
        yield {name: np.asarray(array) for name, array in each.items()}


def pipeline(data: Data, inputs: dict[str, Steps] | None = None, **more) -> Pipeline:
    steps = steps_for(data, None, Preprocessing(inputs or {}, range=UNIT))
    return Pipeline(data, steps, **{"batch": 4, **more})


def epoch(style: str, piped: Pipeline) -> list[dict[str, np.ndarray]]:
    """Return all batches that a style gives until it ends by itself."""
    import tensorflow as tf

    if style == "feed":
        return list(batches(piped))
    found = []
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    with tf.Graph().as_default():
        made = Queue(piped) if style == "queue" else TfData(piped)
        with tf.compat.v1.Session() as session:
            made.start(session)
            try:
                while True:
                    if isinstance(made, Queue):
                        found.append(made.take(session))
                    else:
                        found.append(session.run(made.tensors))
            except (StopIteration, tf.errors.OutOfRangeError):
                pass
            made.stop()
    return found


def ids(found: list[dict[str, np.ndarray]], name: str = "id") -> list[int]:
    return [int(n) for batch in found for n in batch[name]]
