"""An updated variable or table, with all nodes that read or update it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from deploykit.importers.variable_updates.function_updates import (
    FunctionUses,
    reads_value_before,
    value_behind,
)
from deploykit.importers.variables import needs_variable
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.control_flow import pass_on
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, producer_name, tensor_name
from deploykit.transforms.ir.ops import (
    FEEDABLE_OPS,
    PLACEHOLDER_OPS,
    REF_VARIABLE_OPS,
    VARIABLE_OPS,
    input_types,
)
from deploykit.transforms.ir.stateful_ops import UNTOUCHED_READS, is_update, passed_ports
from deploykit.transforms.ir.tensors import Array, DType, numpy_type
from deploykit.transforms.runtime.child_process import call
from deploykit.transforms.runtime.session import Session

_LOOP_OPS = frozenset({"StatelessWhile", "While"})  # their bodies return their arguments
_DRAWING = re.compile("Stateless(Random|Truncated|Parameterized|Multinomial|Shuffle)")
EPSILON = {"bfloat16": 2**-7, "float16": 2**-10, "float32": 2**-23, "float64": 2**-52}


@dataclass(frozen=True)
class Carried:
    """A variable that a run changes although outputs of the next run read it."""

    variable: str
    update: Node
    left: str
    """The tensor with the variable's value after a run."""


class StatefulResource:
    """A variable or table, with the nodes that use it."""

    def __init__(self, graph: Graph, node: Node, functions: FunctionUses) -> None:
        """Follow its handle to all nodes that use it, including those in functions."""
        self._graph = graph
        self.node = node
        self.updates: list[str] = []
        self.updates_inside: list[tuple[str, Node]] = []
        self._reads: list[str] = []
        self.origins: Mapping[str, Node] = {}
        """Original updates inside functions by lifted update, for messages."""
        self.left = ""  # tensor with the value after the last update
        self.handles = {node.name}
        waiting = [node.name]
        while waiting:
            tensor = waiting.pop()
            for reader in graph.readers(producer_name(tensor)):
                for port, item in enumerate(reader.data_inputs):
                    if item == tensor:
                        waiting += self._follow(reader, port, functions)

    def _follow(self, reader: Node, port: int, functions: FunctionUses) -> list[str]:
        """Record how a node uses the handle at a port; return the outputs that pass it on."""
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
        new = [handle for handle in handles if handle not in self.handles]
        self.handles.update(new)
        return new

    def is_needed(self, needed: set[str]) -> bool:
        """Return whether one of the `needed` nodes reads or updates the resource."""
        return not needed.isdisjoint((*self._reads, *self.updates))

    def let_read_updates(self) -> dict[str, DType]:
        """Make reads after an update use the new value; return the nodes with that value.

        GraphError: the order of the updates or the value is unknown.
        """
        if self.updates_inside:
            raise self._refusal(self.updates_inside[0][1])
        graph, conditional = self._graph, self._graph.conditional_names()
        before = {name: graph.ancestors([name]) for name in self.updates}
        behind = {name: graph.descendants([name]) for name in self.updates}
        order = sorted(self.updates, key=lambda name: len(before[name]))
        states = {}
        reads = tuple(self._reads)  # without the read that a partial update adds
        for place, name in enumerate(order):
            is_ordered = before[name].issuperset(order[:place])
            if not is_ordered or name in conditional or self.node.op not in VARIABLE_OPS:
                raise self._refusal(graph[name])
            states[name] = self.left = self._value_behind(graph[name])
        for read in reads:
            passed = [name for name in order if read in behind[name]]
            unordered = set(order).difference(passed, (n for n in order if read in before[n]))
            if unordered or (passed and read in conditional):
                raise self._refusal(graph[(passed or sorted(unordered))[-1]])
            if passed:
                self._reads.remove(read)
                node, state = graph[read], states[passed[-1]]
                inputs = [state if i in self.handles else i for i in node.data_inputs]
                graph.replace(node, node.with_data_inputs(*inputs))
        graph.redirect(states)
        dtype = DType(self.node.attr("dtype"))
        return dict.fromkeys(states.values(), dtype)

    def _value_behind(self, update: Node) -> str:
        """Add a node with the value after an update; return its name."""
        dtype = DType(self.node.attr("dtype"))
        before = self.left
        if not before and reads_value_before(update):
            before = self._first_read(dtype)
        value = value_behind(self._graph, update, before, dtype)
        if value is None:
            raise self._refusal(update)
        return value

    def _first_read(self, dtype: DType) -> str:
        """Add a node that reads the variable at the start of a run; return its name."""
        name = self._graph.unique_name(f"{self.node.name}/before")
        node = Node(name, "ReadVariableOp", (self.node.name,)).with_attrs(dtype=dtype)
        if self.node.op in REF_VARIABLE_OPS:
            node = Node(name, "Identity", (self.node.name,)).with_attrs(T=dtype)
        self._reads.append(self._graph.add(node).name)
        return name

    def carried(self) -> Carried:
        """Return the state that a run passes to the next one."""
        update = self._graph[self.updates[-1]]
        return Carried(self.node.name, self._origin(update), self.left)

    def check_may_settle(self) -> None:
        """Raise GraphError if the value after a run depends on inputs or is not a float."""
        graph = self._graph
        sources = {graph[name].op for name in graph.ancestors([self.left])}
        if not sources.isdisjoint(FEEDABLE_OPS) or self.node.attr("dtype") not in EPSILON:
            raise self._refusal(graph[self.updates[-1]])

    def drop_updates(self) -> None:
        """Replace each update whose result no node reads by a node without effect."""
        graph, conditional = self._graph, self._graph.conditional_names() if self.updates else set()
        for name in self.updates:
            node = graph[name]
            if graph.readers(name):
                continue  # `fill_variables` refuses it by name
            ports = [p for p, tensor in enumerate(node.data_inputs) if tensor not in self.handles]
            tensors = [node.data_inputs[port] for port in ports] if name in conditional else []
            types = [(input_types(node) or [])[port] for port in ports] if tensors else []
            idle = pass_on(name, tensors, types, node.control_inputs, node.device)
            graph.replace(node, idle)

    def _refusal(self, update: Node) -> GraphError:
        return changes_answers(self._origin(update), self.node.name, self._graph)

    def _origin(self, update: Node) -> Node:
        return self.origins.get(update.name, update)


