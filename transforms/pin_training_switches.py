"""A placeholder with a default that only controls dropout or batch norms can be a constant.

Training code feeds such a placeholder: a keep probability, a rate, or a phase. A served model
always uses the default.
"""

import logging
from collections.abc import Collection

from deploykit.transforms.ir.control_flow import CASE_OPS, IF_OPS, conditional_depths
from deploykit.transforms.ir.functions import Library, names_in
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import MERGE_OPS, SWITCH_OPS, Node, producer_name
from deploykit.transforms.layers.affine import FUSED_BATCH_NORM_OPS
from deploykit.transforms.layers.random_ops import RANDOM_OPS
from deploykit.transforms.pin_placeholder import pin_placeholder
from deploykit.transforms.runtime.constants import PURE_OPS, Constants

logger = logging.getLogger("deploykit")

_SCALING_OPS = frozenset({"Div", "Mul", "RealDiv"})
_MASKING_OPS = frozenset({"Floor", "Greater", "GreaterEqual", "Less", "LessEqual"})
_CHOOSING_OPS = frozenset({"Const", "Identity", "NoOp", "Squeeze"})
_PASSING_OPS = SWITCH_OPS | {"Identity", "Squeeze", "Reshape"}


def pin_training_switches(graph: Graph) -> None:
    """Pin placeholders with a default that control dropout or batch norms and nothing else.

    The transform recognizes them by their readers, not by their names: a mask of dropout, or a
    condition with dropout or a batch norm in training mode in a branch. It does not change a
    placeholder that is an input of the graph, or whose default leaves dropout on. The same holds if
    any other node depends on it, such as a temperature or the scale of noise.
    """
    if "PlaceholderWithDefault" not in graph.ops:
        return
    around = _Surroundings(graph)
    for node in [node for node in graph if node.op == "PlaceholderWithDefault"]:
        if node.name not in graph or graph.is_input(node.name) or graph.is_output(node.name):
            continue
        default = graph.constant(node.data_inputs[0])
        if default is None or default.shape != () or default.value.item() not in (0, 1):
            continue
        if node.attr("shape") in (None, ()) and _Switch(around, node).is_of_training():
            value = str(default.value.item()).lower()
            logger.info("placeholder '%s' pinned to its default, %s", node.name, value)
            pin_placeholder(graph, name=node.name, value=value)
            around = _Surroundings(graph)


class _Surroundings:
    """The parts of a graph that all its placeholders share."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.constants = Constants(graph, PURE_OPS)
        self.depths = conditional_depths(graph)
        self.drawn = {node.name for node in graph if node.op in RANDOM_OPS}


class _Switch:
    """A placeholder and the nodes that it controls."""

    def __init__(self, around: _Surroundings, placeholder: Node) -> None:
        self._graph, self._constants, self._depths = around.graph, around.constants, around.depths
        self._training: dict[str, bool] = {}
        """The nodes switched by each condition."""
        self._values = self._closure({placeholder.name})
        """Nodes that depend only on the placeholder and on constants."""
        self._noise = self._closure(around.drawn, self._values) - self._values
        """Nodes that depend only on random numbers, the placeholder and constants."""

    def is_of_training(self) -> bool:
        """Return whether all readers of the placeholder belong to dropout or batch norms."""
        readers = {
            (name, reader.name)
            for name in self._values
            for reader in self._graph.readers(name)
            if reader.name not in self._values
        }
        are_parts = all(self._is_part(self._graph[n], self._graph[r]) for n, r in readers)
        return bool(readers) and are_parts and not any(map(self._graph.is_output, self._values))

    def _is_part(self, value: Node, reader: Node) -> bool:
        if reader.name in self._noise:
            ops = {node.op for node in self._graph.readers(reader.name)}
            return reader.op in _MASKING_OPS or (bool(ops) and ops <= _MASKING_OPS)
        if reader.op in SWITCH_OPS and producer_name(reader.data_inputs[1]) == value.name:
            if value.name not in self._training:
                self._training[value.name] = self._branch_trains(value)
            return self._training[value.name]
        if reader.op in IF_OPS | CASE_OPS and producer_name(reader.data_inputs[0]) == value.name:
            return self._function_trains(reader)
        if reader.op in _SCALING_OPS:  # scales the values that a mask keeps
            after = list(self._graph.readers(reader.name))
            return bool(after) and all(
                any(producer_name(tensor) in self._noise for tensor in node.data_inputs)
                for node in after
            )
        return False

    def _branch_trains(self, condition: Node) -> bool:
        """Return whether a conditional with this condition drops values or updates a batch norm."""
        graph = self._graph
        switches = [n for n in graph.readers(condition.name) if n.op in SWITCH_OPS]
        below = graph.descendants([node.name for node in switches])
        inside = [graph[name] for name in below if self._depths[name]]
        if _drops({node.op for node in inside}) or any(map(_normalises_a_batch, inside)):
            return True
        merges = [graph[name] for name in below if graph[name].op in MERGE_OPS]
        sources = ({self._source(tensor) for tensor in merge.data_inputs} for merge in merges)
        # a Merge that selects a moving average or the moments of the batch
        return any({"Const", "Mean"} <= ops for ops in sources)

    def _source(self, tensor: str) -> str:
        """Return the op that computes a tensor, skipping nodes that only pass it on."""
        node = self._graph.producer(tensor)
        while node.op in _PASSING_OPS:
            node = self._graph.producer(node.data_inputs[0])
        return node.op

    def _function_trains(self, call: Node) -> bool:
        library = Library(self._graph)
        names = library.below(names_in(call.attrs.values()))
        protos = [proto for name in names for proto in library[name].node_def]
        if any(_normalises_a_batch(Node.from_proto(proto)) for proto in protos):
            return True
        ops = {proto.op for proto in protos}
        sources = {self._source(tensor) for tensor in call.data_inputs[1:]}
        if "Mean" in sources and ops <= _CHOOSING_OPS and "Const" in ops | sources:
            return True
        return _drops(ops)

    def _closure(self, names: set[str], known: Collection[str] = ()) -> set[str]:
        """Return the nodes, and those that read only them, other known nodes and constants."""
        graph, result = self._graph, set(names)
        waiting = [*names, *known]
        while waiting:
            for reader in graph.readers(waiting.pop()):
                if reader.name in result or reader.name in known or reader.op in SWITCH_OPS:
                    continue
                if graph.is_input(reader.name):
                    continue
                reads = [producer_name(tensor) for tensor in reader.data_inputs]
                if not result.isdisjoint(reads) and all(
                    name in result or name in known or name in self._constants for name in reads
                ):
                    result.add(reader.name)
                    waiting.append(reader.name)
        return result


def _drops(ops: Collection[str]) -> bool:
    """Return whether ops make a mask of random numbers."""
    return not RANDOM_OPS.isdisjoint(ops) and not _MASKING_OPS.isdisjoint(ops)


def _normalises_a_batch(node: Node) -> bool:
    return node.op in FUSED_BATCH_NORM_OPS and bool(node.attr("is_training", True))
