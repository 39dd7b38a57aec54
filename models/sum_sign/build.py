"""Write a net that says whether the sum of 1024 numbers is positive, and CSV files to train it on.

    python models/sum_sign/build.py [--to DIR]

Writes `built/` beside this file, unless it is there already: 20 CSV files, the graph of one
training step, and the net trained on other numbers of the same kind, as a checkpoint and frozen.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from models.building import new_folder
from models.fetch import destination

HERE = Path(__file__).parent

INPUTS = 1024
HIDDEN = 1024
FILES, LINES = 20, 100

BATCH = 32
STEPS = 1500
LEARNING_RATE = 0.02
SEED = 1


def samples(count: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers in [-1, 1], float32 [count, 1024], and whether each sum is positive, int64."""
    # Six decimals are what the files hold, so that a label is right for what is read back.
    x = random.uniform(-1, 1, (count, INPUTS)).round(6)
    return x.astype(np.float32), (x.sum(axis=1) > 0).astype(np.int64)


def write_csv(folder: Path) -> None:
    """Write 20 files of 100 lines: 1024 numbers and the label, without a header."""
    random = np.random.default_rng(SEED)
    folder.mkdir()
    for number in range(FILES):
        x, label = samples(LINES, random)
        lines = [
            ",".join([*(f"{value:.6f}" for value in row), str(sign)])
            for row, sign in zip(x, label, strict=True)
        ]
        (folder / f"part-{number:02}-of-{FILES}.csv").write_text("\n".join(lines) + "\n")


def training_graph():
    """Return the graph of one training step, by plain gradient descent.

    Inputs `x` and `label`; ops `init` and `train`; tensors `loss`, `logits` and `out`, which is
    the probability that the sum is positive.
    """
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default() as graph:
        tf.set_random_seed(SEED)
        x = tf.placeholder(tf.float32, [None, INPUTS], name="x")
        label = tf.placeholder(tf.int64, [None], name="label")
        hidden = tf.nn.relu(_dense(tf, x, HIDDEN, "hidden"))
        logits = tf.squeeze(_dense(tf, hidden, 1, "output"), 1, name="logits")
        tf.sigmoid(logits, name="out")
        errors = tf.nn.sigmoid_cross_entropy_with_logits(
            labels=tf.cast(label, tf.float32), logits=logits
        )
        loss = tf.reduce_mean(errors, name="loss")
        tf.train.GradientDescentOptimizer(LEARNING_RATE).minimize(loss, name="train")
        tf.variables_initializer(tf.global_variables(), name="init")
    return graph


def _dense(tf, x, size: int, name: str):
    with tf.variable_scope(name):
        weights = tf.get_variable("weights", [x.shape[-1], size])
        bias = tf.get_variable("bias", [size], initializer=tf.zeros_initializer())
        return tf.nn.bias_add(tf.matmul(x, weights), bias)


def train(graph, prefix: Path) -> float:
    """Train on numbers that are in no file, save the net, and return its accuracy on others."""
    import tensorflow.compat.v1 as tf

    random = np.random.default_rng(SEED + 1)
    with graph.as_default(), tf.Session() as session:
        saver = tf.train.Saver(save_relative_paths=True)
        session.run("init")
        for _ in range(STEPS):
            x, label = samples(BATCH, random)
            session.run("train", {"x:0": x, "label:0": label})
        # Relative, so that the file `checkpoint` names no folder of this machine.
        saver.save(session, str(prefix))
        x, label = samples(2000, random)
        return float(np.mean((session.run("out:0", {"x:0": x}) > 0.5) == label))


def write(folder: Path) -> None:
    """Write `csv/`, `train.pb`, `model.ckpt` and `frozen.pb`."""
    import tensorflow.compat.v1 as tf

    import deploykit

    tf.get_logger().setLevel("ERROR")  # it calls everything of TF1 deprecated
    write_csv(folder / "csv")
    graph = training_graph()
    (folder / "train.pb").write_bytes(graph.as_graph_def().SerializeToString(deterministic=True))
    accuracy = train(graph, folder / "model.ckpt")
    print(f"right on {100 * accuracy:.1f} % of 2,000 other lines")
    frozen = deploykit.freeze(folder / "model.ckpt", inputs=["x"], outputs=["out"])
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
