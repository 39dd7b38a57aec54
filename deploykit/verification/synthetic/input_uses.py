"""The ops that read a graph's input, also through casts, moves and functions."""

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
# Ops that give on the values of some of their inputs: these inputs, and where they come out.
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
# What an op calls the parts of a sparse tensor that it reads.
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
_MOST_BODIES = 100  # functions may call each other without end


@dataclass(frozen=True)
class Inside:
    """A graph, or the body of a function that a node of another one calls."""

    graph: Graph
    caller: "tuple[Inside, Node] | None" = None

    def resolved(self, tensor: str) -> "tuple[Inside, str]":
        """Return a tensor that the caller hands in as the caller knows it."""
        scope = self
        while tensor[:1] == "@" and scope.caller is not None:
            scope, node = scope.caller
            place = int(tensor[1:]) + (node.op in _WITH_A_CONDITION)
            tensor = node.data_inputs[place]
        return scope, tensor

    def constant(self, tensor: str) -> Node | None:
        """Return the Const that a tensor comes from, or None."""
        scope, tensor = self.resolved(tensor)
        return scope.graph.constant(tensor) if producer_name(tensor) in scope.graph else None


@dataclass(frozen=True)
class Change:
    """A node on the way that changes values: it adds a constant, packs bytes or cuts texts."""

    scope: Inside
    node: Node
    before: "Change | None" = None

    def constant(self, port: int) -> Node | None:
        """Return the Const that the node reads in a place, or None."""
        tensors = self.node.data_inputs
        return self.scope.constant(tensors[port]) if port < len(tensors) else None


@dataclass(frozen=True)
class Use:
    """A node that reads the values of an input, at which place, and what changed them before."""

    scope: Inside
    node: Node
    port: int
    step: Change | None = None

    def constant(self, port: int) -> Node | None:
        """Return the Const that the node reads in another place, or None."""
        tensors = self.node.data_inputs
        return self.scope.constant(tensors[port]) if -len(tensors) <= port < len(tensors) else None

    @property
    def is_first_factor(self) -> bool:
        """Whether the node multiplies the values, as a matrix, with another one."""
        return self.port == 0 and self.node.op in PRODUCTS

    @property
    def rows_axis(self) -> int:
        """The axis of the other matrix that is as long as a row of this one."""
        return -1 if self.node.attr("transpose_b", False) or self.node.attr("adj_y", False) else -2

    def changes(self) -> Iterator[Change]:
        """Yield what changes values on the way, the last one first."""
        step = self.step
        while step is not None:
            yield step
            step = step.before

    def steps(self) -> Iterator[Node]:
        """Yield the nodes on the way that change values, the last one first."""
        return (change.node for change in self.changes())


def reads_sparse(node: Node) -> bool:
    """Say whether an op may read sparse tensors in parts."""
    return node.op.startswith("Sparse") and node.op in op_defs()


def sparse_triples(node: Node) -> Iterator[tuple[int, int | None, int]]:
    """Yield at which ports a node reads indices, values and dense shape of the same tensor.

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
    """Yield all that reads the values of a tensor."""
    library = Library(graph)
    bodies: list[Graph] = []  # kept, so that no two have one id
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
                    if place >= 0 and len(bodies) < _MOST_BODIES and name in library.functions:
                        with suppress(GraphError):  # a body that is not well formed
                            bodies.append(Graph(library.body(Callee(name)).nodes))
                            waiting.append((Inside(bodies[-1], (scope, node)), f"@{place}", step))


def _changed(scope: Inside, node: Node, step: Change | None) -> Change | None:
    is_change = node.op in _CHANGING or node.op.startswith(("Decode", "StringSplit"))
    return Change(scope, node, step) if is_change else step


def _results(node: Node, port: int) -> Iterator[str]:
    """Yield the outputs of a node that hold the values which it reads in a place."""
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
