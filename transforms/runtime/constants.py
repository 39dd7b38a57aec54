"""The constants of a graph and their values: NumPy for the ops in `kernels`, else TensorFlow.

Only ops on the allow-list are evaluated. The registry's `is_stateful` is not a safety flag:
ReadFile and Abort are marked stateless.
"""

from collections.abc import Collection, Iterable

import numpy as np

from deploykit.transforms.common.errors import Error, LimitError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, producer_name, split
from deploykit.transforms.ir.ops import output_types
from deploykit.transforms.ir.protos import GraphDef
from deploykit.transforms.ir.tensors import Array, held_bytes, numpy_type
from deploykit.transforms.runtime.child_process import call
from deploykit.transforms.runtime.numpy_kernels import (
    KERNELS,
    MAX_BYTES,
    MOVING_OPS,
    UNCLEAR,
    check_bytes,
    refuse_subnormals,
)

# Pure ops without a NumPy kernel here; TensorFlow evaluates constant ones.
_TENSORFLOW_OPS = """
    Acos Acosh AddN ArgMax ArgMin AsString Asin Asinh Atan Atan2 Atanh AvgPool BatchMatMul
    BatchMatMulV2 BatchMatMulV3 BatchToSpaceND BiasAdd Bitcast BitwiseAnd BitwiseOr BitwiseXor
    BroadcastArgs BroadcastGradientArgs Ceil ClipByValue Complex ConcatOffset Conj Conv2D
    Conv2DBackpropInput Conv3D Cos Cosh Cumprod Cumsum DepthToSpace DepthwiseConv2dNative Diag
    DiagPart Digamma Div DivNoNan DynamicStitch Einsum Elu Erf Erfc Erfinv Exp Expm1 Gather
    GatherNd IdentityN Imag Inv InvertPermutation IsFinite IsInf IsNan L2Loss LRN LeakyRelu
    Lgamma LinSpace Log Log1p LogSoftmax MatMul MatrixBandPart MatrixDiag MatrixDiagPart
    MatrixSetDiag MaxPool Mean MirrorPad Mod MulNoNan OneHot Pad PadV2 Pow Real Relu Relu6
    ResizeBilinear ResizeNearestNeighbor Reverse ReverseSequence ReverseV2 Rint Roll Round
    ScatterNd Selu ShapeN Sigmoid Sign Sin Sinh Softmax Softplus Softsign SpaceToBatchND
    SpaceToDepth Split SplitV StringJoin Tan Tanh TensorScatterUpdate TopKV2 TruncateMod Unique
    Unpack UnravelIndex Where Xdivy Xlogy
"""
TENSORFLOW_OPS = frozenset(_TENSORFLOW_OPS.split())
PURE_OPS = TENSORFLOW_OPS | frozenset(KERNELS)

MAX_TOTAL_BYTES = 2 << 30  # of all values from NumPy: a graph file cannot be larger

_MEASURING_OPS = frozenset({"Identity", "Rank", "Shape", "Size"})  # cheap for any size


