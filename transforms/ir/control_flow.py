"""Folding of conditionals with a constant condition: Switch and Merge, If and Case.

In TensorFlow 1 control flow a Switch passes its input on to one of its outputs; all nodes that
depend on another output are dead. A Merge passes on the input that is alive. The newer If and Case
name one function for each branch.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.functions import Library
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import (
    ENTER_OPS,
    EXIT_OPS,
    LOOP_EDGE_OPS,
    MERGE_OPS,
    SWITCH_OPS,
    Node,
    producer_name,
    split,
    tensor_name,
)
from deploykit.transforms.ir.protos import AttrValue
from deploykit.transforms.ir.tensors import Array, DType
from deploykit.transforms.runtime.constants import compute
from deploykit.transforms.runtime.numpy_kernels import KERNELS

IF_OPS = frozenset({"If", "StatelessIf"})
CASE_OPS = frozenset({"Case", "StatelessCase"})
CONTROL_FLOW_OPS = (SWITCH_OPS | MERGE_OPS | ENTER_OPS | EXIT_OPS | LOOP_EDGE_OPS) | {
    "_XlaMerge",
    "LoopCond",
    "ControlTrigger",
}

# These pass their first input on (IdentityN: the input of the same port), if they are alive.
_PASSING_OPS = SWITCH_OPS | ENTER_OPS | {"Identity", "RefIdentity", "IdentityN"}


def conditional_depths(graph: Graph) -> dict[str, int]:
    """Return the depth of each node in TensorFlow 1 conditionals and loops.

    After a Switch a tensor may be dead, and after an Enter it has many values, so neither can be
    fetched. A Merge ends a conditional, and an Exit both the loop and the Switch that it reads.
    """
    depths: dict[str, int] = {}
    for name in graph.order():
        node = graph[name]
        # The depth of a back edge is not known yet; it is that of the loop's other inputs.
        depth = max((depths.get(producer_name(tensor), 0) for tensor in node.inputs), default=0)
        if node.op in SWITCH_OPS | ENTER_OPS:
            depth += 1
        elif node.op in ("Exit", "RefExit"):
            depth -= 2
        elif node.op in MERGE_OPS:
            goes_back = any(graph.producer(t).op in LOOP_EDGE_OPS for t in node.inputs)
            depth -= not goes_back
        depths[name] = 0 if graph.is_input(name) else max(depth, 0)
    return depths


def pass_on(
    name: str,
    tensors: Sequence[str],
    types: Sequence[DType] | None,
    control_inputs: Iterable[str] = (),
    device: str = "",
) -> Node:
    """Return a node whose outputs are these tensors: Identity, IdentityN, or NoOp for none."""
    if not tensors:
        return Node(name, "NoOp", device=device).with_control_inputs(*control_inputs)
    if types is None or len(types) != len(tensors):
        raise GraphError("attributes-without-types", name=name)
    type_ = types[0] if len(types) == 1 else list(types)
    node = Node(name, "Identity" if len(types) == 1 else "IdentityN", tuple(tensors), {}, device)
    return node.with_control_inputs(*control_inputs).with_attrs(T=type_)


def fold_dead_branches(graph: Graph) -> bool:
    """Fold the conditionals whose condition is constant, and drop the branches not taken.

    A Switch and a Merge are removed; an If or a Case becomes a call of the branch that is taken.
    Loops are kept. Returns whether there are such calls: inlining them may make more conditions
    constant.

    GraphError: an input or output of the graph is in a branch that is never taken.
    """
    decided = _Decisions(graph)
    if not (decided.live_ports or decided.branches):
        return False
    decided.check()
    _splice(graph, decided)
    for name, index in decided.branches.items():
        if name in graph:
            graph.absorb([graph[name]], into=_call(graph[name], index))
    _drop_idle_waits(graph)
    graph.prune()
    return bool(decided.branches)


class _Decisions:
    """The results of constant conditions and the nodes that become dead, found in one pass."""

    def __init__(self, graph: Graph) -> None:
        """Decide in execution order, so that a condition may depend on an earlier decision."""
        self.live_ports: dict[str, int] = {}
        self.live_inputs: dict[str, list[int]] = {}
        self.branches: dict[str, int] = {}
        self.dead: set[str] = set()
        self.loops: set[str] = set()
        """Merges with a back edge of a loop; they are not folded."""
        self._graph = graph
        self._values: dict[str, Array | None] = {}
        for name in graph.order():
            node = graph[name]
            if graph.is_input(name):
                continue
            if node.op in MERGE_OPS:
                self._decide_merge(node)
            elif node.op != "ControlTrigger" and any(map(self.is_dead, node.inputs)):
                self.dead.add(name)
            elif node.op in SWITCH_OPS:
                self._decide_switch(node)
            elif node.op in IF_OPS | CASE_OPS:
                self._decide_branch(node)
        for name in self.loops - self.dead:
            self._decide_merge(graph[name])

    def is_dead(self, tensor: str) -> bool:
        """Return whether a tensor is never computed."""
        name, port = split(tensor)
        return name in self.dead or (port >= 0 and self.live_ports.get(name, port) != port)

    def check(self) -> None:
        """Raise GraphError if an output is dead, or an input feeds only dead tensors."""
        for tensor in self._graph.outputs:
            if self.is_dead(tensor):
                raise GraphError("output-in-dead-branch", tensor=tensor)
        for tensor in self._graph.inputs:
            if any(map(self.is_dead, self._graph.producer(tensor).inputs)):
                raise GraphError("input-in-dead-branch", tensor=tensor)
        partly = [name for name, live in self.live_inputs.items() if len(live) > 1]
        read = _tensors_read(self._graph) if partly else set()
        for name in partly:
            if f"{name}:1" in read:
                raise GraphError("merge-index-needed", name=name)

    def _decide_merge(self, node: Node) -> None:
        """Record the inputs that are alive; a loop's back edge is alive if the loop is.

        Control inputs do not count: a Merge waits for them, dead or alive.
        """
        inputs = node.data_inputs
        live = [port for port, tensor in enumerate(inputs) if not self.is_dead(tensor)]
        back = [p for p, i in enumerate(inputs) if self._graph.producer(i).op in LOOP_EDGE_OPS]
        if back:
            self.loops.add(node.name)
        if not set(live) - set(back):
            self.dead.add(node.name)
        elif len(live) < len(inputs):
            self.live_inputs[node.name] = live

    def _decide_switch(self, node: Node) -> None:
        value = self._value(node.data_inputs[1])
        if value is None or value.size != 1:
            return
        index, count = int(value.reshape(())), 2
        if node.op == "_SwitchN":
            count = node.attr("num_outs", 1)
        self.live_ports[node.name] = index if 0 <= index < count else count - 1

    def _decide_branch(self, node: Node) -> None:
        value = self._value(node.data_inputs[0])
        if value is None:
            return
        if node.op in IF_OPS:
            # an If holds for what is not zero, and for a string or an array that is not empty
            self.branches[node.name] = int(bool(value.item()) if not value.ndim else value.size > 0)
        elif value.size == 1:
            index, count = int(value.reshape(())), len(node.attrs["branches"].list.func)
            self.branches[node.name] = index if 0 <= index < count else count - 1

    def _value(self, tensor: str) -> Array | None:
        """Return the value that a tensor has if it is alive, or None if it varies."""
        waiting = [tensor]
        while waiting:
            current = waiting[-1]
            operands = [] if current in self._values else self._operands(current)
            missing = [t for t in operands or () if t not in self._values]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            if current not in self._values:
                self._values[current] = self._computed(current, operands)
        return self._values[tensor]

    def _operands(self, tensor: str) -> list[str] | None:
        """Return the tensors that determine a tensor's value, or None if it cannot be known."""
        node, port = self._graph.producer(tensor), split(tensor)[1]
        if self._graph.is_input(node.name) or not all(map(self._is_pivot, node.control_inputs)):
            return None
        if node.op in _PASSING_OPS:
            return [node.data_inputs[port if node.op == "IdentityN" else 0]]
        if port:
            return None
        if node.op in MERGE_OPS:
            live = self.live_inputs.get(node.name, [])
            return [node.data_inputs[live[0]]] if len(live) == 1 else None
        return list(node.data_inputs) if node.op in KERNELS or node.op == "Const" else None

    def _is_pivot(self, control_input: str) -> bool:
        """Return whether a control input from a node only copies whether that node is alive."""
        node = self._graph.producer(control_input)
        if node.op == "Identity" and len(node.inputs) == 1:
            node = self._graph.producer(node.inputs[0])
            return node.op in SWITCH_OPS
        return node.op == "Const"

    def _computed(self, tensor: str, operands: list[str] | None) -> Array | None:
        arrays = [self._values[operand] for operand in operands or ()]
        known = [array for array in arrays if array is not None]
        if operands is None or len(known) < len(arrays):
            return None
        node = self._graph.producer(tensor)
        if node.op == "Const":
            return node.value
        return known[0] if node.op in _PASSING_OPS | MERGE_OPS else compute(node, known)


