"""A function call can be replaced by the function's body, applied to the inputs of the call."""

from dataclasses import dataclass, replace

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.control_flow import pass_on
from deploykit.transforms.ir.functions import Body, Callee, Library
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, producer_name, split, tensor_name
from deploykit.transforms.ir.ops import input_types, output_types

MAX_NODES = 1_000_000
MAX_NAME_BYTES = 1 << 28  # of all new names together: each call lengthens the names inside it


def inline_functions(graph: Graph) -> None:
    """Replace each function call, including nested calls, by the function's body.

    The nodes of a body are named `<call>/<node>`. Nodes that the call waits for run before the
    body, and nodes that wait for the call run after it. Functions of branches, loops and datasets
    remain functions, and the function library is not changed.
    """
    inline_calls(graph)


def inline_calls(graph: Graph, ops: frozenset[str] | None = None) -> None:
    """Inline the calls by nodes of these ops, by default all; outer calls come first."""
    library = Library(graph, ops)
    calls = {node.name: callee for node in graph if (callee := library.callee(node)) is not None}
    if not calls:
        return
    _check_sizes(graph, library, calls)
    conditional = graph.conditional_names()
    acting = library.acting(graph)
    waiting = [_Waiting(name, callee, name in conditional) for name, callee in calls.items()]
    moves: dict[str, list[str]] = {}
    inlined: list[str] = []
    while waiting:
        current = waiting.pop()
        name, callee = current.name, current.callee
        if graph.skip(graph[name], _reason_to_stay(graph, library, graph[name], callee)):
            continue
        body = library.body(callee)
        producers = dict.fromkeys(map(producer_name, graph[name].data_inputs))
        effects = [f"^{producer}" for producer in producers if producer in acting]
        call = _Call(graph, library, graph[name], body, current, effects)
        call.expand()
        acting |= call.acting()
        moves |= call.moves()
        waiting += call.inner_calls()
        if graph.is_output(name):
            call.keep_name()
        else:
            inlined.append(name)
    graph.redirect(moves)
    for name in inlined:
        graph.remove(graph[name])


def _check_sizes(graph: Graph, library: Library, calls: dict[str, Callee]) -> None:
    """Raise GraphError for a missing or recursive function, or a graph that would become too large.

    Sizes are summed before nodes are created, as nested calls can double them at each level.
    """
    sizes: dict[Callee, tuple[int, int]] = {}  # nodes, and bytes of their names
    nodes, name_bytes = len(graph), 0
    for name, callee in calls.items():
        _measure(library, callee, sizes)
        nodes += sizes[callee][0]
        name_bytes += sizes[callee][1] + sizes[callee][0] * (len(name) + 1)
        for size, most, unit in (
            (nodes, MAX_NODES, "nodes"),
            (name_bytes, MAX_NAME_BYTES, "bytes of names"),
        ):
            if size > most:
                raise GraphError(
                    "inlined-too-large",
                    node=name,
                    function=callee.name,
                    size=size,
                    unit=unit,
                    most=most,
                )


def _measure(library: Library, callee: Callee, sizes: dict[Callee, tuple[int, int]]) -> None:
    """Add the size of a function including all functions that it calls, and the sizes of those."""
    path: dict[str, None] = {}
    waiting = [(callee, False)]
    while waiting:
        current, is_measured = waiting.pop()
        if is_measured:
            del path[current.name]
            body = library.body(current)
            nodes, name_bytes = len(body.nodes), sum(len(node.name) for node in body.nodes)
            for name, inner in body.calls.items():
                nodes += sizes[inner][0]
                name_bytes += sizes[inner][1] + sizes[inner][0] * (len(name) + 1)
            sizes[current] = nodes, name_bytes
        elif current.name in path:
            names = [*path, current.name]
            shown = " -> ".join(f"'{name}'" for name in names[names.index(current.name) :][:6])
            raise GraphError("function-recursive-inline", calls=shown)
        elif current not in sizes and library.unknown_op(current.name):
            sizes[current] = 0, 0
        elif current not in sizes:
            path[current.name] = None
            if len(path) + len(sizes) > MAX_NODES:
                raise GraphError("functions-too-many-calls", most=MAX_NODES)
            waiting.append((current, True))
            waiting += [(inner, False) for inner in library.body(current).calls.values()]


