"""Three small nets for 28x28 images in the shapes that image networks have, made of Keras layers.

Each function returns the input and the logits of an untrained net. Weights come from Keras's
random seed.
"""

from models.fashion.build import CLASSES, EPSILON, MOMENTUM

# Blocks of the ResNet: (channels, stride); where either changes, a 1x1 projection is the shortcut.
RESIDUAL_BLOCKS = ((24, 1), (48, 2), (48, 1), (96, 2))
# Stages of the Inception-like net: blocks, (channels of each of four branches, pool of the fourth).
INCEPTION_STAGES = (((16, "avg"),), ((32, "max"), (32, "avg")))
# Inverted bottlenecks of the MobileNetV3-like net: (expanded, channels, stride, gated).
BOTTLENECKS = ((32, 24, 1, False), (48, 24, 1, False), (72, 40, 2, True), (120, 40, 1, True))


def resnet():
    """Return a ResNet: two 3x3 convolutions a block, added to their input, then a Relu."""
    from keras import layers

    images = _images()
    net = _relu(_convolved(images, 24, 3))
    net = layers.MaxPooling2D()(net)
    for channels, stride in RESIDUAL_BLOCKS:
        shortcut = net
        if (channels, stride) != (net.shape[-1], 1):
            shortcut = _convolved(net, channels, 1, stride)
        net = _relu(_convolved(net, channels, 3, stride))
        net = _convolved(net, channels, 3)
        net = _relu(layers.Add()([shortcut, net]))
    return images, _logits(net)


def inception():
    """Return an Inception-like net: blocks of four branches that a concat joins."""
    from keras import layers

    pools = {"avg": layers.AveragePooling2D, "max": layers.MaxPooling2D}
    images = _images()
    net = _relu(_convolved(images, 16, 3))
    for stage in INCEPTION_STAGES:
        net = layers.MaxPooling2D()(net)
        for channels, pool in stage:
            narrow = _relu(_convolved(net, channels, 1))
            wide = _relu(_convolved(net, channels, 1))
            wide = _relu(_convolved(wide, channels, 3))
            wider = _relu(_convolved(net, channels, 1))
            wider = _relu(_convolved(wider, channels, 3))
            wider = _relu(_convolved(wider, channels, 3))
            pooled = pools[pool](3, 1, padding="same")(net)
            pooled = _relu(_convolved(pooled, channels, 1))
            net = layers.Concatenate()([narrow, wide, wider, pooled])
    return images, _logits(net)


def mobilenet_v3():
    """Return a MobileNetV3-like net: inverted bottlenecks, hard swish, squeeze-and-excite."""
    from keras import layers

    images = _images()
    net = _hard_swish(_convolved(images, 16, 3, 2))
    for expanded, channels, stride, gated in BOTTLENECKS:
        activated = _hard_swish if gated else _relu
        block = activated(_convolved(net, expanded, 1))
        block = layers.DepthwiseConv2D(3, stride, padding="same", use_bias=False)(block)
        block = activated(_normalised(block))
        if gated:
            block = _squeezed_and_excited(block)
        block = _convolved(block, channels, 1)
        same = (channels, stride) == (net.shape[-1], 1)
        net = layers.Add()([net, block]) if same else block
    net = _hard_swish(_convolved(net, 160, 1))
    return images, _logits(net)


NETS = {"resnet": resnet, "inception": inception, "mobilenet_v3": mobilenet_v3}


def _images():
    from keras import Input

    return Input((28, 28, 1), name="images")


def _convolved(net, channels: int, size: int, stride: int = 1):
    from keras import layers

    net = layers.Conv2D(channels, size, stride, padding="same", use_bias=False)(net)
    return _normalised(net)


def _normalised(net):
    from keras import layers

    return layers.BatchNormalization(momentum=MOMENTUM, epsilon=EPSILON)(net)


def _relu(net):
    from keras import layers

    return layers.Activation("relu")(net)


def _hard_sigmoid(net):
    from keras import ops

    return ops.relu6(net + 3) / 6


def _hard_swish(net):
    from keras import ops

    return net * ops.relu6(net + 3) / 6


def _squeezed_and_excited(net):
    """Scale each channel by a gate that two 1x1 convolutions compute from all channels' means."""
    from keras import layers

    channels = net.shape[-1]
    gate = layers.GlobalAveragePooling2D(keepdims=True)(net)
    gate = layers.Conv2D(channels // 4, 1, activation="relu")(gate)
    return net * _hard_sigmoid(layers.Conv2D(channels, 1)(gate))


def _logits(net):
    from keras import layers

    net = layers.GlobalAveragePooling2D()(net)
    return layers.Dense(CLASSES, name="logits")(net)
