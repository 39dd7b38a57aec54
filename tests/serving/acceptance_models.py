"""Models as users save them, each in the version directory 00000123 of its own folder."""

from pathlib import Path

from tests.serving.small_models import half_plus

VERSION = "00000123"


def write(base: Path) -> list[str]:
    """Write all models; return their names."""
    half_plus(base / "half_plus_two", 2)
    half_plus(base / "half_plus_three", 3)
    for name, save in _SAVED.items():
        save(str(base / name / VERSION))
    uninitialised(base / "uninitialised" / VERSION)
    return ["half_plus_two", "half_plus_three", *_SAVED, "uninitialised"]


def tf2(folder: str) -> None:
    """Half plus two, as TensorFlow 2 saves it."""
    import tensorflow as tf

    texts = tf.TensorSpec([None], tf.string)

    class HalfPlusTwo(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.half, self.two = tf.Variable(0.5), tf.Variable(2.0)

        @tf.function(input_signature=[tf.TensorSpec([1], tf.float32, name="x")])
        def predict(self, x):
            return {"y": x * self.half + self.two}

        def parsed(self, examples):
            found = tf.io.parse_example(examples, {"x": tf.io.FixedLenFeature([1], tf.float32)})
            return found["x"] * self.half + self.two

        @tf.function(input_signature=[texts])
        def classify(self, inputs):
            return {"scores": self.parsed(inputs)}

        @tf.function(input_signature=[texts])
        def regress(self, inputs):
            return {"outputs": self.parsed(inputs)}

    model = HalfPlusTwo()
    signatures = {
        "serving_default": model.predict,
        "classify_x_to_y": model.classify,
        "regress_x_to_y": model.regress,
    }
    tf.saved_model.save(model, folder, signatures)


def one_function(folder: str) -> None:
    """A checkpoint object with variables, and a function for any shape."""
    import tensorflow as tf

    root = tf.train.Checkpoint(three=tf.Variable(3.0), two=tf.Variable(2.0))
    root.f = tf.function(lambda x: {"y": root.three * root.two * x})
    tf.saved_model.save(root, folder, root.f.get_concrete_function(tf.TensorSpec(None, tf.float32)))


def several_signatures(folder: str) -> None:
    import tensorflow as tf

    any_shape = [tf.TensorSpec(None, tf.float32)]
    root = tf.train.Checkpoint()
    root.f = tf.function(lambda x: {"y": 0 * x + 1.0}, input_signature=any_shape)
    root.g = tf.function(lambda x: {"y": 0 * x + 2.0}, input_signature=any_shape)
    tf.saved_model.save(root, folder, {"serving_default": root.f, "custom": root.g})


def keras(folder: str) -> None:
    """By `export`: of what tf.saved_model.save writes of Keras 3, the loader finds no variables."""
    import keras

    layers = [
        keras.layers.Input((1,), name="x"),
        keras.layers.Dense(1, kernel_initializer="ones", bias_initializer="zeros", name="y"),
    ]
    keras.Sequential(layers).export(folder, verbose=False)


def distributed(folder: str) -> None:
    """Variables of a distribution strategy."""
    import tensorflow as tf

    root = tf.Module()
    with tf.distribute.MirroredStrategy(["/cpu:0"]).scope():
        root.weight = tf.Variable(1.5)
    any_shape = [tf.TensorSpec(None, tf.float32)]
    root.f = tf.function(lambda x: {"y": root.weight * x}, input_signature=any_shape)
    tf.saved_model.save(root, folder, root.f)


def uninitialised(folder: Path) -> None:
    """A variable that nothing restores: the model loads, and cannot answer."""
    import tensorflow as tf

    tf1 = tf.compat.v1
    with tf.Graph().as_default() as graph, tf1.Session(graph=graph) as session:
        x = tf1.placeholder(tf.float32, name="x")
        kept = tf1.Variable(0.5)
        lost = tf1.Variable(2.0)
        y = kept * x + lost
        session.run(tf1.global_variables_initializer())
        signature = tf1.saved_model.predict_signature_def({"x": x}, {"y": y})
        builder = tf1.saved_model.Builder(str(folder))
        builder.add_meta_graph_and_variables(
            session, ["serve"], {"serving_default": signature}, saver=tf1.train.Saver([kept])
        )
        builder.save()


_SAVED = {
    "tf2": tf2,
    "one_function": one_function,
    "several_signatures": several_signatures,
    "keras": keras,
    "distributed": distributed,
}
