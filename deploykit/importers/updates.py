"""Variable updates in frozen graphs, which keep no state between runs.

An update that no output needs is dropped. A read after an update gets the new value. An output that
depends on state of an earlier run is refused, with two exceptions: the state converges, like the
power iteration of a spectral norm, or it is multiplied by 0 and stays finite.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from deploykit.importers.variable_updates.function_updates import FunctionUses, ZeroProducts
from deploykit.importers.variable_updates.lifting import Lifting, Needs
from deploykit.importers.variable_updates.updated_variables import (
    Carried,
    StatefulResource,
    changes_answers,
    repeat_calls,
    settles,
    stays_finite,
)
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, split
from deploykit.transforms.ir.stateful_ops import FILLED_OPS
from deploykit.transforms.ir.tensors import DType
from deploykit.transforms.layers.affine import FUSED_BATCH_NORM_OPS
from deploykit.transforms.layers.random_ops import draw_without_seeds

logger = logging.getLogger("deploykit")


@dataclass
class Updates:
    """The result of removing updates of variables and tables from a graph."""

    states: dict[str, DType] = field(default_factory=dict)
    """Nodes that replace a variable after an update, with its dtype."""
    idle: set[tuple[str, str]] = field(default_factory=set)
    """Updates inside functions that no output needs, as (function, node)."""
    carried: list[Carried] = field(default_factory=list)

    times_zero: list[Carried] = field(default_factory=list)
    """State that outputs only read as a factor of products with 0."""
    factors: list[str] = field(default_factory=list)
    """These factors; a product with 0 is NaN if they are not finite."""

    @property
    def kept(self) -> tuple[str, ...]:
        """The tensors that `check_settled` compares between runs."""
        return (*(item.left for item in (*self.carried, *self.times_zero)), *self.factors)

    def check_settled(self, graph: Graph) -> None:
        """Raise GraphError if outputs of a filled graph never converge over repeated runs."""
        if not self.kept:
            return
        graph.outputs = tuple(tensor for tensor in graph.outputs if tensor not in self.kept)
        left = {item.variable: item.left for item in (*self.carried, *self.times_zero)}
        try:
            variables, factors = repeat_calls(graph, left, self.factors)
        except GraphError:
            if not self.times_zero:
                raise
            raise _changes(self.times_zero[0], graph) from None
        for item, history in zip(self.carried, variables, strict=False):
            if not settles(history):
                raise _changes(item, graph)
            logger.warning(
                "variable '%s' changes in each run until it converges; the frozen graph has the "
                "outputs of the first run",
                item.variable,
            )
        if not all(map(stays_finite, factors)):
            raise _changes(self.times_zero[0], graph)


def _changes(carried: Carried, graph: Graph) -> GraphError:
    return changes_answers(carried.update, carried.variable, graph)


def settle_updates(graph: Graph) -> Updates:
    """Remove the updates of variables and tables from a graph with inlined functions.

    GraphError: an output depends on state of an earlier run.
    """
    held = _updated(graph)
    if draw_without_seeds(graph, [item.node.name for item in held if item.updates]):
        held = _updated(graph)
    lifting = Lifting(graph)
    if any(item.updates_inside for item in held):
        held = _lifted(graph, held, lifting)
    result = Updates()
    waiting, reached = held, _reached(graph, lifting) if held else set()
    while now := [item for item in waiting if item.is_needed(reached)]:
        waiting = [item for item in waiting if item not in now]
        for entry in now:
            result.states |= entry.let_read_updates()
        reached = _reached(graph, lifting)  # new reads may depend on other updated variables
    if held:
        _note_carried(graph, held, lifting, result)
    for entry in held:
        entry.drop_updates()
        result.idle |= {(function, node.name) for function, node in entry.updates_inside}
    graph.outputs = (*graph.outputs, *result.kept)
    return result


def _note_carried(
    graph: Graph, held: Sequence[StatefulResource], lifting: Lifting, updates: Updates
) -> None:
    """Record the state that outputs of the next run depend on, also as factors of a 0."""
    zeros = ZeroProducts(graph)
    needed = _reached(graph, lifting, ends=zeros.names)
    multiplied = _reached(graph, lifting, ends=zeros.certain)
    factors_of: set[str] = set()
    for item in held:
        if item.is_needed(needed):
            item.check_may_settle()
            updates.carried.append(item.carried())
        elif item.is_needed(multiplied):
            updates.times_zero.append(item.carried())
            products = multiplied & zeros.names - zeros.certain
            factors_of |= {p for p in products if item.is_needed(graph.ancestors([p]))}
    updates.factors = zeros.watched(factors_of)


def _lifted(graph: Graph, held: list[StatefulResource], lifting: Lifting) -> list[StatefulResource]:
    """Lift updates that outputs need out of functions; return the updated resources."""
    tried: set[str] = set()
    while True:
        needed = [item for item in held if item.is_needed(_reached(graph, lifting, held))]
        waiting = [
            item.node
            for item in needed
            if item.updates_inside and item.node.op == "VarHandleOp" and item.node.name not in tried
        ]
        if not waiting:
            return held
        tried.add(waiting[0].name)
        if lifting.lift(waiting[0]):
            held = _updated(graph)
            for item in held:
                item.origins = lifting.origins


def _updated(graph: Graph) -> "list[StatefulResource]":
    """Return the variables and tables that the graph or its functions update."""
    functions = FunctionUses(graph)
    held = [StatefulResource(graph, node, functions) for node in graph if node.op in FILLED_OPS]
    return [item for item in held if item.updates or item.updates_inside]


def _reached(
    graph: Graph,
    lifting: Lifting,
    held: Sequence[StatefulResource] = (),
    ends: Collection[str] = (),
) -> set[str]:
    """Return the names of the nodes that the graph's outputs depend on.

    Updates of `held` resources count as outputs if an output needs the resource. Inputs of the
    nodes `ends` are not followed.
    """
    names: set[str] = set()
    needs = Needs(graph)
    waiting, seen = list(graph.outputs), set(graph.outputs)
    while waiting:
        name, port = split(waiting.pop())
        names.add(name)
        if name in ends:
            continue
        node = graph[name]
        inputs = _inputs_of(node, port)
        if name in lifting.nodes:
            inputs = tuple(node.data_inputs[i] for i in needs.of_node(node, port))
        new = set(inputs) - seen
        seen |= new
        waiting += new
        for item in held if not waiting else ():
            if item.is_needed(names):
                waiting += [name for name in item.updates if name not in names]
    return names


def _inputs_of(node: Node, port: int) -> tuple[str, ...]:
    """Return the data inputs that an output of a node depends on.

    A batch norm in training mode normalizes with the statistics of the batch; it reads the moving
    averages only to update them, in its outputs 1 and 2.
    """
    if node.op in FUSED_BATCH_NORM_OPS and node.attr("is_training", True) and port not in (1, 2):
        return node.data_inputs[:3]
    return node.data_inputs
