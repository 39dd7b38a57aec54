"""Affine steps: ops that scale and shift each output channel of a layer by constants.

All of them are y = scale * x + offset: Mul, RealDiv, Add, Sub, BiasAdd, the batch norm ops, and so
the decomposed batch norm that Keras 3 writes, whose scale and offset are constant expressions.
"""

from dataclasses import dataclass

import numpy as np

from deploykit.transforms.core.layers.layers import LAYER_OPS, channels_first, per_channel
from deploykit.transforms.core.node import Node, producer_name
from deploykit.transforms.core.running.constants import Constants
from deploykit.transforms.core.tensors import Array

ARITHMETIC_OPS = frozenset({"Add", "AddV2", "Sub", "Mul", "RealDiv"})
BIAS_OPS = frozenset({"BiasAdd"})
FUSED_BATCH_NORM_OPS = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})
GLOBAL_BATCH_NORM_OPS = frozenset({"BatchNormWithGlobalNormalization"})
BATCH_NORM_OPS = FUSED_BATCH_NORM_OPS | GLOBAL_BATCH_NORM_OPS


@dataclass(frozen=True)
class Affine:
    """y = scale * x + offset per output channel, in float64; None stands for 1 and for 0."""

    scale: Array | None = None
    offset: Array | None = None

    def then(self, other: "Affine") -> "Affine":
        """Return this step followed by another as one step."""
        offset = self.offset
        if offset is not None and other.scale is not None:
            offset = offset * other.scale
        return Affine(_combined(np.multiply, self.scale, other.scale),
                      _combined(np.add, offset, other.offset))  # fmt: skip

    @property
    def finite(self) -> bool:
        """Say whether no channel is scaled or shifted by NaN or Inf."""
        return all(v is None or bool(np.isfinite(v).all()) for v in (self.scale, self.offset))


def _combined(function: np.ufunc, a: Array | None, b: Array | None) -> Array | None:
    return function(a, b) if a is not None and b is not None else b if a is None else a


def read_step(
    constants: Constants,
    layer: Node,
    channels: int,
    step: Node,
    tensor: str,
    scalars: bool = False,
) -> Affine | str:
    """Return what `step` does to the layer's output `tensor`, or why it is no affine step.

    With `scalars`, scaling by a single number is one; shifting by one always is. An input of the
    layer is read in the same way.
    """
    inputs = step.data_inputs
    if inputs.count(tensor) != 1:
        return f"{step.op} reads the layer more than once or at another port"
    if step.op in BATCH_NORM_OPS and inputs[0] == tensor:
        return _batch_norm(constants, layer, channels, step)
    other = next(i for i in inputs if i != tensor)
    vector = _vector(constants, layer, channels, other, step, scalars)
    if isinstance(vector, str):
        return vector
    if step.op in ("Add", "AddV2", "BiasAdd"):
        return Affine(None, vector)
    if step.op == "Mul":
        return Affine(vector)
    if step.op == "Sub":
        left = inputs[0] == tensor
        return Affine(None, -vector) if left else Affine(np.full(channels, -1.0), vector)
    if inputs[0] != tensor:
        return "it divides a constant by the layer"
    with np.errstate(divide="ignore"):
        return Affine(1 / vector)


def _vector(
    constants: Constants, layer: Node, channels: int, tensor: str, step: Node, scalars: bool
) -> Array | str:
    value = constants.value(tensor)
    if value is None:
        return f"'{producer_name(tensor)}' is not constant"
    if step.op in BIAS_OPS:
        if value.shape != (channels,) or not _same_channels(layer, step):
            return "its bias does not lie along the layer's output channels"
        return value.astype(np.float64)
    takes_one = scalars or step.op in ("Add", "AddV2", "Sub")
    if takes_one and value.size == 1 and value.ndim <= LAYER_OPS[layer.op]:
        return np.full(channels, value.reshape(()), np.float64)
    vector = per_channel(layer, value, channels)
    if vector is None:
        return f"its constant of shape {list(value.shape)} is not one value per output channel"
    return vector.astype(np.float64)


def _same_channels(layer: Node, step: Node) -> bool:
    return LAYER_OPS[layer.op] == 2 or channels_first(layer) == channels_first(step)


def _batch_norm(constants: Constants, layer: Node, channels: int, step: Node) -> Affine | str:
    if not _same_channels(layer, step):
        return "the batch norm does not lie along the layer's output channels"
    found = read_batch_norm(constants, step)
    if isinstance(found, Affine) and found.scale is not None and found.scale.shape != (channels,):
        return "a parameter of the batch norm is not one value per output channel"
    return found


def read_batch_norm(constants: Constants, step: Node) -> Affine | str:
    """Return what a batch norm does to each channel of what it reads, or why that is not known."""
    if step.op in FUSED_BATCH_NORM_OPS:
        if step.attr("is_training", True):
            return "the batch norm is in training mode"
        order, epsilon, scaled = (1, 2, 3, 4), step.attr("epsilon", 1e-4), True
    else:  # inputs: x, mean, variance, beta, gamma
        order, epsilon = (4, 3, 1, 2), step.attr("variance_epsilon")
        scaled = step.attr("scale_after_normalization")
    values = [constants.value(step.data_inputs[i]) for i in order]
    if any(value is None for value in values) or epsilon is None:
        return "a parameter of the batch norm is not constant"
    gamma, beta, mean, variance = (np.asarray(v, np.float64) for v in values)
    if mean.ndim != 1 or any(v.shape != mean.shape for v in (gamma, beta, variance)):
        return "a parameter of the batch norm is not one value per output channel"
    with np.errstate(invalid="ignore", divide="ignore"):
        scale = (gamma if scaled else 1.0) / np.sqrt(variance + epsilon)
    return Affine(scale, beta - mean * scale)
