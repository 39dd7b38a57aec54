"""Layers: ops that multiply an input with weights, and where their output channels lie."""

LAYER_OPS = frozenset(
    {"Conv2D", "Conv3D", "Conv2DBackpropInput", "DepthwiseConv2dNative", "MatMul"}
)
