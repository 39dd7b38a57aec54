"""The layout of images does not change the result, if all ops agree on it."""

import logging
from typing import Any

import numpy as np

from deploykit.transforms.common.errors import PipelineError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import Array, DType
from deploykit.transforms.runtime.constants import Constants

logger = logging.getLogger("deploykit")

LAYOUTS = ("NCHW", "NHWC")

BATCH_NORM_OPS = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})
IMAGE_OPS = BATCH_NORM_OPS | {"AvgPool", "Conv2D", "DepthwiseConv2dNative", "MaxPool"}
ELEMENTWISE_OPS = frozenset(
    {"Abs", "Add", "AddV2", "Elu", "Exp", "Identity", "LeakyRelu", "Log", "Maximum", "Minimum"}
    | {"Mul", "Neg", "RealDiv", "Relu", "Relu6", "Rsqrt", "Selu", "Sigmoid", "Softplus"}
    | {"Softsign", "Sqrt", "Square", "Sub", "Tanh"}
)
REDUCTION_OPS = frozenset({"Max", "Mean", "Min", "Prod", "Sum"})
PAD_OPS = frozenset({"MirrorPad", "Pad", "PadV2"})


def convert_layout(graph: Graph, *, to: str = "NHWC") -> None:
    """Convert convolutions, poolings and batch norms, and the ops between them, to another layout.

    TensorFlow without oneDNN runs NHWC only on a CPU, and with oneDNN it runs NHWC faster. No CPU
    runs convolutions and poolings of other types than float32 in NCHW: a warning names one. Tensors
    that cannot be converted, such as inputs, outputs and Reshape, keep their layout behind a
    Transpose; pairs of Transposes that undo each other are removed. Run fold_constants before.

    Args:
        to: the layout of all images, NHWC or NCHW.
    """
    if to not in LAYOUTS:
        raise PipelineError("not-one-of", what="to", known=["NHWC", "NCHW"], got=to)
    conversion = _Conversion(graph, to)
    for name in graph.order():
        if name in graph:
            conversion.visit(graph[name])
    if conversion.gpu_only:
        name, op, dtype = conversion.gpu_only[0]
        logger.warning(
            "no CPU runs %d converted nodes, such as '%s' (%s of %s): TensorFlow has kernels for "
            "NCHW on a CPU only for float32. Run the graph on a GPU, or convert it with "
            "convert_layout(to=NHWC)",
            len(conversion.gpu_only),
            name,
            op,
            dtype,
        )


