"""EfficientNet-Lite0 as a TF1 graph: 33 convolutions, 16 depthwise ones, 49 batch norms, Relu6.

It is EfficientNet-B0 with fixed stem and head, without squeeze-and-excite, and with Relu6 in place
of swish, so that 8 bits suit it. Layers and blocks bear the names that the weights file gives them.
"""

import numpy as np

# The stride of each block; kernels, channels and whether a block widens follow from the weights.
STRIDES = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1)
SIZE = 224
EPSILON = 1e-3
BATCH_NORM = {
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}


class Net:
    """The net in the default graph, and the values that its variables are to get."""

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        """Build the net; `weights` are in torch's layout, as `read_weights` returns them.

        `images` is fed, float32 [N, 224, 224, 3]; `logits` and `probabilities` are [N, 1000].
        """
        import tensorflow.compat.v1 as tf

        self.weights = weights
        self.values: list[tuple] = []
        self.images = tf.placeholder(tf.float32, [None, SIZE, SIZE, 3], name="images")
        net = tf.nn.relu6(self._convolution(self.images, "_conv_stem", "_bn0", stride=2))
        for number, stride in enumerate(STRIDES):
            net = self._block(net, f"_blocks.{number}.", stride)
        net = tf.nn.relu6(self._convolution(net, "_conv_head", "_bn1"))
        net = tf.reduce_mean(net, [1, 2], name="global_mean")
        net = tf.matmul(net, self._variable("fc/weights", weights["_fc.weight"].T))
        bias = self._variable("fc/bias", weights["_fc.bias"])
        self.logits = tf.nn.bias_add(net, bias, name="logits")
        self.probabilities = tf.nn.softmax(self.logits, name="probabilities")

    def _block(self, net, name: str, stride: int):
        """Return an inverted bottleneck: widen, filter each channel, narrow; add what came in."""
        import tensorflow.compat.v1 as tf

        before = net
        if f"{name}_expand_conv.weight" in self.weights:
            net = tf.nn.relu6(self._convolution(net, f"{name}_expand_conv", f"{name}_bn0"))
        net = self._convolution(net, f"{name}_depthwise_conv", f"{name}_bn1", stride, True)
        net = self._convolution(tf.nn.relu6(net), f"{name}_project_conv", f"{name}_bn2")
        return net + before if net.shape[1:] == before.shape[1:] else net

    def _convolution(self, net, name: str, batch_norm: str, stride=1, depthwise=False):
        """Return a convolution and its batch norm; padding is TF's SAME, as in the training."""
        import tensorflow.compat.v1 as tf

        kernel = self.weights[f"{name}.weight"]  # [out, in, height, width]
        strides = [1, stride, stride, 1]
        if depthwise:
            kernel = self._variable(f"{name}/weights", kernel.transpose(2, 3, 0, 1))
            net = tf.nn.depthwise_conv2d_native(net, kernel, strides, "SAME")
        else:
            kernel = self._variable(f"{name}/weights", kernel.transpose(2, 3, 1, 0))
            net = tf.nn.conv2d(net, kernel, strides, "SAME")
        gamma, beta, mean, variance = (
            self._variable(f"{batch_norm}/{part}", self.weights[f"{batch_norm}.{theirs}"])
            for part, theirs in BATCH_NORM.items()
        )
        parameters = (gamma, beta, mean, variance, EPSILON)
        return tf.nn.fused_batch_norm(net, *parameters, is_training=False)[0]

    def _variable(self, name: str, value: np.ndarray):
        """Return a new variable, and note its value: an initializer would put it into the graph."""
        import tensorflow.compat.v1 as tf

        name = name.replace("_blocks.", "block").replace("._", "/").removeprefix("_")
        variable = tf.get_variable(name, value.shape, initializer=tf.zeros_initializer())
        self.values.append((variable, value))
        return variable
