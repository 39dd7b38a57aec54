"""Train one small net on Fashion-MNIST twice: as a TF1 training checkpoint and as a Keras model.

    python models/fashion/build.py [--epochs 3] [--data DIR]

Writes `tf1/model.ckpt.*`, `fashion.keras` and `test_1000.npz` beside this file. The data comes
from a Debian package, which takes apt and dpkg, or from a folder that holds it unpacked.
"""

import argparse
import gzip
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from models.fetch import DebianPackage, unpack

HERE = Path(__file__).parent

PACKAGE = DebianPackage(
    "dataset-fashion-mnist",
    "0.0~git20200523.55506a9-1",
    "39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
)
DATA_IN_PACKAGE = "usr/share/datasets/fashion-mnist"

# The net: a 3x3 convolution, depthwise-separable blocks, each (channels, stride), mean, dense.
STEM = (32, 2)
BLOCKS = ((64, 1), (64, 2), (128, 1), (128, 2), (128, 1))
CLASSES = 10
EPSILON = 1e-3
MOMENTUM = 0.9

LEARNING_RATE = 3e-3
BATCH = 128
SEED = 1


def read_idx(path: Path) -> np.ndarray:
    """Read a gzipped IDX file of unsigned bytes: 0, 0, type 8, rank, big-endian sizes, values."""
    content = gzip.decompress(path.read_bytes())
    rank = content[3]
    shape = np.frombuffer(content, ">i4", count=rank, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * rank).reshape(shape)


