"""A frozen graph keeps nothing between calls: an update counts only where the same call reads it.

An update that no answer needs is dropped, and what reads a variable behind an update reads the new
value. An answer that depends on what an earlier call left behind changes from call to call; it is
refused, unless what is left behind settles, as the power iteration of a spectral norm does.
"""

import logging
import re
from dataclasses import dataclass, field

import numpy as np

from deploykit.freezing.variable_updates.function_updates import FunctionUses
from deploykit.freezing.variable_updates.update_values import (
    is_zero,
    reads_value_before,
    value_behind,
)
from deploykit.freezing.variables import needs_variable
from deploykit.transforms.core.control_flow import pass_on
from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.layers.affine import FUSED_BATCH_NORM_OPS
from deploykit.transforms.core.layers.random_ops import draw_without_seeds
from deploykit.transforms.core.node import Node, producer_name, split, tensor_name
from deploykit.transforms.core.ops import FEEDABLE_OPS, REF_VARIABLE_OPS, VARIABLE_OPS, input_types
from deploykit.transforms.core.running.child import call
from deploykit.transforms.core.stateful_ops import (
    FILLED_OPS,
    UNTOUCHED_READS,
    is_update,
    passed_ports,
)
from deploykit.transforms.core.tensors import Array, DType

logger = logging.getLogger("deploykit")

_LOOP_OPS = frozenset({"StatelessWhile", "While"})  # what goes into their body comes out of it
_PRODUCTS = frozenset({"Mul", "MulNoNan"})
_DRAWING = re.compile("Stateless(Random|Truncated|Parameterized|Multinomial|Shuffle)")
_EPSILON = {"bfloat16": 2**-7, "float16": 2**-10, "float32": 2**-23, "float64": 2**-52}
_CALLS = 100  # after so many, what settles has settled


@dataclass(frozen=True)
class _Carried:
    """A variable that a call leaves behind changed, though the next call's answers read it."""

    variable: str
    update: Node
    left: str
    """The tensor of what a call leaves behind."""


@dataclass
class Updates:
    """What became of the updates of a graph's variables and tables."""

    states: dict[str, DType] = field(default_factory=dict)
    """Nodes that stand for a variable behind an update, and its type."""
    idle: set[tuple[str, str]] = field(default_factory=set)
    """Updates inside functions that no answer needs, each by its function and its node."""
    carried: list[_Carried] = field(default_factory=list)

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
            noise = 4 * _EPSILON[last.dtype.name] * _size(last)
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
    found = Updates()
    waiting, reached = held, _reached(graph) if held else set()
    while now := [each for each in waiting if each.is_needed(reached)]:
        waiting = [each for each in waiting if each not in now]
        for each in now:
            found.states |= each.let_read_updates()
        reached = _reached(graph)  # what was put in may come from others that are updated
    needed = _reached(graph, through_zeros=False) if held else set()
    for each in held:
        if each.is_needed(needed):
            found.carried.append(each.carried())
        each.drop_updates()
        found.idle |= {(function, node.name) for function, node in each.updates_inside}
    graph.outputs = (*graph.outputs, *(each.left for each in found.carried))
    return found


def _updated(graph: Graph) -> "list[_Held]":
    """Return the variables and tables that something updates."""
    functions = FunctionUses(graph)
    held = [_Held(graph, node, functions) for node in graph if node.op in FILLED_OPS]
    return [each for each in held if each.updates or each.updates_inside]


def _reached(graph: Graph, through_zeros: bool = True) -> set[str]:
    """Return the names of the nodes that the graph's outputs are computed from.

    Without `through_zeros`, what is multiplied by 0 does not count: no output depends on its value.
    """
    found: set[str] = set()
    waiting, seen = list(graph.outputs), set(graph.outputs)
    while waiting:
        name, port = split(waiting.pop())
        found.add(name)
        node = graph[name]
        is_product = not through_zeros and node.op in _PRODUCTS
        if is_product and any(is_zero(graph, tensor) for tensor in node.data_inputs):
            continue
        new = set(_inputs_of(node, port)) - seen
        seen |= new
        waiting += new
    return found


def _inputs_of(node: Node, port: int) -> tuple[str, ...]:
    """Return the data inputs that an output of a node depends on.

    A batch norm in training mode normalises with the statistics of the batch; it reads the moving
    averages only to update them, in its outputs 1 and 2.
    """
    if node.op in FUSED_BATCH_NORM_OPS and node.attr("is_training", True) and port not in (1, 2):
        return node.data_inputs[:3]
    return node.data_inputs