def _call(node: Node, index: int) -> Node:
    """Return the call of one branch of an If (0 is its else branch) or a Case.

    TensorFlow runs all stateful nodes of a branch, as in a direct call, unless it lowers the If.
    """
    if node.op in IF_OPS:
        function = node.attrs["then_branch" if index else "else_branch"].func
    else:
        function = node.attrs["branches"].list.func[index]
    if not node.attr("_lower_using_switch_merge"):
        return replace(node, op=function.name, inputs=node.inputs[1:], attrs=dict(function.attr))
    attrs = {name: node.attrs[name] for name in ("Tin", "Tout")}
    attrs["f"] = AttrValue(func=function)
    op = "PartitionedCall" if node.op.startswith("Stateless") else "StatefulPartitionedCall"
    return replace(node, op=op, inputs=node.inputs[1:], attrs=attrs)


def _splice(graph: Graph, decided: _Decisions) -> None:
    """Connect the readers of decided Switches and Merges to the tensors that these pass on.

    An Identity replaces a Switch or Merge that nodes wait for or that is fetched. A Switch's data
    and condition are in the same outer conditionals, so the data is dead if the Switch is.
    """
    fetched: dict[str, int] = {}
    for name, port in map(split, graph.outputs):
        fetched[name] = max(port, fetched.get(name, 0))
    read = _tensors_read(graph)
    lost = _LostWaits(graph, decided)
    waits_of = {
        node.name: [i for i in node.control_inputs if not decided.is_dead(i)] + lost.behind(node)
        for node in graph
        if node.op in MERGE_OPS | {"ControlTrigger"} and node.name not in decided.dead
    }
    moves: dict[str, str] = {}
    for name, port in decided.live_ports.items():
        if name not in graph:
            continue
        node = graph[name]
        source = node.data_inputs[0]
        tensors = [source] * (fetched.get(name, 0) + 1)
        stand_in = _stand_in(node, tensors, [node.attr("T")] * len(tensors))
        stand_in = graph.absorb([node], into=stand_in)
        if not stand_in.control_inputs:
            moves[tensor_name(name, port)] = source
        elif port:
            moves[tensor_name(name, port)] = name
    for name, waits in waits_of.items():
        data = graph[name].data_inputs
        graph.replace(graph[name], replace(graph[name], inputs=(*data, *dict.fromkeys(waits))))
    for name, live in decided.live_inputs.items():
        waits = waits_of.get(name, [])
        retained = [graph[name].data_inputs[port] for port in live]
        node = graph.replace(graph[name], graph[name].with_data_inputs(*retained))
        if name in decided.loops or len(live) > 1:
            graph.replace(node, node.with_attrs(N=len(live)))
            continue
        tensors, types = retained, [node.attr("T")]
        if f"{name}:1" in read:
            value_index = np.array(live[0], np.int32)
            index = Node.constant(graph.unique_name(f"{name}/value_index"), value_index)
            if fetched.get(name):
                tensors, types = [*retained, index.name], [*types, DType("int32")]
            else:
                index = index.with_control_inputs(f"^{name}")
                moves[f"{name}:1"] = index.name
            graph.add(index)
        graph.replace(node, _stand_in(node, tensors, types))
        if not waits:
            moves[name] = retained[0]
    graph.redirect(moves)


