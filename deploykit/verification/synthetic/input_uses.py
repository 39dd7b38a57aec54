"""The ops that read a graph's input, directly or through casts, reshapes and functions."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.functions import Callee, Library, names_in
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, normal, producer_name, tensor_name
from deploykit.transforms.ir.ops import input_ports, op_defs

_ONE = """
    BatchToSpaceND BroadcastTo Cast CheckNumerics Copy DebugIdentity DecodeBase64
    DecodeCompressed EnsureShape Enter Exit ExpandDims Gather GatherNd GatherV2 GuaranteeConst
    Identity MirrorPad NextIteration Pad PadV2 PlaceholderWithDefault PreventGradient RefEnter
    RefExit RefIdentity RefNextIteration RegexReplace Reshape Reverse ReverseSequence
    ReverseV2 Roll Slice Snapshot SpaceToBatchND Squeeze StaticRegexReplace StopGradient
    StridedSlice StringLower StringStrip StringUpper Substr TensorListFromTensor TensorListGather
    TensorListGetItem TensorListStack Tile Transpose Unique
"""
_ALL = "Add AddV2 ClipByValue Maximum Merge Minimum Pack RefMerge StringJoin Sub"
# Ops that pass on the values of some inputs: the indices of these inputs and of the outputs.
_EVERY = range(1 << 16)
_PASSING = {
    **dict.fromkeys(_ONE.split(), (range(1), range(1))),
    **dict.fromkeys(_ALL.split(), (_EVERY, range(1))),
    "Concat": (_EVERY, range(1)),
    "ConcatV2": (_EVERY, range(1)),
    "IdentityN": (_EVERY, _EVERY),
    "RaggedTensorToTensor": (range(1, 2), range(1)),
    "RefSwitch": (range(1), range(2)),
    "Select": (range(1, 3), range(1)),
    "SelectV2": (range(1, 3), range(1)),
    "SparseFillEmptyRows": (range(1, 2), range(1, 2)),
    "SparseReorder": (range(1, 2), range(1, 2)),
    "SparseToDense": (range(2, 3), range(1)),
    "Split": (range(1, 2), _EVERY),
    "SplitV": (range(1), _EVERY),
    "StringSplit": (range(1), range(1, 2)),
    "StringSplitV2": (range(1), range(1, 2)),
    "Switch": (range(1), range(2)),
    "TensorArrayGatherV3": (range(2, 3), range(1)),
    "TensorArrayReadV3": (range(2, 3), range(1)),
    "TensorArrayScatterV3": (range(2, 4), range(1)),
    "TensorArrayUnpackV3": (range(2, 4), range(1)),
    "TensorArrayWriteV3": (range(2, 4), range(1)),
    "TensorListSetItem": (range(0, 3, 2), range(1)),
    "Unpack": (range(1), _EVERY),
}
PRODUCTS = frozenset({"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "MatMul"})
_CHANGING = frozenset({"Add", "AddV2", "ConcatV2", "Pack", "StringJoin", "Sub", "Substr"})
_WITH_A_CONDITION = frozenset({"Case", "If", "StatelessCase", "StatelessIf"})
# Names of op arguments that are components of sparse tensors.
_INDICES = frozenset(
    {"a_indices", "b_indices", "indices", "input_indices", "sp_indices", "sparse_indices"}
)
_VALUES = frozenset(
    {"a_values", "b_values", "input_values", "sp_values", "sparse_values", "values"}
)
_SHAPES = frozenset(
    {"a_shape", "b_shape", "dense_shape", "input_shape", "output_shape", "shape", "shapes",
     "sp_shape", "sparse_shape"}
)  # fmt: skip
_MAX_BODIES = 100  # recursive functions would never end


@dataclass(frozen=True)
class Inside:
    """A graph, or the body of a function that a node of another graph calls."""

    graph: Graph
    caller: "tuple[Inside, Node] | None" = None

    def resolved(self, tensor: str) -> "tuple[Inside, str]":
        """Return a tensor with its scope; an argument is resolved to the caller's tensor."""
        scope = self
        while tensor[:1] == "@" and scope.caller is not None:
            scope, node = scope.caller
            place = int(tensor[1:]) + (node.op in _WITH_A_CONDITION)
            tensor = node.data_inputs[place]
        return scope, tensor

    def constant(self, tensor: str) -> Node | None:
        """Return the Const that a tensor originates from, or None."""
        scope, tensor = self.resolved(tensor)
        return scope.graph.constant(tensor) if producer_name(tensor) in scope.graph else None