def changes_answers(update: Node, variable: str, graph: Graph) -> GraphError:
    """Return the error for an update that outputs depend on."""
    read = graph.descendants([variable], control=False)
    why = f"it changes '{variable}' in each run, and the outputs depend on that"
    if any(_DRAWING.match(graph[name].op) for name in read):
        why = (
            f"it advances the seed '{variable}', and the outputs depend on random numbers, as in "
            "training"
        )
    return needs_variable(update, graph, f" ({why})")


CALLS = 100  # enough runs for convergence
_FED = 2  # above 1, so that values multiplied by an input grow

History = list[Array]
"""Values of a variable before and after the first run and after the last two runs. For another
tensor, its values in the first two and the last two runs."""


def repeat_calls(
    graph: Graph, left: dict[str, str], watched: Sequence[str]
) -> tuple[list[History], list[History]]:
    """Run a filled graph repeatedly in a child process with constant inputs.

    Args:
        graph: a graph whose variables are constants.
        left: the tensor with the new value of each variable, by variable.
        watched: names of further tensors.

    It returns the histories of the variables and of the watched tensors.
    GraphError: the graph cannot run on synthetic inputs.
    """
    calls = graph.copy()
    calls.inputs, calls.outputs = (), (*left.values(), *watched)
    calls.prune()
    fed = {node.name: _made_up(node) for node in calls if node.op in PLACEHOLDER_OPS}
    values = {variable: graph[variable].value for variable in left}
    content = b"".join(calls.serialized())
    result = call(f"{__name__}:repeat", content, values, fed, list(calls.outputs))
    return result[: len(left)], result[len(left) :]


def _made_up(placeholder: Node) -> Array:
    shape, dtype = placeholder.attr("shape"), placeholder.attr("dtype")
    if shape is None:
        raise GraphError("input-rank-unknown", name=placeholder.name)
    value = b"" if dtype == "string" else _FED
    return np.full([max(size, 1) if size else 0 for size in shape], value, numpy_type(dtype))


def repeat(
    content: bytes, values: dict[str, Array], fed: dict[str, Array], fetched: list[str]
) -> list[History]:
    """Run a graph repeatedly; `fetched` begins with the new value of each variable."""
    session = Session(content)
    names = [name for name in values if session.has(name)]
    seen: list[list[Array]] = []
    now = list(values.values())
    for _ in range(CALLS):
        before = dict(zip(values, now, strict=True))
        seen.append(session.run(fetched, fed | {name: before[name] for name in names}))
        seen[2:-2] = []
        now = seen[-1][: len(now)]
    left = zip(values.values(), *(seen[i] for i in (0, -2, -1)), strict=False)
    watched = zip(*(results[len(now) :] for results in seen), strict=True)
    return [list(history) for history in (*left, *watched)]


def settles(history: History) -> bool:
    """Return whether the last change is at most 0.001 of the first one, or rounding noise."""
    return _changes_at_most(1e-3, history)


def stays_finite(history: History) -> bool:
    """Return whether a float tensor's last change is at most its first one, so it does not grow."""
    return history[-1].dtype.name in EPSILON and _changes_at_most(1.0, history)


def _changes_at_most(share: float, history: History) -> bool:
    """Compare the last change with the first one; infinity and NaN count as large."""
    at_first, first, before_last, last = history
    noise = 4 * EPSILON[last.dtype.name] * _size(last)
    with np.errstate(invalid="ignore", over="ignore"):
        changes = _size(first - at_first), _size(last - before_last)
    return changes[1] <= max(share * changes[0], noise) < np.inf


def _size(values: Array) -> float:
    return float(np.abs(values.astype(np.float64)).max(initial=0.0))
