"""Two nodes that compute the same from the same are one node."""

import functools
import hashlib
import re

from transforms.core.graph import Graph
from transforms.core.node import Node, producer_name, split, tensor_name
from transforms.core.ops import op_defs

# The registry calls these stateless, but what they return depends on more than their inputs, or how
# often they run matters, or they steer what runs.
_IMPURE = re.compile(
    r"_|Placeholder|Debug|Copy|DTensor|TPU|Tpu|Xla|Inplace|TensorArray|Fractional|Sdca"
    r"|(Switch|Merge|Enter|Exit|NextIteration|LoopCond|Abort|ReadFile|MatchingFiles|ImmutableConst"
    r"|GenerateVocabRemapping|DecodeProtoV2|EncodeProto|PyFuncStateless|Batch|Unbatch|UnbatchGrad"
    r"|GetDeadline|GetTpuTaskId|CustomAggregator|ParallelConcat)$"
)
_HANDLES = frozenset({20, 21})  # resource and variant: what they refer to may change


def merge_duplicate_nodes(graph: Graph) -> None:
    """Let one node stand for all that have its op, inputs, control inputs, attributes and device.

    Inputs and outputs of the graph keep their names, and the order of the nodes stays. Random and
    other stateful ops, variables, control flow and function calls are never merged.
    """
    first: dict[str, str] = {}  # node -> the first one that is equal to it
    keeper: dict[str, str] = {}  # that first one -> the one that stands for them all
    seen: dict[bytes, list[Node]] = {}
    for name in graph.order():
        node = graph[name]
        if graph.is_input(name) or not _is_pure(node.op):
            continue
        node = node.with_inputs(*_canonical(node, first))
        alike = seen.setdefault(_digest(node), [])
        twin = next((other.name for other in alike if _are_equal(node, other)), None)
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
            for tensor in node.inputs
            if producer_name(tensor) in gone
        }
    )
    for name in gone:
        graph.remove(graph[name])


@functools.cache
def _is_pure(op: str) -> bool:
    """Say whether an op gives the same for the same inputs, and may as well run once as twice."""
    op_def = op_defs().get(op)
    if op_def is None or op_def.is_stateful or not op_def.output_arg or _IMPURE.match(op):
        return False
    args = (*op_def.input_arg, *op_def.output_arg)
    return not any(arg.is_ref or arg.type in _HANDLES for arg in args) and not any(
        "func" in attr.type for attr in op_def.attr
    )


def _canonical(node: Node, first: dict[str, str]) -> list[str]:
    """Return the inputs of a node with the first of equal nodes in each place."""
    inputs = []
    for tensor in node.inputs:
        name, port = split(tensor)
        inputs.append(tensor_name(first.get(name, name), port))
    count = len(node.data_inputs)
    return inputs[:count] + sorted(inputs[count:])


def _digest(node: Node) -> bytes:
    """Return a key under which equal nodes meet, without a second copy of large constants."""
    digest = hashlib.blake2b(repr((node.op, node.inputs, node.device)).encode())
    for name in sorted(node.attrs):
        digest.update(name.encode())
        digest.update(node.attrs[name].SerializeToString(deterministic=True))
    return digest.digest()


def _are_equal(a: Node, b: Node) -> bool:
    """Compare contents; as bytes, since a NaN is not equal to itself as a number."""
    return (
        (a.op, a.inputs, a.device) == (b.op, b.inputs, b.device)
        and a.attrs.keys() == b.attrs.keys()
        and all(
            a.attrs[name].SerializeToString(deterministic=True)
            == b.attrs[name].SerializeToString(deterministic=True)
            for name in a.attrs
        )
    )
