"""Write a net that reads the stars of a review off its title and text, and records to train it on.

    python models/text_rating/build.py [--to DIR]

Writes `built/` beside this file, unless it is there already: TFRecords of made-up reviews, what is
to be done to them, the graph of one training step, and the net trained on other such reviews, as a
checkpoint and frozen.
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from models.building import new_folder
from models.fetch import destination
from models.text_rating.net import training_graph
from models.text_rating.reviews import reviews

HERE = Path(__file__).parent

SHARDS, REVIEWS = 4, 1600  # reviews of one shard
WORDS = {"title": 8, "review": 48}  # at most

TRAINED_ON, TESTED_ON = 12_800, 2_000
BATCH = 64
EPOCHS = 3
SEED = 1


def write_records(folder: Path) -> None:
    """Write reviews as TFRecords of whole texts, with the index of `deploykit records`."""
    import tensorflow as tf

    from deploykit.records.examples import Feature
    from deploykit.records.index import Index, Shard, index_path, shard_name

    folder.mkdir()
    shards = []
    made = reviews(SHARDS * REVIEWS, SEED)
    for number in range(SHARDS):
        path = folder / shard_name("reviews", number, SHARDS)
        with tf.io.TFRecordWriter(str(path)) as writer:
            for _ in range(REVIEWS):
                writer.write(_example(tf, *next(made)))
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        shards.append(Shard(path.name, REVIEWS, len(content), digest))
    features = {
        "title": Feature("string"),
        "review": Feature("string"),
        "label": Feature("float32"),
    }
    index_path(folder, "reviews").write_text(Index("reviews", features, tuple(shards)).text())


def _example(tf, title: str, review: str, label: float) -> bytes:
    def text(value: str):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode()]))

    number = tf.train.Feature(float_list=tf.train.FloatList(value=[label]))
    features = {"title": text(title), "review": text(review), "label": number}
    example = tf.train.Example(features=tf.train.Features(feature=features))
    return example.SerializeToString(deterministic=True)


def preprocessing() -> dict:
    """Return what becomes of a record, as `--preprocess` reads it: split, truncate, pad."""
    inputs = {name: {"split": " ", "length": length} for name, length in WORDS.items()}
    return {"format": 1, "inputs": inputs}


def words(texts: list[str], length: int) -> np.ndarray:
    """Return the words of texts as the net takes them, "" behind the last one, bytes [N, ?]."""
    rows = [text.split(" ")[:length] for text in texts]
    longest = max(map(len, rows))
    padded = [[word.encode() for word in row] + [b""] * (longest - len(row)) for row in rows]
    return np.array(padded, object)


def feeds(part: list[tuple[str, str, float]]) -> dict[str, np.ndarray]:
    """Return what reviews are fed as."""
    titles, texts, stars = zip(*part, strict=True)
    return {
        "title:0": words(titles, WORDS["title"]),
        "review:0": words(texts, WORDS["review"]),
        "label:0": np.array(stars, np.float32),
    }


def train(graph, prefix: Path) -> tuple[float, float]:
    """Train on reviews that are in no record and save the net.

    Returns its root mean square error on others, and that of saying the mean for each.
    """
    import tensorflow.compat.v1 as tf

    made = list(reviews(TRAINED_ON, SEED + 1))
    tested = feeds(list(reviews(TESTED_ON, SEED + 2)))
    shuffle = np.random.default_rng(SEED)
    with graph.as_default(), tf.Session() as session:
        # Relative, so that the file `checkpoint` names no folder of this machine.
        saver = tf.train.Saver(save_relative_paths=True)
        session.run("init")
        for _ in range(EPOCHS):
            order = shuffle.permutation(len(made))
            for first in range(0, len(order), BATCH):
                chosen = [made[n] for n in order[first : first + BATCH]]
                session.run("train", feeds(chosen))
        saver.save(session, str(prefix))
        return float(session.run("loss:0", tested)) ** 0.5, float(np.std(tested["label:0"]))


def write(folder: Path) -> None:
    """Write `records/`, `preprocess.json`, `train.pb`, `model.ckpt` and `frozen.pb`."""
    import tensorflow.compat.v1 as tf

    import deploykit

    tf.get_logger().setLevel("ERROR")  # it calls everything of TF1 deprecated
    write_records(folder / "records")
    (folder / "preprocess.json").write_text(json.dumps(preprocessing(), indent=1) + "\n")
    graph = training_graph(SEED)
    (folder / "train.pb").write_bytes(graph.as_graph_def().SerializeToString(deterministic=True))
    error, mean = train(graph, folder / "model.ckpt")
    print(f"wrong by {error:.2f} stars on {TESTED_ON:,} other reviews (their mean: {mean:.2f})")
    frozen = deploykit.freeze(folder / "model.ckpt", inputs=["title", "review"], outputs=["out"])
    deploykit.save_graph(frozen, folder / "frozen.pb")


def main() -> None:
    """Write what is not there yet; all files appear at once."""
    folder = destination(__doc__, HERE / "built")
    if not folder.exists():
        with new_folder(folder) as partial:
            write(partial)
    print(folder)


if __name__ == "__main__":
    main()
