"""A frozen graph keeps nothing between calls: an update counts only where the same call reads it.

An update that no answer needs is dropped, and what reads a variable behind an update reads the new
value. An answer that depends on what an earlier call left behind changes from call to call; it is
refused, unless what is left behind settles, as the power iteration of a spectral norm does.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from deploykit.freezing.variable_updates.function_updates import FunctionUses
from deploykit.freezing.variable_updates.held import EPSILON, Carried, Held, changes_answers
from deploykit.freezing.variable_updates.lifting import Lifting, Needs
from deploykit.freezing.variable_updates.update_values import is_zero
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.layers.affine import FUSED_BATCH_NORM_OPS
from deploykit.transforms.core.layers.random_ops import draw_without_seeds
from deploykit.transforms.core.node import Node, split
from deploykit.transforms.core.running.child import call
from deploykit.transforms.core.stateful_ops import FILLED_OPS
from deploykit.transforms.core.tensors import Array, DType

logger = logging.getLogger("deploykit")

_PRODUCTS = frozenset({"Mul", "MulNoNan"})
_CALLS = 100  # after so many, what settles has settled


@dataclass
class Updates:
    """What became of the updates of a graph's variables and tables."""

    states: dict[str, DType] = field(default_factory=dict)
    """Nodes that stand for a variable behind an update, and its type."""
    idle: set[tuple[str, str]] = field(default_factory=set)
    """Updates inside functions that no answer needs, each by its function and its node."""
    carried: list[Carried] = field(default_factory=list)

    def check_settled(self, graph: Graph) -> None:
        """Raise GraphError if answers of a filled graph would change from call to call for good."""
        if not self.carried:
            return
        left = [each.left for each in self.carried]
        graph.outputs = tuple(tensor for tensor in graph.outputs if tensor not in left)
        calls = graph.copy()
        calls.inputs, calls.outputs = (), tuple(left)
        calls.prune()
        content = b"".join(calls.serialized())
        values = {each.variable: graph[each.variable].value for each in self.carried}
        found = call("deploykit.freezing.updates:repeat", content, values, left, _CALLS)
        for each, (at_first, first, before_last, last) in zip(self.carried, found, strict=True):
            noise = 4 * EPSILON[last.dtype.name] * _size(last)
            if not _size(last - before_last) <= max(1e-3 * _size(first - at_first), noise):
                raise changes_answers(each.update, each.variable, graph)
            logger.warning(
                "variable '%s' changes at each call until it settles; the frozen graph answers as "
                "the first call does",
                each.variable,
            )


def _size(values: Array) -> float:
    return float(np.abs(values.astype(np.float64)).max(initial=0.0))


def repeat(
    content: bytes, values: dict[str, Array], left: list[str], calls: int
) -> list[list[Array]]:
    """Call a graph again and again; return what each call leaves behind of variables, at first.

    This is done in a child process. The first values and those of the first call and of the last
    two are returned.
    """
    from deploykit.transforms.core.running.session import Session

    session = Session(content)
    names = [name for name in values if session.has(name)]
    seen = [list(values.values())]
    for _ in range(calls):
        now = dict(zip(values, seen[-1], strict=True))
        seen.append(session.run(left, {name: now[name] for name in names}))
        seen[2:-2] = []
    return [list(of_variable) for of_variable in zip(*seen, strict=True)]


def settle_updates(graph: Graph) -> Updates:
    """Take the updates of variables and tables out of a graph whose calls are inlined.

    GraphError: an answer depends on what an earlier call left behind.
    """
    held = _updated(graph)
    if draw_without_seeds(graph, [each.node.name for each in held if each.updates]):
        held = _updated(graph)
    lifting = Lifting(graph)
    if any(each.updates_inside for each in held):
        held = _lifted(graph, held, lifting)
    found = Updates()
    waiting, reached = held, _reached(graph, lifting) if held else set()
    while now := [each for each in waiting if each.is_needed(reached)]:
        waiting = [each for each in waiting if each not in now]
        for each in now:
            found.states |= each.let_read_updates()
        reached = _reached(graph, lifting)  # what was put in may come from others that are updated
    needed = _reached(graph, lifting, through_zeros=False) if held else set()
    for each in held:
        if each.is_needed(needed):
            found.carried.append(each.carried())
        each.drop_updates()
        found.idle |= {(function, node.name) for function, node in each.updates_inside}
    graph.outputs = (*graph.outputs, *(each.left for each in found.carried))
    return found


def _lifted(graph: Graph, held: list[Held], lifting: Lifting) -> list[Held]:
    """Lift updates that answers need out of functions; return what is updated then."""
    tried: set[str] = set()
    while True:
        needed = [each for each in held if each.is_needed(_reached(graph, lifting, held))]
        waiting = [
            each.node
            for each in needed
            if each.updates_inside and each.node.op == "VarHandleOp" and each.node.name not in tried
        ]
        if not waiting:
            return held
        tried.add(waiting[0].name)
        if lifting.lift(waiting[0]):
            held = _updated(graph)
            for each in held:
                each.origins = lifting.origins


def _updated(graph: Graph) -> "list[Held]":
    """Return the variables and tables that something updates."""
    functions = FunctionUses(graph)
    held = [Held(graph, node, functions) for node in graph if node.op in FILLED_OPS]
    return [each for each in held if each.updates or each.updates_inside]


def _reached(
    graph: Graph, lifting: Lifting, held: Sequence[Held] = (), through_zeros: bool = True
) -> set[str]:
    """Return the names of the nodes that the graph's outputs are computed from.

    The updates of what is `held` count as outputs if an output needs it. Without `through_zeros`,
    what is multiplied by 0 does not count: no output depends on its value.
    """
    found: set[str] = set()
    needs = Needs(graph)
    waiting, seen = list(graph.outputs), set(graph.outputs)
    while waiting:
        name, port = split(waiting.pop())
        found.add(name)
        node = graph[name]
        is_product = not through_zeros and node.op in _PRODUCTS
        if is_product and any(is_zero(graph, tensor) for tensor in node.data_inputs):
            continue
        inputs = _inputs_of(node, port)
        if name in lifting.nodes:
            inputs = tuple(node.data_inputs[i] for i in needs.of_node(node, port))
        new = set(inputs) - seen
        seen |= new
        waiting += new
        for each in held if not waiting else ():
            if each.is_needed(found):
                waiting += [name for name in each.updates if name not in found]
    return found


def _inputs_of(node: Node, port: int) -> tuple[str, ...]:
    """Return the data inputs that an output of a node depends on.

    A batch norm in training mode normalises with the statistics of the batch; it reads the moving
    averages only to update them, in its outputs 1 and 2.
    """
    if node.op in FUSED_BATCH_NORM_OPS and node.attr("is_training", True) and port not in (1, 2):
        return node.data_inputs[:3]
    return node.data_inputs