class _Held:
    """A variable or table, and what works on it."""

    def __init__(self, graph: Graph, node: Node, functions: FunctionUses) -> None:
        """Follow its handle to all that work on it, also inside functions."""
        self._graph = graph
        self.node = node
        self.updates: list[str] = []
        self.updates_inside: list[tuple[str, Node]] = []
        self._reads: list[str] = []
        self._left = ""  # what the last update leaves behind
        self._handles = {node.name}
        waiting = [node.name]
        while waiting:
            tensor = waiting.pop()
            for reader in graph.readers(producer_name(tensor)):
                for port, each in enumerate(reader.data_inputs):
                    if each == tensor:
                        waiting += self._follow(reader, port, functions)

    def _follow(self, reader: Node, port: int, functions: FunctionUses) -> list[str]:
        """Note what a node does with the handle at a port; return where the handle goes on."""
        is_value = self.node.op in REF_VARIABLE_OPS and not reader.op.startswith("Ref")
        passed = [] if is_value else passed_ports(reader, port)
        if reader.op in _LOOP_OPS:
            passed = [port]
        handles = [tensor_name(reader.name, output) for output in passed]
        uses = functions.of(reader, port)
        self.updates_inside += uses.updates
        if port == 0 and is_update(reader.op):
            self.updates.append(reader.name)
        elif uses.is_read or not (passed or uses.updates or reader.op in UNTOUCHED_READS):
            self._reads.append(reader.name)
        new = [each for each in handles if each not in self._handles]
        self._handles.update(new)
        return new

    def is_needed(self, needed: set[str]) -> bool:
        """Say whether an answer depends on what this holds, at first or behind an update."""
        return not needed.isdisjoint((*self._reads, *self.updates))

    def let_read_updates(self) -> dict[str, DType]:
        """Let what reads this behind an update read the new value; return the nodes that have it.

        GraphError: the order or the value cannot be told.
        """
        if self.updates_inside:
            raise self._refusal(self.updates_inside[0][1])
        graph, conditional = self._graph, self._graph.conditional_names()
        before = {name: graph.ancestors([name]) for name in self.updates}
        behind = {name: graph.descendants([name]) for name in self.updates}
        order = sorted(self.updates, key=lambda name: len(before[name]))
        states = {}
        reads = tuple(self._reads)  # without the one that an update of a part adds
        for place, name in enumerate(order):
            is_ordered = before[name].issuperset(order[:place])
            if not is_ordered or name in conditional or self.node.op not in VARIABLE_OPS:
                raise self._refusal(graph[name])
            states[name] = self._left = self._value_behind(graph[name])
        for read in reads:
            passed = [name for name in order if read in behind[name]]
            unordered = set(order).difference(passed, (n for n in order if read in before[n]))
            if unordered or (passed and read in conditional):
                raise self._refusal(graph[(passed or sorted(unordered))[-1]])
            if passed:
                self._reads.remove(read)
                node, state = graph[read], states[passed[-1]]
                inputs = [state if i in self._handles else i for i in node.data_inputs]
                graph.replace(node, node.with_data_inputs(*inputs))
        graph.redirect(states)
        dtype = DType(self.node.attr("dtype"))
        return dict.fromkeys(states.values(), dtype)

    def _value_behind(self, update: Node) -> str:
        """Add the node that has the value behind an update; return its name."""
        dtype = DType(self.node.attr("dtype"))
        before = self._left
        if not before and reads_value_before(update):
            before = self._first_read(dtype)
        found = value_behind(self._graph, update, before, dtype)
        if found is None:
            raise self._refusal(update)
        return found

    def _first_read(self, dtype: DType) -> str:
        """Add a node that reads what the variable holds when a call begins; return its name."""
        name = self._graph.unique_name(f"{self.node.name}/before")
        node = Node(name, "ReadVariableOp", (self.node.name,)).with_attrs(dtype=dtype)
        if self.node.op in REF_VARIABLE_OPS:
            node = Node(name, "Identity", (self.node.name,)).with_attrs(T=dtype)
        self._reads.append(self._graph.add(node).name)
        return name

    def carried(self) -> _Carried:
        """Return what a call leaves behind for the next. GraphError: it depends on the inputs."""
        graph, update = self._graph, self._graph[self.updates[-1]]
        sources = {graph[name].op for name in graph.ancestors([self._left])}
        if not sources.isdisjoint(FEEDABLE_OPS) or self.node.attr("dtype") not in _EPSILON:
            raise self._refusal(update)
        return _Carried(self.node.name, update, self._left)

    def drop_updates(self) -> None:
        """Put a node that does nothing in the place of each update whose result nobody reads."""
        graph, conditional = self._graph, self._graph.conditional_names() if self.updates else set()
        for name in self.updates:
            node = graph[name]
            if graph.readers(name):
                continue  # filling refuses it by name
            ports = [p for p, tensor in enumerate(node.data_inputs) if tensor not in self._handles]
            tensors = [node.data_inputs[port] for port in ports] if name in conditional else []
            types = [(input_types(node) or [])[port] for port in ports] if tensors else []
            idle = pass_on(name, tensors, types, node.control_inputs, node.device)
            graph.replace(node, idle)

    def _refusal(self, update: Node) -> GraphError:
        return changes_answers(update, self.node.name, self._graph)


def changes_answers(update: Node, variable: str, graph: Graph) -> GraphError:
    """Return the error for an update that answers depend on."""
    read = graph.descendants([variable], control=False)
    why = f"it changes '{variable}' at each call, and the answers depend on that"
    if any(_DRAWING.match(graph[name].op) for name in read):
        why = (
            f"it advances the seed '{variable}', and the answers depend on what is drawn with it, "
            "as in training"
        )
    return needs_variable(update, graph, f" ({why})")