@dataclass(frozen=True)
class Change:
    """A node on the path that changes values: it adds constants, decodes or splits strings."""

    scope: Inside
    node: Node
    before: "Change | None" = None

    def constant(self, port: int) -> Node | None:
        """Return the Const that the node reads at an input index, or None."""
        tensors = self.node.data_inputs
        return self.scope.constant(tensors[port]) if port < len(tensors) else None


@dataclass(frozen=True)
class Use:
    """A node that reads an input's values, the input index, and the last change before it."""

    scope: Inside
    node: Node
    port: int
    step: Change | None = None

    def constant(self, port: int) -> Node | None:
        """Return the Const that the node reads at another input index, or None."""
        tensors = self.node.data_inputs
        return self.scope.constant(tensors[port]) if -len(tensors) <= port < len(tensors) else None

    @property
    def is_first_factor(self) -> bool:
        """Whether the values are the first factor of a matrix product."""
        return self.port == 0 and self.node.op in PRODUCTS

    @property
    def rows_axis(self) -> int:
        """The axis of the second factor that has the length of a row of the first."""
        return -1 if self.node.attr("transpose_b", False) or self.node.attr("adj_y", False) else -2

    def changes(self) -> Iterator[Change]:
        """Yield the changes on the path, the last one first."""
        step = self.step
        while step is not None:
            yield step
            step = step.before

    def steps(self) -> Iterator[Node]:
        """Yield the nodes on the path that change values, the last one first."""
        return (change.node for change in self.changes())


def reads_sparse(node: Node) -> bool:
    """Return whether an op may read the components of sparse tensors."""
    return node.op.startswith("Sparse") and node.op in op_defs()


def sparse_triples(node: Node) -> Iterator[tuple[int, int | None, int]]:
    """Yield the input indices of indices, values and dense shape of each sparse tensor of a node.

    Some ops do not read the values.
    """
    ports = input_ports(node, op_defs()[node.op])
    indices, values, shapes = (
        [port for name, result in ports.items() if name in names for port in result]
        for names in (_INDICES, _VALUES, _SHAPES)
    )
    if len(indices) == len(shapes):
        has_values = len(values) == len(indices)
        yield from zip(
            indices, values if has_values else [None] * len(indices), shapes, strict=True
        )


def uses(graph: Graph, tensor: str) -> Iterator[Use]:
    """Yield all uses of the values of a tensor."""
    library = Library(graph)
    bodies: list[Graph] = []  # retained, so that ids stay unique
    waiting: list[tuple[Inside, str, Change | None]] = [(Inside(graph), normal(tensor), None)]
    seen = {(id(graph), normal(tensor))}
    while waiting:
        scope, tensor, step = waiting.pop()
        for node in scope.graph.readers(producer_name(tensor)):
            for port in [p for p, read in enumerate(node.data_inputs) if read == tensor]:
                yield Use(scope, node, port, step)
                for result in _results(node, port):
                    if (id(scope.graph), result) not in seen:
                        seen.add((id(scope.graph), result))
                        waiting.append((scope, result, _changed(scope, node, step)))
                for name in names_in(node.attrs.values()):
                    place = port - (node.op in _WITH_A_CONDITION)
                    if place >= 0 and len(bodies) < _MAX_BODIES and name in library.functions:
                        with suppress(GraphError):  # the body is malformed
                            bodies.append(Graph(library.body(Callee(name)).nodes))
                            waiting.append((Inside(bodies[-1], (scope, node)), f"@{place}", step))


def _changed(scope: Inside, node: Node, step: Change | None) -> Change | None:
    is_change = node.op in _CHANGING or node.op.startswith(("Decode", "StringSplit"))
    return Change(scope, node, step) if is_change else step


def _results(node: Node, port: int) -> Iterator[str]:
    """Yield the outputs of a node that contain the values read at an input index."""
    if node.op not in _PASSING:
        return
    used, given = _PASSING[node.op]
    last = len(node.data_inputs) - 1
    if port not in used or (node.op == "ConcatV2" and port == last):
        return
    if node.op == "IdentityN":
        yield tensor_name(node.name, port)
    elif given is _EVERY:
        for place in range(node.attr("num_split") or node.attr("num") or 0):
            yield tensor_name(node.name, place)
    else:
        for place in given:
            yield tensor_name(node.name, place)
