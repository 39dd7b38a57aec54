"""Write the files of Keras 2.13 in this folder: `pip install tensorflow-cpu==2.13.*`, run this.

That version wrote .keras archives in a layout of its own, which no later Keras reads.
"""

from pathlib import Path

import numpy as np
from tensorflow import keras

HERE = Path(__file__).parent
TEXTS = ["b a c", "d", "a a b"]


def main() -> None:
    keras.utils.set_random_seed(1)
    text = keras.Input((1,), dtype="string", name="text")
    words = keras.layers.TextVectorization(output_mode="tf_idf", name="words")
    words.adapt(np.array(["a b", "c a", "b b zz"]))
    series = keras.Input((5, 4), name="series")
    inner = keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(2), keras.layers.ReLU()])
    states = keras.layers.Bidirectional(keras.layers.GRU(3))(series)
    norm = keras.layers.BatchNormalization(name="norm")
    joined = keras.layers.concatenate([inner(words(text)), norm(states)])
    outputs = {"second": keras.layers.Dense(2, name="b")(joined), "first": joined * 2.0}
    model = keras.Model({"text": text, "series": series}, outputs)
    random = np.random.default_rng(0)
    norm.set_weights([random.uniform(0.5, 1.5, 6) for _ in range(4)])
    model.save(HERE / "model_2_13.keras")
    values = random.normal(size=(3, 5, 4)).astype(np.float32)
    answers = model({"text": np.array(TEXTS)[:, None], "series": values}, training=False)
    answers = {name: answer.numpy() for name, answer in answers.items()}
    np.savez_compressed(HERE / "expected_2_13.npz", series=values, **answers)


if __name__ == "__main__":
    main()
