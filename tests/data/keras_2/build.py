"""Write the files of this folder with Keras 2: `pip install tf_keras==2.21.0`, then run this.

They are kept because the tests do not install Keras 2. The layers are those whose description
Keras 3 no longer reads as it stands.
"""

from pathlib import Path

import numpy as np
import tf_keras as keras

HERE = Path(__file__).parent
CHANNELS = 8


def main() -> None:
    keras.utils.set_random_seed(1)
    random = np.random.default_rng(0)
    image = keras.Input((8, 8, 3), name="image")
    layers = [
        keras.layers.ZeroPadding2D(1),
        keras.layers.Conv2D(CHANNELS, 3, strides=2, use_bias=False, name="conv"),
        keras.layers.BatchNormalization(name="norm"),
        keras.layers.ReLU(6.0),
        keras.layers.DepthwiseConv2D(3, padding="same", name="depthwise"),
        keras.layers.SpatialDropout2D(0.3),
        keras.layers.SeparableConv2D(6, 3, name="separable"),
        keras.layers.Reshape((4, 6)),
        keras.layers.GRU(5, return_sequences=True),
        keras.layers.Bidirectional(keras.layers.LSTM(3)),
        keras.Sequential([keras.layers.Dense(7, "tanh", input_shape=(6,))], name="inner"),
        keras.layers.Dense(4, "softmax", name="probabilities"),
    ]
    result = image
    for layer in layers:
        result = layer(result)
    model = keras.Model(image, result)
    low_high = ((0.5, 1.5), (-0.3, 0.3), (-0.3, 0.3), (0.5, 2.0))
    model.get_layer("norm").set_weights([random.uniform(*each, CHANNELS) for each in low_high])
    model.save(HERE / "model.h5", include_optimizer=False)
    (HERE / "model.json").write_text(model.to_json())
    images = random.uniform(-1, 1, (3, 8, 8, 3)).astype(np.float32)
    np.savez_compressed(HERE / "expected.npz", image=images, probabilities=model(images).numpy())
    keras.Model(image, keras.layers.Lambda(lambda t: t * 2)(image)).save(HERE / "lambda.h5")


if __name__ == "__main__":
    main()
