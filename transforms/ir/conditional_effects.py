"""Control edges from effects in TensorFlow 1 branches and loops to nodes outside of them.

A node that waits for a dead node is dead too, and no node outside of a loop can wait for one in
it. A ControlTrigger runs even if its inputs are dead, and a loop's Exit runs after all nodes that
the iterations wait for.
"""

from collections.abc import Iterable

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.liveness import When, when_nodes_run
from deploykit.transforms.ir.node import EXIT_OPS, LOOP_EDGE_OPS, SWITCH_OPS, Node, producer_name

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
    end = Node(graph.unique_name(name), "NoOp", (_trigger(graph, waiting[()], name),))
    return graph.add(end).name


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
            end = Node(graph.unique_name(f"{name}/exit"), "Exit", (switch.name,))
            self._exit = graph.add(end.with_attrs(T=switch.attr("T"))).name
        return self._exit


def _trigger(graph: Graph, names: list[str], name: str) -> str:
    """Add a ControlTrigger that waits for nodes; return the control input that waits for it."""
    waits = tuple(f"^{name}" for name in dict.fromkeys(names))
    trigger = Node(graph.unique_name(f"{name}/trigger"), "ControlTrigger", waits)
    return f"^{graph.add(trigger).name}"
