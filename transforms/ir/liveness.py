"""When a node runs: in which TensorFlow 1 loop, and after which outputs of which Switches.

The inputs and control inputs of a node decide both. A constant has no data inputs, so in
TensorFlow 1 it waits for the pivot of its loop or branch.

A node that waits for a dead node is dead too, and no node outside of a loop can wait for one in
it. A ControlTrigger runs even if its inputs are dead, and a loop's Exit runs after all nodes that
the iterations wait for: so nodes outside of branches and loops can wait for effects inside.
"""

from collections.abc import Iterable
from dataclasses import dataclass

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
)

Way = tuple[str, int, int]  # the condition, the port of the Switch, and the number of loops around


@dataclass(frozen=True)
class When:
    """The loops around a node, outermost first, and the Switch outputs that must all be alive."""

    loops: tuple[str, ...] = ()
    ways: frozenset[Way] = frozenset()


def when_nodes_run(graph: Graph) -> dict[str, When]:
    """Return for each node when it runs, in one pass in execution order."""
    results: dict[str, When] = {}
    for name in graph.order():
        node = graph[name]
        if graph.is_input(name):
            results[name] = When()
        elif node.op in MERGE_OPS:
            forward = (t for t in node.data_inputs if graph.producer(t).op not in LOOP_EDGE_OPS)
            results[name] = _either(read(graph, results, tensor) for tensor in forward)
        elif node.op == "ControlTrigger":
            results[name] = When(_all(read(graph, results, t) for t in node.inputs).loops)
        else:
            when = _all(read(graph, results, tensor) for tensor in node.inputs)
            if node.op in ENTER_OPS:
                when = When((*when.loops, str(node.attr("frame_name"))), when.ways)
            elif node.op in EXIT_OPS:
                loops = when.loops[:-1]
                when = When(loops, frozenset(way for way in when.ways if way[2] <= len(loops)))
            results[name] = when
    return results


def read(graph: Graph, results: dict[str, When], tensor: str) -> When:
    """Return when a tensor is computed, or when the node of a control input runs."""
    node, port = graph.producer(tensor), split(tensor)[1]
    when = results[node.name]
    if node.op not in SWITCH_OPS or port < 0 or graph.is_input(node.name):
        return when
    way = (_decider(graph, node.data_inputs[1]), port, len(when.loops))
    return When(when.loops, when.ways | {way})


def _decider(graph: Graph, condition: str) -> str:
    """Return the tensor that a condition only passes on."""
    node = graph.producer(condition)
    while node.op in ("Identity", "RefIdentity") and not graph.is_input(node.name):
        condition = node.data_inputs[0]
        node = graph.producer(condition)
    return condition


def _all(inputs: Iterable[When]) -> When:
    """Return when a node runs that needs all these inputs."""
    loops: tuple[str, ...] = ()
    ways: frozenset[Way] = frozenset()
    for input_ in inputs:
        loops = max(loops, input_.loops, key=len)
        ways = ways | input_.ways if input_.ways else ways
    return When(loops, ways)


def _either(inputs: Iterable[When]) -> When:
    """Return when a Merge runs that needs one of these inputs: under their common conditions."""
    known = list(inputs) or [When()]
    loops = max((item.loops for item in known), key=len)
    return When(loops, frozenset.intersection(*(item.ways for item in known)))


Loops = tuple[str, ...]  # the frames of the loops around a node, outermost first


def wait_outside(graph: Graph, effects: Iterable[str], name: str) -> str | None:
    """Add a NoOp that waits for these conditional nodes, whether or not they run.

    Returns the name of the NoOp, `name` or the next free one, which is outside of all branches and
    loops. Returns None without a change to the graph if a loop has no condition or no back edge.
    """
    when = when_nodes_run(graph)
    waiting: dict[Loops, list[str]] = {(): []}
    for effect in effects:
        loops = when[effect].loops
        waiting.setdefault(loops, []).append(effect)
        for depth in range(len(loops)):
            waiting.setdefault(loops[:depth], [])
    frames = {loops: _Loop(loops) for loops in waiting if loops}
    for node in graph:
        loops = when[node.name].loops
        if node.op in EXIT_OPS:  # an Exit belongs to the loop that it leaves
            loops = when[producer_name(node.data_inputs[0])].loops
        if loops in frames:
            frames[loops].note(graph, node)
    if not all(loop.is_whole for loop in frames.values()):
        return None
    for loops in sorted(frames, key=len, reverse=True):
        waiting[loops[:-1]].append(frames[loops].wait(graph, waiting[loops], when, name))
    return graph.put(name, "NoOp", _trigger(graph, waiting[()], name))


class _Loop:
    """The nodes that decide whether a loop repeats, and that end it."""

    def __init__(self, loops: Loops) -> None:
        self._depth = len(loops)
        self._condition = self._back = self._switch = self._exit = ""

    @property
    def is_whole(self) -> bool:
        return bool(self._condition and self._back and (self._exit or self._switch))

    def note(self, graph: Graph, node: Node) -> None:
        """Store a node of the loop that effects can be connected to."""
        if node.op == "LoopCond":
            self._condition = node.name
        elif node.op in LOOP_EDGE_OPS:
            self._back = node.name
        elif node.op in EXIT_OPS:
            self._exit = node.name
        elif node.op in SWITCH_OPS and graph.producer(node.data_inputs[1]).op == "LoopCond":
            self._switch = node.name

    def wait(self, graph: Graph, effects: list[str], when: dict[str, When], name: str) -> str:
        """Make the loop wait for effects in it; return its Exit.

        Effects that run only if the loop repeats precede the next iteration, all others precede the
        condition.
        """
        inside: list[str] = []
        always: list[str] = []
        for effect in effects:
            ways = when[effect].ways if effect in when else ()
            goes_on = any(way[0] == self._condition and way[2] == self._depth for way in ways)
            (inside if goes_on else always).append(effect)
        for target, tied in ((self._back, inside), (self._condition, always)):
            if tied:
                trigger = _trigger(graph, tied, name)
                graph.replace(graph[target], graph[target].with_control_inputs(trigger))
        if not self._exit:
            switch = graph[self._switch]
            type_ = switch.attr("T")
            self._exit = graph.put(f"{name}/exit", "Exit", switch.name, T=type_)
        return self._exit


def _trigger(graph: Graph, names: list[str], name: str) -> str:
    """Add a ControlTrigger that waits for nodes; return the control input that waits for it."""
    waits = [f"^{name}" for name in dict.fromkeys(names)]
    return f"^{graph.put(f'{name}/trigger', 'ControlTrigger', *waits)}"
