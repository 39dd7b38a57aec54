"""A placeholder with a default that only switches dropout or batch norms is a constant.

Training code feeds such a placeholder: a keep probability, a rate, or a phase. A model that is
served gets the default in every call.
"""

import logging
from collections.abc import Collection

from deploykit.transforms.core.control_flow import CASE_OPS, IF_OPS, conditional_depths
from deploykit.transforms.core.functions import Library, names_in
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.layers.affine import BATCH_NORM_OPS
from deploykit.transforms.core.layers.random_ops import RANDOM_OPS
from deploykit.transforms.core.node import SWITCH_OPS, Node, producer_name
from deploykit.transforms.core.running.constants import PURE_OPS, Constants
from deploykit.transforms.pin_placeholder import pin_placeholder

logger = logging.getLogger("deploykit")

_SCALING_OPS = frozenset({"Div", "Mul", "RealDiv"})
_TRAINING_OPS = RANDOM_OPS | BATCH_NORM_OPS | {"Rsqrt"}


def pin_training_switches(graph: Graph) -> None:
    """Pin placeholders with a default that switch dropout or batch norms and nothing else.

    They are known by what reads them, not by their names. A placeholder that is an input of the
    graph stays, as does one that anything else depends on, such as a temperature.
    """
    around = _Surroundings(graph)
    for node in [node for node in graph if node.op == "PlaceholderWithDefault"]:
        if node.name not in graph or graph.is_input(node.name) or graph.is_output(node.name):
            continue
        default = graph.constant(node.data_inputs[0])
        if default is None or default.shape != () or default.value.dtype.kind not in "bfiuV":
            continue
        if node.attr("shape") in (None, ()) and _Switch(around, node).is_of_training():
            value = str(default.value.item()).lower()
            logger.info("placeholder '%s' pinned to its default, %s", node.name, value)
            pin_placeholder(graph, name=node.name, value=value)
            around = _Surroundings(graph)


class _Surroundings:
    """What a graph holds besides its placeholders."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.constants = Constants(graph, PURE_OPS)
        self.drawn = {node.name for node in graph if node.op in RANDOM_OPS}


class _Switch:
    """What a placeholder decides."""

    def __init__(self, around: _Surroundings, placeholder: Node) -> None:
        self._graph, self._constants = around.graph, around.constants
        self._values = self._closure({placeholder.name})
        """Nodes that depend on the placeholder and on constants alone."""
        self._noise = self._closure(around.drawn, self._values) - self._values
        """Nodes that depend on random numbers, the placeholder and constants alone."""

    def is_of_training(self) -> bool:
        """Return whether all that reads the placeholder is a part of dropout or batch norms."""
        readers = {
            (name, reader.name)
            for name in self._values
            for reader in self._graph.readers(name)
            if reader.name not in self._values
        }
        found = [self._is_part(self._graph[name], self._graph[reader]) for name, reader in readers]
        outputs = any(map(self._graph.is_output, self._values))
        return bool(found) and all(found) and not outputs

    def _is_part(self, value: Node, reader: Node) -> bool:
        if reader.name in self._noise:
            return True
        if reader.op in SWITCH_OPS and producer_name(reader.data_inputs[1]) == value.name:
            return self._branch_trains(value)
        if reader.op in IF_OPS | CASE_OPS and producer_name(reader.data_inputs[0]) == value.name:
            training = Library(self._graph).reaching(lambda node: node.op in _TRAINING_OPS)
            return not training.isdisjoint(names_in(reader.attrs.values()))
        if reader.op in _SCALING_OPS:  # of what a mask keeps
            after = list(self._graph.readers(reader.name))
            return bool(after) and all(
                any(producer_name(tensor) in self._noise for tensor in node.data_inputs)
                for node in after
            )
        return False

    def _branch_trains(self, condition: Node) -> bool:
        """Return whether a conditional with this condition runs dropout or a batch norm."""
        switches = [n.name for n in self._graph.readers(condition.name) if n.op in SWITCH_OPS]
        depths = conditional_depths(self._graph)
        below = self._graph.descendants(switches)
        return any(depths[name] and self._graph[name].op in _TRAINING_OPS for name in below)

    def _closure(self, names: set[str], known: Collection[str] = ()) -> set[str]:
        """Return the nodes, and those that read only them, other known nodes and constants."""
        graph, found = self._graph, set(names)
        waiting = [*names, *known]
        while waiting:
            for reader in graph.readers(waiting.pop()):
                if reader.name in found or reader.name in known or reader.op in SWITCH_OPS:
                    continue
                if graph.is_input(reader.name):
                    continue
                reads = [producer_name(tensor) for tensor in reader.data_inputs]
                if not found.isdisjoint(reads) and all(
                    name in found or name in known or name in self._constants for name in reads
                ):
                    found.add(reader.name)
                    waiting.append(reader.name)
        return found