class Constants:
    """The constant tensors of the current graph, and their values, computed once each.

    A node is constant if its op is pure and all its inputs and control inputs are constant. Graph
    inputs are not constant.
    """

    def __init__(
        self, graph: Graph, ops: Iterable[str] = KERNELS, but: Collection[str] = ()
    ) -> None:
        """Find the constant nodes whose ops are in `ops` and that are not in `but`, in one pass."""
        self._graph = graph
        self._values: dict[str, Array | None] = {}
        self._computed: dict[tuple[str, tuple[str, ...]], Node] = {}  # by op and inputs
        self._too_large: set[str] = set()
        self._held = 0  # bytes
        self._names: set[str] = set()
        allowed = frozenset(ops)
        for name in graph.order():
            node = graph[name]
            computed = node.op in allowed and node.inputs and name not in but
            if (
                (node.op == "Const" or computed)
                and not graph.is_input(name)
                and self._names.issuperset(map(producer_name, node.inputs))
            ):
                self._names.add(name)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def value(self, tensor: str) -> Array | None:
        """Return a tensor's value; None: it is not constant, or NumPy cannot compute it."""
        name, port = split(tensor)
        if port != 0 or name not in self._names:
            return None
        waiting = [name]
        while waiting:
            node = self._graph[waiting[-1]]
            needed = map(producer_name, node.data_inputs)
            missing = [name for name in needed if name not in self._values]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            if node.name not in self._values:
                self._values[node.name] = self._compute_once(node)
        return self._values[name]

    def _compute_once(self, node: Node) -> Array | None:
        """Return a node's value, or that of an equal node that is computed already."""
        key = node.op, node.data_inputs
        equal = self._computed.get(key)
        if equal is not None and equal.attrs == node.attrs and equal.name not in self._too_large:
            return self._values[equal.name]
        self._computed[key] = node
        return self._compute(node)

    def _compute(self, node: Node) -> Array | None:
        if node.op == "Const":
            return node.value
        producers = [split(tensor) for tensor in node.data_inputs]
        operands = [self._values[name] for name, _ in producers]
        known = [operand for operand in operands if operand is not None]
        try:
            if any(name in self._too_large for name, _ in producers):
                raise LimitError("constant-input-too-large")
            if len(known) < len(operands) or any(port > 0 for _, port in producers):
                return None
            value = _computed(node, known)
            if value is not None and not any(np.may_share_memory(value, item) for item in known):
                self._held += value.nbytes
                if self._held > MAX_TOTAL_BYTES:
                    raise LimitError("constants-memory")
            return value
        except LimitError:
            self._too_large.add(node.name)
            return None

    def values(self, tensors: Iterable[str]) -> dict[str, Array]:
        """Return the values of constant tensors, and start TensorFlow at most once for them.

        Tensors whose values cannot be computed are omitted: a kernel refuses its inputs, or a value
        takes more than MAX_BYTES.
        """
        arrays: dict[str, Array] = {}
        rest = []
        for tensor in tensors:
            name, port = split(tensor)
            value = self.value(name)
            if value is not None and port == 0:
                arrays[tensor] = value
            elif name in self._names and name not in self._too_large:
                rest.append(tensor)
        if rest:
            needed = self._graph.ancestors(producer_name(tensor) for tensor in rest)
            nodes = [self._graph[name].to_proto() for name in self._graph.order() if name in needed]
            graph_def = GraphDef(node=nodes, versions=self._graph.versions)
            arrays |= call(
                "deploykit.transforms.runtime.session:run_constants",
                graph_def.SerializeToString(),
                rest,
                MAX_BYTES,
            )
        return arrays


def compute(node: Node, arrays: list[Array]) -> Array | None:
    """Return the value of a node with these inputs; None: NumPy does not compute it."""
    try:
        return _computed(node, arrays)
    except LimitError:
        return None


def _computed(node: Node, arrays: list[Array]) -> Array | None:
    """Return the value of a node, or None. LimitError: it is too large to be computed."""
    if node.op not in _MEASURING_OPS:
        for array in arrays:
            check_bytes(array.shape, array.dtype)
    kernel = KERNELS.get(node.op)
    if kernel is None:
        return None
    try:
        computes = node.op not in MOVING_OPS
        if computes:
            refuse_subnormals(*arrays)
        with np.errstate(all="ignore"):
            value = np.asarray(kernel(node, *arrays))
        if computes:
            refuse_subnormals(value)
        if value.dtype.kind == "O" and held_bytes(value) > MAX_BYTES:
            raise LimitError("constant-strings-too-large")
    except LimitError:
        raise
    except (*UNCLEAR, MemoryError, Error):
        return None
    types = output_types(node)
    return None if types and value.dtype != numpy_type(types[0]) else value
