"""Two nodes with the same op and the same inputs are one node."""

import functools
import re
from collections.abc import Hashable

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, producer_name, split, tensor_name
from deploykit.transforms.ir.ops import op_defs

# The registry calls these stateless, but their results depend on more than their inputs, or the
# number of their runs matters, or they control other ops.
_IMPURE = re.compile(
    r"_|Placeholder|Debug|Copy|DTensor|TPU|Tpu|Xla|Inplace|TensorArray|Fractional|Sdca"
    r"|(Switch|Merge|Enter|Exit|NextIteration|LoopCond|Abort|ReadFile|MatchingFiles|ImmutableConst"
    r"|GenerateVocabRemapping|DecodeProtoV2|EncodeProto|PyFuncStateless|Batch|Unbatch|UnbatchGrad"
    r"|GetDeadline|GetTpuTaskId|CustomAggregator|ParallelConcat)$"
)
_HANDLES = frozenset({20, 21})  # resource and variant: the state behind them may change


def merge_duplicate_nodes(graph: Graph) -> None:
    """Merge nodes with the same op, inputs, control inputs, attributes and device.

    Inputs and outputs of the graph keep their names, and the order of the nodes does not change.
    Random and other stateful ops, variables, control flow and function calls are never merged.
    """
    first: dict[str, str] = {}  # node -> the first one that is equal to it
    keeper: dict[str, str] = {}  # that first one -> the node that replaces all of them
    seen: dict[tuple[Hashable, ...], list[Node]] = {}
    hashes: dict[int, int] = {}  # of attributes, which many nodes share
    for name in graph.order():
        node = graph[name]
        if graph.is_input(name) or not _is_pure(node.op):
            continue
        if id(node.attrs) not in hashes:
            hashes[id(node.attrs)] = _attrs_hash(node)
        key = (node.op, _canonical(node, first), node.device, hashes[id(node.attrs)])
        alike = seen.setdefault(key, [])
        twin = next((other.name for other in alike if _have_equal_attrs(node, other)), None)
        if twin is None:
            alike.append(node)
            first[name] = keeper[name] = name
            continue
        first[name] = twin
        if graph.is_output(name):
            if graph.is_output(keeper[twin]):
                graph.skip(node, f"it equals '{keeper[twin]}', but both are outputs")
            else:
                keeper[twin] = name
    gone = {
        name: keeper[twin]
        for name, twin in first.items()
        if name != keeper[twin] and not graph.is_output(name)
    }
    graph.redirect(
        {
            tensor: tensor_name(gone[producer_name(tensor)], split(tensor)[1])
            for node in graph
            if node.name not in gone  # removed nodes need no new inputs
            for tensor in node.inputs
            if producer_name(tensor) in gone
        }
    )
    for name in reversed(gone):  # readers first
        graph.remove(graph[name])


@functools.cache
def _is_pure(op: str) -> bool:
    """Return whether an op is a function of its inputs, and may run once instead of twice."""
    op_def = op_defs().get(op)
    if op_def is None or op_def.is_stateful or not op_def.output_arg or _IMPURE.match(op):
        return False
    args = (*op_def.input_arg, *op_def.output_arg)
    return not any(arg.is_ref or arg.type in _HANDLES for arg in args) and not any(
        "func" in attr.type for attr in op_def.attr
    )


def _canonical(node: Node, first: dict[str, str]) -> tuple[str, ...]:
    """Return a node's inputs with equal nodes replaced by the first; control inputs are sorted."""
    inputs = []
    for tensor in node.inputs:
        name = producer_name(tensor)
        twin = first.get(name, name)
        inputs.append(tensor if twin == name else tensor_name(twin, split(tensor)[1]))
    if not node.control_inputs:
        return tuple(inputs)
    count = len(inputs) - len(node.control_inputs)
    return (*inputs[:count], *sorted(set(inputs[count:])))


def _attrs_hash(node: Node) -> int:
    """Return a hash of the attributes; as a key, it needs less memory than the attributes."""
    return hash(tuple([(name, hash(_content(node, name))) for name in sorted(node.attrs)]))


def _have_equal_attrs(a: Node, b: Node) -> bool:
    if a.attrs is b.attrs:
        return True
    return a.attrs.keys() == b.attrs.keys() and all(
        _content(a, name) == _content(b, name) for name in a.attrs
    )


def _content(node: Node, attr: str) -> bytes:
    """Return an attribute as bytes, as a NaN does not equal itself as a number."""
    content: bytes = node.attrs[attr].SerializeToString(deterministic=True)
    return content