def _reason_to_stay(graph: Graph, library: Library, call: Node, callee: Callee) -> str:
    if graph.is_input(call.name):
        return "it is fed, so its function does not run"
    op = library.unknown_op(callee.name)
    if op:
        return f"its function '{callee.name}' contains the unknown op {op}"
    hidden = library.body(callee).hidden_effects
    if hidden:
        return (
            f"its function '{callee.name}' runs '{hidden[0]}' in a loop that has no condition or "
            "never repeats, so nothing outside of it can wait for the effect"
        )
    return ""


@dataclass(frozen=True)
class _Waiting:
    """A call that is not yet inlined."""

    name: str
    callee: Callee
    is_conditional: bool
    """Whether the call depends on a Switch or is in a loop."""
    is_outer: bool = True
    """Whether all enclosing calls are direct; then TensorFlow lowers no If or While in the body.

    A lowered op runs only the nodes of a branch that its results and control results need.
    """


class _Call:
    """A call that is being replaced by nodes."""

    def __init__(
        self,
        graph: Graph,
        library: Library,
        node: Node,
        body: Body,
        waiting: _Waiting,
        effects: list[str],
    ) -> None:
        if len(node.data_inputs) != body.arguments:
            raise GraphError(
                "call-inputs-count",
                node=node.name,
                count=len(node.data_inputs),
                expected=body.arguments,
            )
        self._graph, self._library = graph, library
        self._op_def = library.op_def(node.op)
        self._node = node
        self._body = body
        self._is_conditional = waiting.is_conditional
        self._is_kept_whole = waiting.is_outer and waiting.callee.is_direct
        self._constants = {n.name for n in body.nodes if n.op == "Const" and not n.inputs}
        self._effects = effects  # that the arguments wait for, or are
        self._arguments, self._waits = self._gated()
        self._prefix = self._free_prefix()
        self._results: list[str] = []
        self._ends: list[str] = []

    def expand(self) -> None:
        """Add the body's nodes to the graph."""
        names = {node.name for node in self._body.nodes}
        for node in self._body.nodes:
            device = node.device or self._node.device
            inner = replace(node, name=self._outside(node.name), device=device)
            inner = inner.rewired(lambda tensor: [self._outside(tensor)])
            if self._is_kept_whole and self._library.has_effect(inner, inner.attrs):
                inner = inner.with_attrs(_lower_using_switch_merge=None)
            if self._starts(node):
                inner = inner.with_control_inputs(*self._waits)
            self._graph.add(_with_own_names(inner, self._prefix, names))
        for port, tensor in enumerate(self._body.results):
            self._results.append(self._result(port, tensor))
        ends = (*self._body.control_results, *self._body.effects)
        ends = (*self._results, *map(self._outside, ends))
        control = dict.fromkeys(f"^{producer_name(end)}" for end in ends)
        self._ends = self._joined("done", list(control) or self._waits)

    def moves(self) -> dict[str, list[str]]:
        """Return the new tensors for the readers of the call."""
        name = self._node.name
        moves = {tensor_name(name, port): [r] for port, r in enumerate(self._results)}
        return {**moves, f"^{name}": self._ends}

    def acting(self) -> set[str]:
        """Return the nodes of the body with effects, or that read or wait for such a node."""
        all_names = {node.name for node in self._body.nodes}
        return set(map(self._outside, all_names if self._effects else self._body.acting))

    def inner_calls(self) -> list[_Waiting]:
        """Return the calls inside the body."""
        inside = self._body.conditional
        return [
            _Waiting(
                self._outside(name),
                callee,
                self._is_conditional or name in inside,
                self._is_kept_whole,
            )
            for name, callee in self._body.calls.items()
        ]

    def keep_name(self) -> None:
        """Replace the call by a node that passes the results on under the same name."""
        node = self._node
        after = () if self._results else self._ends
        types = output_types(node, self._op_def)
        retained = pass_on(node.name, self._results, types, after, node.device)
        self._graph.replace(node, retained)

    def _gated(self) -> tuple[list[str], list[str]]:
        """Return the tensors that the body reads, and the control inputs of its first nodes.

        A call reads all arguments at once, its body one by one. The body waits for an argument with
        effects, even if it does not read it. After a Switch or in a loop all arguments pass through
        one node. Thus the whole body is dead if it is, and its constants are in the loop.
        """
        node = self._node
        if not self._is_conditional or not node.data_inputs:
            waits = dict.fromkeys([*node.control_inputs, *self._effects])
            return list(node.data_inputs), self._joined("inputs", list(waits))
        types = input_types(node, self._op_def)
        name = self._graph.unique_name(f"{node.name}/arguments")
        gate = pass_on(name, node.data_inputs, types, node.control_inputs, node.device)
        self._graph.add(gate)
        ports = range(len(node.data_inputs))
        return [tensor_name(name, port) for port in ports], [f"^{name}"]

    def _free_prefix(self) -> str:
        prefix, number = self._node.name, 0
        while any(f"{prefix}/{node.name}" in self._graph for node in self._body.nodes):
            number += 1
            prefix = f"{self._node.name}_{number}"
        return prefix

    def _outside(self, tensor: str) -> str:
        """Return the tensor of the graph for a tensor of the body."""
        name, port = split(tensor)
        if name[:1] == "@":
            argument = self._arguments[int(name[1:])]
            return argument if port >= 0 else f"^{producer_name(argument)}"
        return tensor_name(f"{self._prefix}/{name}", port)

    def _starts(self, node: Node) -> bool:
        """Return whether a node of the body must itself wait for the control inputs of the call.

        A constant does not need to wait, unless it is in a dead branch or in a loop.
        """
        if self._is_conditional:
            return not node.inputs or node.name == self._body.joint
        producers = {producer_name(tensor) for tensor in node.inputs}
        return node.name not in self._constants and all(
            name in self._constants or name[:1] == "@" for name in producers
        )

    def _result(self, port: int, tensor: str) -> str:
        """Return a result of the body, after its effects where necessary."""
        after = [f"^{self._outside(name)}" for name in self._body.effects_beside[port]]
        if not self._is_conditional and (tensor[:1] == "@" or tensor in self._constants):
            after += self._waits
        result = self._outside(tensor)
        if not after:
            return result
        name = self._graph.unique_name(f"{self._node.name}/result_{port}")
        types = output_types(self._node, self._op_def)
        types = types and types[port : port + 1]
        return self._graph.add(pass_on(name, [result], types, after, self._node.device)).name

    def _joined(self, name: str, control_inputs: list[str]) -> list[str]:
        """Return one control input that replaces several."""
        if len(control_inputs) < 2:
            return control_inputs
        name = f"{self._node.name}/{name}"
        return [f"^{self._graph.put(name, 'NoOp', *control_inputs, like=self._node)}"]


def _with_own_names(node: Node, prefix: str, names: set[str]) -> Node:
    """Return a node of a body; its loop and the nodes that it names get the prefix of the call."""
    frame = node.attr("frame_name")
    if isinstance(frame, str):
        node = node.with_attrs(frame_name=f"{prefix}/{frame}")
    classes = node.attr("_class")
    if isinstance(classes, list):
        retained = [
            str(c) for c in classes if not str(c).startswith("loc:@") or str(c)[5:] in names
        ]
        own = [c.replace("loc:@", f"loc:@{prefix}/", 1) for c in retained]
        node = node.with_attrs(_class=own or None)
    return node
