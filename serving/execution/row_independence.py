"""Finds batch-independent signatures: the examples in a batch do not interact.

The proof is one pass over the graph. It derives how each tensor depends on the batch when that is
cut into chunks. An op without a rule, or with variable axes, proves nothing.
"""

from collections.abc import Mapping

from deploykit.serving.execution.request_inputs import may_share
from deploykit.serving.execution.row_rules import (
    RULES,
    WITH_RANGES,
    Facts,
    Kind,
    Rows,
    What,
    must,
    same,
)
from deploykit.serving.protocol.signatures import Signature
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.inline_functions import inline_functions
from deploykit.transforms.ir.control_flow import CASE_OPS, CONTROL_FLOW_OPS, IF_OPS
from deploykit.transforms.ir.functions import names_in
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, split, tensor_name
from deploykit.transforms.ir.ops import FEEDABLE_OPS, VARIABLE_OPS, acts, op_defs, output_types
from deploykit.transforms.ir.protos import MetaGraphDef
from deploykit.transforms.shapes.sizes import require

MAX_SIGNATURES = 16

_EVERY_PORT = frozenset({"Split", "SplitV", "TopKV2", "Unpack"})  # all outputs have rows
_READING = VARIABLE_OPS | {"ReadVariableOp", "HashTableV2", "NoOp"}
_BRANCHING = CONTROL_FLOW_OPS | IF_OPS | CASE_OPS | FEEDABLE_OPS
_UNCLEAR = (ArithmeticError, AttributeError, GraphError, LookupError, TypeError, ValueError)


def unmixed(meta: MetaGraphDef, signatures: Mapping[str, Signature]) -> frozenset[str]:
    """Return the signatures whose outputs for a batch are proved to be those of its chunks.

    Each signature takes a pass over the graph, so only the first `MAX_SIGNATURES` are checked.
    """
    graph = Graph.from_graph_def(meta.graph_def)
    chosen = [(name, item) for name, item in signatures.items() if may_share(item)]
    return frozenset(name for name, item in chosen[:MAX_SIGNATURES] if _is_unmixed(graph, item))


def _is_unmixed(graph: Graph, signature: Signature) -> bool:
    if not _comes_as_declared(graph, signature):
        return False
    run = graph.copy()
    run.inputs = tuple(tensor.name for tensor in signature.inputs.values())
    run.outputs = tuple(tensor.name for tensor in signature.outputs.values())
    try:
        run.prune()
        inline_functions(run)
        return _Proof(run).covers(signature)
    except GraphError:
        return False


def _comes_as_declared(graph: Graph, signature: Signature) -> bool:
    """Return whether the graph declares the input shapes that are checked for each request."""
    for tensor in signature.inputs.values():
        name, port = split(tensor.name)
        if port or name not in graph or graph[name].op not in FEEDABLE_OPS:
            return False
        if tensor.shape is None or graph[name].attr("shape") != tensor.shape:
            return False
    return bool(signature.inputs and signature.outputs)


class _Proof(Facts):
    """What is proved of each tensor for a chunk of the batch."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self._kinds: dict[str, What] = {}
        self._proved: set[str] = set()
        for name in graph.order():
            node = graph[name]
            try:
                result = self._find(node)
                ports = 1 if graph.is_input(name) else len(require(output_types(node)))
            except _UNCLEAR:
                continue
            self._proved.add(name)
            for port in range(ports):
                is_further = port and isinstance(result, Rows) and node.op not in _EVERY_PORT
                if not is_further or node.op in WITH_RANGES:
                    what = Kind.SAME if is_further else result
                    self._kinds[tensor_name(name, port)] = what

    def covers(self, signature: Signature) -> bool:
        """Return whether each output has exactly one row per example."""
        names = [tensor_name(*split(tensor.name)) for tensor in signature.outputs.values()]
        return all(self._kinds.get(name) == Rows() for name in names)

    def _find(self, node: Node) -> What:
        if self.graph.is_input(node.name):
            return Rows()
        must(all(waited[1:] in self._proved for waited in node.control_inputs))
        kinds = [self._kinds[tensor] for tensor in node.data_inputs]
        if node.op in _READING:
            return same(kinds)
        if node.op == "PlaceholderWithDefault":  # not fed
            return kinds[0]
        if node.op == "Assert":
            must(Kind.SIZES not in kinds)
            return Kind.SAME  # an Assert has no outputs
        op_def = op_defs()[node.op]
        must(not op_def.is_stateful or node.op in RULES)
        must(not acts(node.op) and node.op not in _BRANCHING)
        must(next(names_in(node.attrs.values()), None) is None)
        if all(kind == Kind.SAME for kind in kinds):
            return Kind.SAME
        if any(isinstance(kind, Rows) for kind in kinds):
            return RULES[node.op](self, node, kinds)
        try:
            return RULES[node.op](self, node, kinds)
        except _UNCLEAR:
            return Kind.SIZES