def load(data: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Return images, float32 [N, 28, 28, 1] in [0, 1], and labels, int64 [N], of a part.

    `part` is `train` or `t10k`, as in the names of the files.
    """
    images = read_idx(data / f"{part}-images-idx3-ubyte.gz")
    labels = read_idx(data / f"{part}-labels-idx1-ubyte.gz")
    return images[..., np.newaxis] / np.float32(255), labels.astype(np.int64)


def read_data(data: Path | None):
    """Return the training and the test images, each with labels, of a folder or of the package."""
    with tempfile.TemporaryDirectory() as folder:
        hint = f"pass --data DIR with an unpacked {DATA_IN_PACKAGE}"
        data = data or unpack(PACKAGE, Path(folder, "package"), hint) / DATA_IN_PACKAGE
        try:
            return load(data, "train"), load(data, "t10k")
        except OSError as error:
            sys.exit(
                f"cannot read {error.filename}: {error.strerror}; --data needs the four .gz files"
            )


def add_data_option(parser: argparse.ArgumentParser) -> None:
    """Add --data, which names a folder that makes the package unnecessary."""
    parser.add_argument("--data", type=Path, metavar="DIR", help=f"unpacked {DATA_IN_PACKAGE}")


def keras_net():
    """Return the input and the logits of the net, made of Keras layers."""
    from keras import Input, layers

    def normalised(net):
        net = layers.BatchNormalization(momentum=MOMENTUM, epsilon=EPSILON)(net)
        return layers.Activation("relu6")(net)

    images = Input((28, 28, 1), name="images")
    channels, stride = STEM
    net = layers.Conv2D(channels, 3, stride, padding="same", use_bias=False)(images)
    net = normalised(net)
    for channels, stride in BLOCKS:
        net = layers.DepthwiseConv2D(3, stride, padding="same", use_bias=False)(net)
        net = normalised(net)
        net = layers.Conv2D(channels, 1, use_bias=False)(net)
        net = normalised(net)
    net = layers.GlobalAveragePooling2D()(net)
    return images, layers.Dense(CLASSES, name="logits")(net)


def train_keras(make_net, train, test, epochs: int, path: Path) -> np.ndarray:
    """Train a net with Keras, save it to `path`, and return the classes of the test images.

    `make_net` returns the input and the logits of an untrained net.
    """
    import keras

    keras.utils.clear_session()  # names start at 0, whatever was trained before
    keras.utils.set_random_seed(SEED)
    images, logits = make_net()
    steps = epochs * -(-len(train[0]) // BATCH)
    trained = keras.Model(images, logits)
    trained.compile(
        optimizer=keras.optimizers.Adam(
            keras.optimizers.schedules.CosineDecay(LEARNING_RATE, steps)
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    trained.fit(*train, batch_size=BATCH, epochs=epochs, validation_data=test, verbose=2)

    # A second model of the same layers, never compiled: its file holds no optimizer state.
    probabilities = keras.layers.Softmax(name="probabilities")(logits)
    model = keras.Model(images, probabilities, name=path.stem)
    model.save(path)
    return model.predict(test[0], batch_size=1000, verbose=0).argmax(axis=1)


def tf1_net(images, is_training):
    """Return the logits of the net, made of TF1 ops and reference variables.

    Each batch norm is a `cond` on `is_training`, as old training scripts wrote it.
    """
    import tensorflow.compat.v1 as tf

    def weights(*shape):
        return tf.get_variable("weights", shape)

    def normalised(net):
        with tf.variable_scope("batch_norm"):
            size = [net.shape[-1]]
            gamma = tf.get_variable("gamma", size, initializer=tf.ones_initializer())
            beta = tf.get_variable("beta", size, initializer=tf.zeros_initializer())
            moving_mean = tf.get_variable(
                "moving_mean", size, initializer=tf.zeros_initializer(), trainable=False
            )
            moving_variance = tf.get_variable(
                "moving_variance", size, initializer=tf.ones_initializer(), trainable=False
            )

            def train_mode():
                output, mean, variance = tf.nn.fused_batch_norm(net, gamma, beta, epsilon=EPSILON)
                rate = 1 - MOMENTUM
                updates = [
                    tf.assign_sub(moving_mean, rate * (moving_mean - mean)),
                    tf.assign_sub(moving_variance, rate * (moving_variance - variance)),
                ]
                with tf.control_dependencies(updates):
                    return tf.identity(output)

            def inference_mode():
                return tf.nn.fused_batch_norm(
                    net, gamma, beta, moving_mean, moving_variance, EPSILON, is_training=False
                )[0]

            return tf.nn.relu6(tf.cond(is_training, train_mode, inference_mode))

    channels, stride = STEM
    with tf.variable_scope("conv"):
        net = tf.nn.conv2d(images, weights(3, 3, 1, channels), stride, "SAME")
        net = normalised(net)
    for number, (channels, stride) in enumerate(BLOCKS, start=1):
        before = net.shape[-1]
        with tf.variable_scope(f"block{number}/depthwise"):
            strides = [1, stride, stride, 1]
            net = tf.nn.depthwise_conv2d_native(net, weights(3, 3, before, 1), strides, "SAME")
            net = normalised(net)
        with tf.variable_scope(f"block{number}/pointwise"):
            net = tf.nn.conv2d(net, weights(1, 1, before, channels), 1, "SAME")
            net = normalised(net)
    net = tf.reduce_mean(net, [1, 2], name="global_mean")
    with tf.variable_scope("dense"):
        net = tf.matmul(net, weights(net.shape[-1], CLASSES))
        bias = tf.get_variable("bias", [CLASSES], initializer=tf.zeros_initializer())
    return tf.nn.bias_add(net, bias, name="logits")


def train_tf1(train, test, epochs: int, prefix: Path) -> np.ndarray:
    """Train the net in a TF1 session, save all of it, and return the classes of the test images."""
    import tensorflow.compat.v1 as tf

    # Both as in TF1: batch norms in Switch and Merge, VariableV2 in place of resources.
    tf.disable_control_flow_v2()
    tf.disable_resource_variables()

    shuffle = np.random.default_rng(SEED)
    steps = epochs * -(-len(train[0]) // BATCH)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(SEED)
        images = tf.placeholder(tf.float32, [None, 28, 28, 1], name="images")
        labels = tf.placeholder(tf.int64, [None], name="labels")
        is_training = tf.placeholder(tf.bool, [], name="is_training")
        logits = tf1_net(images, is_training)
        tf.nn.softmax(logits, name="probabilities")
        loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
        step = tf.train.get_or_create_global_step()
        rate = tf.train.cosine_decay(LEARNING_RATE, step, steps)
        train_op = tf.train.AdamOptimizer(rate).minimize(loss, step, name="train")
        # Relative, so that the file `checkpoint` names no folder of this machine.
        saver = tf.train.Saver(save_relative_paths=True)

        def classes():
            parts = [
                session.run(logits, {images: part, is_training: False})
                for part in np.array_split(test[0], 10)
            ]
            return np.concatenate(parts).argmax(axis=1)

        session.run(tf.global_variables_initializer())
        for epoch in range(1, epochs + 1):
            order = shuffle.permutation(len(train[0]))
            for first in range(0, len(order), BATCH):
                chosen = order[first : first + BATCH]
                feeds = {images: train[0][chosen], labels: train[1][chosen], is_training: True}
                session.run(train_op, feeds)
            print(f"TF1 epoch {epoch}/{epochs}: test accuracy {np.mean(classes() == test[1]):.4f}")
        prefix.parent.mkdir(exist_ok=True)
        saver.save(session, str(prefix))
        return classes()


def main() -> None:
    """Build all artefacts and print how well both nets do on the test images."""
    parser = argparse.ArgumentParser(description="Build the Fashion-MNIST example models.")
    parser.add_argument("--epochs", type=int, default=3, help="passes over the training images")
    add_data_option(parser)
    options = parser.parse_args()

    train, test = read_data(options.data)
    images, labels = test
    np.savez_compressed(HERE / "test_1000.npz", images=images[:1000], labels=labels[:1000])
    # Keras goes first: the TF1 switches hold for the rest of the process.
    results = {
        "fashion.keras": train_keras(
            keras_net, train, test, options.epochs, HERE / "fashion.keras"
        ),
        "tf1/model.ckpt": train_tf1(train, test, options.epochs, HERE / "tf1" / "model.ckpt"),
    }
    for name, classes in results.items():
        right = classes == labels
        print(
            f"{name}: test accuracy {np.mean(right):.4f} on 10,000 images, "
            f"{np.mean(right[:1000]):.4f} on the first 1,000"
        )


if __name__ == "__main__":
    main()