class _Conversion:
    """The images available in the new layout, while a graph is converted in execution order."""

    def __init__(self, graph: Graph, to: str) -> None:
        self._graph = graph
        self._constants = Constants(graph)
        self._to, self._from = to, LAYOUTS[1 - LAYOUTS.index(to)]
        self._order = [self._from.index(axis) for axis in to]  # new axis -> old axis
        self.gpu_only: list[tuple[str, str, str]] = []
        """Name, op and type of converted nodes for which TensorFlow has no kernel on a CPU."""
        self._new: dict[str, str] = {}
        """Tensor of the original graph -> the tensor with the same values in the new layout."""
        self._moved: dict[str, str] = {}
        """Tensor of the original graph -> its replacement in the old layout, if there is one."""
        self._orders: dict[tuple[object, ...], str] = {}
        """The constants for Transpose: one for each permutation, device and loop."""

    def visit(self, node: Node) -> None:
        """Convert a node where possible, else connect it to tensors in the old layout."""
        if not self._graph.is_input(node.name) and self._convert(node):
            return
        moved = node.rewired(lambda tensor: [self._as_it_was(tensor)])
        if moved.inputs != node.inputs:
            self._graph.replace(node, moved)

    def _convert(self, node: Node) -> bool:
        """Replace a node by its converted form; return False if it cannot be converted."""
        if node.op in IMAGE_OPS:
            return self._image_op(node)
        inputs = node.data_inputs
        if node.op == "Transpose":
            return self._transpose(node)
        if node.op in ELEMENTWISE_OPS:
            return self._elementwise(node)
        if not inputs or inputs[0] not in self._new:
            return False
        if node.op == "BiasAdd" and node.attr("data_format", "NHWC") == self._from:
            bias = self._as_it_was(inputs[1])
            self._put(node, self._new[inputs[0]], bias, data_format=self._to)
            return True
        if node.op in REDUCTION_OPS:
            return self._reduction(node)
        if node.op == "Squeeze":
            return self._squeeze(node)
        if node.op in PAD_OPS and (paddings := self._constants.value(inputs[1])) is not None:
            rows = self._const(node, "paddings", paddings[self._order])
            others = map(self._as_it_was, inputs[2:])
            self._put(node, self._new[inputs[0]], rows, *others)
            return True
        if node.op == "ConcatV2" and all(tensor in self._new for tensor in inputs[:-1]):
            axis = self._constants.value(inputs[-1])
            if axis is not None:
                images = [self._new[tensor] for tensor in inputs[:-1]]
                moved = np.array(self._order.index(int(axis) % 4), axis.dtype)
                self._put(node, *images, self._const(node, "axis", moved))
                return True
        return False

    def _image_op(self, node: Node) -> bool:
        if node.attr("data_format", "NHWC") != self._from:
            return False
        if node.op in BATCH_NORM_OPS and self._graph.is_output(node.name):
            self._graph.skip(node, "one of its outputs is an output of the graph")
            return False
        attrs: dict[str, Any] = {"data_format": self._to}
        for name in ("strides", "dilations", "ksize"):
            if node.attr(name):
                values = node.attr(name)
                attrs[name] = [values[axis] for axis in self._order]
        if node.attr("explicit_paddings"):
            pairs = np.reshape(node.attr("explicit_paddings"), (4, 2))
            attrs["explicit_paddings"] = pairs[self._order].reshape(-1).tolist()
        dtype = node.attr("T", DType("float32"))
        if self._to == "NCHW" and node.op not in BATCH_NORM_OPS and dtype != "float32":
            self.gpu_only.append((node.name, node.op, str(dtype)))
        image, *others = node.data_inputs
        if image not in self._new:
            name = f"{node.name}/{self._to.lower()}_input"
            turned = self._turned(name, node, self._as_it_was(image), self._order)
            self._new[image] = self._graph.add(turned).name
        self._put(node, self._new[image], *map(self._as_it_was, others), **attrs)
        return True

    def _elementwise(self, node: Node) -> bool:
        """Convert a node whose operands are all images, or constants that can be transposed."""
        if not any(tensor in self._new for tensor in node.data_inputs):
            return False
        values = {t: self._constants.value(t) for t in node.data_inputs if t not in self._new}
        if any(value is None or value.ndim > 4 for value in values.values()):
            return False
        operands = []
        for tensor in node.data_inputs:
            value = values.get(tensor)
            if value is None:
                operands.append(self._new[tensor])
            elif value.ndim == 0:
                operands.append(tensor)
            else:
                image = value.reshape([1] * (4 - value.ndim) + list(value.shape))
                operands.append(self._const(node, "constant", image.transpose(self._order)))
        self._put(node, *operands)
        return True

    def _transpose(self, node: Node) -> bool:
        """Replace a Transpose between the two layouts by the image that is already converted."""
        image, order = node.data_inputs[0], self._constants.value(node.data_inputs[1])
        if order is None or order.shape != (4,):
            return False
        axes = order.tolist()
        if [axes[axis] for axis in self._order] == [0, 1, 2, 3]:
            self._new[node.name] = self._as_it_was(image)
        elif axes == self._order and image in self._new:
            self._moved[node.name] = self._new[image]
            same = Node(node.name, "Identity", (self._new[image],), device=node.device)
            self._graph.absorb([node], into=same.with_attrs(T=node.attrs["T"]))
            return True
        return False

    def _reduction(self, node: Node) -> bool:
        image, axes = node.data_inputs[0], self._constants.value(node.data_inputs[1])
        if axes is None or not (node.attr("keep_dims", False) or self._keeps_order(axes)):
            return False
        turned = [self._order.index(axis % 4) for axis in axes.reshape(-1).tolist()]
        const = self._const(node, "axes", np.array(turned, axes.dtype).reshape(axes.shape))
        if node.attr("keep_dims", False):
            self._put(node, self._new[image], const)
        else:
            self._graph.absorb([node], into=node.with_data_inputs(self._new[image], const))
        return True

    def _squeeze(self, node: Node) -> bool:
        image, axes = node.data_inputs[0], np.array(node.attr("squeeze_dims") or [], np.int64)
        if not self._keeps_order(axes):
            return False
        turned = [self._order.index(axis % 4) for axis in axes.tolist()]
        squeezed = node.with_data_inputs(self._new[image]).with_attrs(squeeze_dims=turned)
        self._graph.replace(node, squeezed)
        return True

    def _keeps_order(self, axes: Array) -> bool:
        """Return whether the axes that remain without these have the same order in both layouts."""
        gone = {axis % 4 for axis in axes.reshape(-1).tolist()}
        left = [self._order.index(axis) for axis in range(4) if axis not in gone]
        return left == sorted(left)

    def _put(self, node: Node, *inputs: str, **attrs: Any) -> None:
        """Replace `node` by a node whose image has the new layout.

        It keeps the name, unless the name is an output: then a Transpose gets it.
        """
        new = node.with_data_inputs(*inputs).with_attrs(**attrs)
        new = self._graph.absorb([node], into=new)
        if self._graph.is_output(node.name):
            name = self._graph.unique_name(f"{node.name}/{self._to.lower()}")
            new = self._graph.add(new.with_name(name))
            self._graph.replace(node, self._turned(node.name, node, name, self._back()))
        self._new[node.name] = new.name

    def _as_it_was(self, tensor: str) -> str:
        """Return the tensor in the old layout, through a Transpose where necessary."""
        if self._new.get(tensor) == tensor and tensor not in self._moved:
            name = f"{tensor}/{self._from.lower()}"
            back = self._turned(name, self._graph[tensor], tensor, self._back())
            self._moved[tensor] = self._graph.add(back).name
        return self._moved.get(tensor, tensor)

    def _back(self) -> list[int]:
        return [self._order.index(axis) for axis in range(4)]

    def _turned(self, name: str, like: Node, image: str, order: list[int]) -> Node:
        """Return a Transpose of an image, with the type and the device of the node `like`."""
        key = (*order, like.device, *self._graph.waits_beside(like))
        if key not in self._orders:
            layout = self._to if order == self._order else self._from
            const_name = f"transpose_to_{layout.lower()}"
            const = self._graph.constant_beside(like, np.array(order, np.int32), const_name)
            self._orders[key] = const.name
        if name != like.name:
            name = self._graph.unique_name(name)
        node = Node(name, "Transpose", (image, self._orders[key]), device=like.device)
        return node.with_attrs(T=like.attrs["T"], Tperm=DType("int32"))

    def _const(self, node: Node, part: str, value: Array) -> str:
        return self._graph.constant_beside(node, value, f"{node.name}/{part}").name