class _LostWaits:
    """Live effects that only dead nodes wait for or read: they ran before, and must still run."""

    def __init__(self, graph: Graph, decided: _Decisions) -> None:
        self._graph, self._decided = graph, decided
        self._seen: set[str] = set()
        self._acting = Library(graph).acting(graph)

    def behind(self, node: Node) -> list[str]:
        """Return the live effects that dead nodes before a Merge wait for, each only once overall.

        An effect that only dead nodes read, such as a queue of training data, is removed with them.
        """
        results: dict[str, None] = {}
        waiting = [tensor for tensor in node.inputs if self._decided.is_dead(tensor)]
        while waiting:
            current = self._graph.producer(waiting.pop())
            if current.name in self._seen or self._graph.is_input(current.name):
                continue
            self._seen.add(current.name)
            for tensor in current.inputs:
                name, is_wait = producer_name(tensor), tensor[:1] == "^"
                if self._decided.is_dead(tensor):
                    waiting.append(tensor)
                elif name in self._acting:
                    if is_wait or self._graph[name].op in EXIT_OPS:
                        results[f"^{name}"] = None
                    else:
                        waiting.append(tensor)
        return list(results)


def _tensors_read(graph: Graph) -> set[str]:
    return {*graph.outputs, *(tensor for node in graph for tensor in node.inputs)}


def _stand_in(node: Node, tensors: list[str], types: list[DType]) -> Node:
    """Return the node that passes tensors on under the name of a Switch or a Merge."""
    result = pass_on(node.name, tensors, types, node.control_inputs, node.device)
    is_reference = node.op.startswith("Ref") and result.op == "Identity"
    return replace(result, op="RefIdentity") if is_reference else result


def _drop_idle_waits(graph: Graph) -> None:
    """Drop control edges from nodes that are never dead and wait for nothing themselves.

    Those are constants and nodes that depend only on them, such as the pivot of a taken branch.
    """
    idle: set[str] = set()
    for name in graph.order():
        node = graph[name]
        idle_waits = [i for i in node.control_inputs if i[1:] in idle]
        if idle_waits:
            node = graph.replace(node, node.without_control_inputs(*idle_waits))
        is_pure = node.op in KERNELS or node.op in ("Const", "NoOp")
        producers = map(producer_name, node.inputs)
        if is_pure and not graph.is_input(name) and idle.issuperset(producers):
            idle.add(name)
