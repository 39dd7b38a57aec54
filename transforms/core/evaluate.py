"""What is constant in a graph, and its value: NumPy for the ops in `kernels`, else TensorFlow.

Only ops on the allow-list are ever computed. The registry's `is_stateful` is no safety flag:
ReadFile and Abort are marked stateless.
"""

import re
from collections.abc import Collection, Iterable

import numpy as np

from transforms.core.child import call
from transforms.core.errors import Error
from transforms.core.graph import Graph
from transforms.core.kernels import INTEGERS_ONLY, KERNELS
from transforms.core.node import Node, producer_name, split
from transforms.core.protos import GraphDef
from transforms.core.tensors import Array

# Pure ops that NumPy does not compute here; where one is constant, TensorFlow computes it.
TENSORFLOW_OPS = frozenset(
    re.findall(
        r"\w+",
        """
    Acos Acosh AddN ArgMax ArgMin Asin Asinh Atan Atan2 Atanh AvgPool BatchMatMul BatchMatMulV2
    BatchToSpaceND BiasAdd Bitcast BitwiseAnd BitwiseOr BitwiseXor Ceil ClipByValue Complex
    ConcatOffset Conj Conv2D Conv2DBackpropInput Conv3D Cos Cosh Cumprod Cumsum DepthToSpace
    DepthwiseConv2dNative Diag DiagPart Digamma Div DivNoNan DynamicStitch Einsum Elu Erf Erfc
    Erfinv Exp Expm1 Gather GatherNd IdentityN Imag InvertPermutation IsFinite IsInf IsNan L2Loss
    LeakyRelu LinSpace Lgamma Log Log1p LogSoftmax LRN MatMul MatrixBandPart MatrixDiag
    MatrixDiagPart MaxPool Mean MirrorPad Mod MulNoNan OneHot Pad PadV2 Pow Real Relu Relu6 Reverse
    ReverseV2 Rint Roll Round ScatterNd Selu Sigmoid Sign Sin Sinh Softmax Softplus Softsign
    SpaceToBatchND SpaceToDepth Split SplitV Tan Tanh TopKV2 TruncateMod Unpack Where Xdivy Xlogy
    """,
    )
)
PURE_OPS = TENSORFLOW_OPS | frozenset(KERNELS)


class Constants:
    """The constant tensors of a graph as it is now, and their values, computed once each.

    A node is constant when its op is pure and all that it reads and waits for is constant. What is
    fed is not constant.
    """

    def __init__(
        self, graph: Graph, ops: Iterable[str] = KERNELS, but: Collection[str] = ()
    ) -> None:
        """Find the constant nodes whose ops are in `ops` and that are not in `but`, in one pass."""
        self._graph = graph
        self._values: dict[str, Array] = {}
        self._names: set[str] = set()
        allowed = frozenset(ops)
        for name in graph.order():
            node = graph[name]
            if not graph.is_input(name) and (
                (node.op == "Const" and not node.inputs)
                or (
                    node.op in allowed
                    and name not in but
                    and node.inputs
                    and self._all_constant(node)
                )
            ):
                self._names.add(name)

    def _all_constant(self, node: Node) -> bool:
        return all(producer_name(tensor) in self._names for tensor in node.inputs)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def value(self, tensor: str) -> Array | None:
        """Return a tensor's value, or None where it is not constant or NumPy cannot compute it."""
        name, port = split(tensor)
        if port > 0 or name not in self._names:
            return None
        waiting = [name]
        while waiting:
            node = self._graph[waiting[-1]]
            missing = [
                producer_name(tensor)
                for tensor in node.data_inputs
                if producer_name(tensor) not in self._values
            ]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            value = self._compute(node)
            if value is None:
                return None
            self._values[node.name] = value
        return self._values[name]

    def _compute(self, node: Node) -> Array | None:
        if node.op == "Const":
            return node.value
        if any(split(tensor)[1] > 0 for tensor in node.data_inputs):
            return None
        return compute(node, [self._values[producer_name(t)] for t in node.data_inputs])

    def values(self, tensors: Iterable[str]) -> dict[str, Array]:
        """Return the values of constant tensors, with one start of TensorFlow for what needs it.

        Tensors whose values cannot be computed (a kernel refuses its inputs) are left out.
        """
        found: dict[str, Array] = {}
        rest = []
        for tensor in tensors:
            value = self.value(tensor)
            if value is None:
                rest.append(tensor)
            else:
                found[tensor] = value
        if rest:
            needed = self._graph.ancestors(producer_name(tensor) for tensor in rest)
            nodes = [self._graph[name].to_proto() for name in self._graph.order() if name in needed]
            graph_def = GraphDef(node=nodes, versions=self._graph.versions)
            found |= call("transforms.core.session:run_each", graph_def.SerializeToString(), rest)
        return found


def compute(node: Node, arrays: list[Array]) -> Array | None:
    """Return the value of a node with these inputs, or None where NumPy does not compute it."""
    kernel = KERNELS.get(node.op)
    floats = bool(arrays) and arrays[0].dtype.kind not in "iub"
    if kernel is None or (node.op in INTEGERS_ONLY and floats):
        return None
    try:
        with np.errstate(all="ignore"):
            value = np.asarray(kernel(node, *arrays))
    except (
        ValueError,
        IndexError,
        TypeError,
        NotImplementedError,
        ArithmeticError,
        MemoryError,
        Error,
    ):
        return None
    return value
