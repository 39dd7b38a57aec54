"""The functions of a graph's library, their bodies as graph nodes, and renamed nodes."""

import functools
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, Sequence
from dataclasses import dataclass, replace

from deploykit.transforms.common.errors import GraphError, nearest
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.liveness import wait_outside
from deploykit.transforms.ir.node import Node, producer_name, split, tensor_name
from deploykit.transforms.ir.node_index import reached
from deploykit.transforms.ir.ops import acts, input_ports, op_defs, output_ports
from deploykit.transforms.ir.protos import AttrValue, FunctionDef, NameAttrList, NodeDef, OpDef

CALL_OPS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})

_MAX_ATTR_BYTES = 1 << 20  # attributes can double from call to call; real models stay far below


@dataclass(frozen=True)
class Callee:
    """A function and the attributes of its call, in bytes, so that callees can be compared."""

    name: str
    attrs: tuple[tuple[str, bytes], ...] = ()
    is_direct: bool = False
    """Whether the function's name is the op of the call: TensorFlow then runs all stateful nodes.

    In other calls it runs only the nodes that results and control results need.
    """


@dataclass(frozen=True)
class Body:
    """A function as nodes of a graph; `@0`, `@1`, ... are its argument tensors."""

    nodes: tuple[Node, ...]
    arguments: int
    results: tuple[str, ...]
    control_results: tuple[str, ...]
    effects: tuple[str, ...]
    """The nodes that run even if no result needs them, none after a Switch or in a loop."""
    effects_beside: tuple[tuple[str, ...], ...]
    """For each result, the effects that it does not need."""
    joint: str | None
    """The effect that waits for those in branches and loops, and that runs even if they do not."""
    hidden_effects: tuple[str, ...]
    """The nodes that run in a loop that has no end, so no node can wait for it."""
    acting: frozenset[str]
    """The nodes with side effects, and the nodes that read or wait for one."""
    conditional: frozenset[str]
    """The nodes after a Switch or in a loop."""
    calls: Mapping[str, Callee]


class Library:
    """The current functions of a graph by name."""

    def __init__(self, graph: Graph, call_ops: frozenset[str] | None = None) -> None:
        """Index the graph's library; with `call_ops`, nodes of other ops do not count as calls."""
        self._call_ops = call_ops
        self.functions = {f.signature.name: f for f in graph.library.function}
        self._bodies: dict[Callee, Body] = {}
        self._unknown_ops: dict[str, str | None] = {}

    def __getitem__(self, name: str) -> FunctionDef:
        """Return a function by name. GraphError: it does not exist; the message suggests names."""
        try:
            return self.functions[name]
        except KeyError:
            hint = nearest(name, tuple(self.functions))
            raise GraphError("missing", kind="function", name=name, hint=hint) from None

    def callee(self, node: Node) -> Callee | None:
        """Return the callee of a node, or None if it is not a call."""
        if self._call_ops is not None and node.op not in self._call_ops:
            return None
        if node.op in CALL_OPS:
            func = node.attrs["f"].func if "f" in node.attrs else AttrValue().func
            return _callee(func.name, func.attr)
        if node.op in self.functions and node.op not in op_defs():
            return replace(_callee(node.op, node.attrs), is_direct=True)
        return None

    def op_def(self, op: str) -> OpDef | None:
        """Return the definition of an op, which may be a function; None: the op is unknown."""
        if op in op_defs():
            return op_defs()[op]
        return self.functions[op].signature if op in self.functions else None

    def unknown_op(self, name: str) -> str | None:
        """Return an op in a function that neither TensorFlow nor the library has."""
        if name not in self._unknown_ops:
            ops = dict.fromkeys(node.op for node in self[name].node_def)
            self._unknown_ops[name] = next((op for op in ops if self.op_def(op) is None), None)
        return self._unknown_ops[name]

    def body(self, callee: Callee) -> Body:
        """Return the body of a function. GraphError: it is invalid."""
        if callee not in self._bodies:
            self._bodies[callee] = _BodyReader(self, callee).body()
        return self._bodies[callee]

    def has_effect(self, node: Node | NodeDef, attrs: Mapping[str, AttrValue]) -> bool:
        """Return whether a node has an effect outside of the graph when it runs."""
        used = list(names_in(attrs.values()))
        if used or node.op in self.functions:
            return any(name in self._with_effects for name in (*used, node.op))
        return acts(node.op)

    def acting(self, graph: Graph) -> set[str]:
        """Return the nodes with side effects, and those that read or wait for one."""
        if not self.functions and not any(map(acts, graph.ops)):
            return set()
        return graph.descendants(n.name for n in graph if self.has_effect(n, n.attrs))

    @functools.cached_property
    def _with_effects(self) -> frozenset[str]:
        def has_effect(node: NodeDef) -> bool:
            names_none = next(names_in(node.attr.values()), None) is None
            return names_none and node.op not in self.functions and acts(node.op)

        return self.reaching(has_effect)

    def reaching(self, holds: Callable[[NodeDef], bool]) -> frozenset[str]:
        """Return the functions with a node for which `holds` is true, and those that reference one.

        References count at any depth, by a node's attributes or its op.
        """
        users: dict[str, list[str]] = {}
        for name in self.functions:
            for other in self.named(name):
                users.setdefault(other, []).append(name)
        holding = [n for n, item in self.functions.items() if any(map(holds, item.node_def))]
        return frozenset(reached(holding, lambda name: users.get(name, ())))

    def below(self, names: Iterable[str]) -> KeysView[str]:
        """Return those of the names that are functions, and the functions that these reference.

        References count at any depth, by a node's attributes or its op.
        """

        def functions(names: Iterable[str]) -> Iterator[str]:
            return (name for name in names if name in self.functions)

        return reached(functions(names), lambda name: functions(self.named(name)))

    def named(self, name: str) -> Iterator[str]:
        """Yield the names that the nodes of a function reference, including other ops."""
        for node in self.functions[name].node_def:
            yield from (*names_in(node.attr.values()), node.op)


def _callee(name: str, attrs: Mapping[str, AttrValue]) -> Callee:
    content = ((key, attrs[key].SerializeToString(deterministic=True)) for key in sorted(attrs))
    return Callee(name, tuple(content))


def functions_in(value: AttrValue) -> Sequence[NameAttrList]:
    """Return the functions that an attribute names, each with its attributes."""
    return [value.func] if value.HasField("func") else value.list.func


def callees(node: Node, attr: str) -> list[Callee]:
    """Return the functions that a node may call by one attribute, such as the body of a While."""
    value = node.attrs.get(attr, AttrValue())
    return [_callee(function.name, function.attr) for function in functions_in(value)]


def names_in(values: Iterable[AttrValue]) -> Iterator[str]:
    """Yield the functions that attributes name, at any depth."""
    waiting = list(values)
    while waiting:
        for function in functions_in(waiting.pop()):
            yield function.name
            waiting += function.attr.values()


def reachable(graph: Graph) -> set[str]:
    """Return the functions of the library that the graph's nodes reference, directly or not.

    The gradient of a referenced function counts as well, as in TensorFlow.
    """
    library = Library(graph)
    functions = library.functions
    if not functions:
        return set()
    gradients = {entry.function_name: entry.gradient_func for entry in graph.library.gradient}

    def following(name: str) -> Iterator[str]:
        if name in functions:
            yield from names_in(functions[name].attr.values())
            yield from library.named(name)
            yield gradients.get(name, "")

    starts = (name for node in graph for name in (node.op, *names_in(node.attrs.values())))
    return functions.keys() & reached(starts, following)


class _BodyReader:
    """Reads one function with the attributes of its call."""

    def __init__(self, library: Library, callee: Callee) -> None:
        self._library = library
        self._name = callee.name
        self._is_direct = callee.is_direct
        self._function = library[callee.name]
        defaults = {
            attr.name: attr.default_value
            for attr in self._function.signature.attr
            if attr.HasField("default_value")
        }
        given = {name: AttrValue.FromString(content) for name, content in callee.attrs}
        self._attrs = {**defaults, **given}
        nodes = [Node.from_proto(proto) for proto in self._function.node_def]
        self._nodes = [replace(node, attrs=self._filled(node)) for node in nodes]
        signature = self._function.signature
        self._arguments = input_ports(Node(callee.name, "", (), self._attrs), signature)
        self._ports = {}
        for node in self._nodes:
            op_def = library.op_def(node.op)
            self._ports[node.name] = output_ports(node, op_def) if op_def else {}

    def body(self) -> Body:
        function, nodes = self._function, []
        for node, proto in zip(self._nodes, function.node_def, strict=True):
            written = replace(node, inputs=tuple(proto.input))
            nodes.append(written.rewired(functools.partial(self._tensors, reader=proto.name)))
        results = []
        for argument in function.signature.output_arg:
            results += self._tensors(function.ret.get(argument.name, ""), argument.name)
        control_results = [function.control_ret[n] for n in function.signature.control_output]
        calls = {node.name: self._library.callee(node) for node in nodes}
        graph = Graph(nodes)
        conditional = graph.conditional_names()
        effects, inside = self._effects(graph, results, control_results, conditional)
        joint = self._joint(graph, inside)
        effects = (*effects, joint) if joint else effects
        producers = dict.fromkeys(map(producer_name, results)) if effects else {}
        needed = {name: graph.ancestors([name] if name in graph else []) for name in producers}
        return Body(
            nodes=tuple(node for node in graph if node.name[:1] != "@"),
            arguments=sum(map(len, self._arguments.values())),
            results=tuple(results),
            control_results=tuple(
                n for n in control_results if n in self._ports and n not in conditional
            ),
            effects=effects,
            effects_beside=tuple(
                tuple(name for name in effects if name not in needed[producer_name(result)])
                for result in results
            ),
            joint=joint,
            hidden_effects=() if joint else inside,
            acting=frozenset(self._library.acting(graph)),
            conditional=frozenset(conditional),
            calls={name: callee for name, callee in calls.items() if callee is not None},
        )

    def _effects(
        self, graph: Graph, results: list[str], control_results: list[str], conditional: set[str]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the effects that run: those outside of branches and loops, and those inside.

        Inside, only those count that some result does not need.
        """
        acting = [node for node in graph if self._library.has_effect(node, node.attrs)]
        if not acting:
            return (), ()
        producers = dict.fromkeys(map(producer_name, results))
        ends = [name for name in (*producers, *control_results) if name in graph]
        if self._is_direct:
            op_defs_ = ((node.name, self._library.op_def(node.op)) for node in acting)
            ends += [name for name, op_def in op_defs_ if op_def is None or op_def.is_stateful]
        needed = graph.ancestors(ends)
        names = [node.name for node in acting if node.name in needed]
        inside = [name for name in names if name in conditional]
        if inside and producers and all(name in graph for name in producers):
            by_all = set.intersection(*(graph.ancestors([name]) for name in producers))
            inside = [name for name in inside if name not in by_all]
        return tuple(name for name in names if name not in conditional), tuple(inside)

    def _joint(self, graph: Graph, inside: tuple[str, ...]) -> str | None:
        """Add a node that waits for effects in branches and loops; None: there are none."""
        if not inside:
            return None
        for port in range(sum(map(len, self._arguments.values()))):
            graph.add(Node(f"@{port}", "_Arg"))
        return wait_outside(graph, inside, "effects")

    def _tensors(self, reference: str, reader: str) -> list[str]:
        """Return the tensors of `x`, `x:1`, `node:output:1`, the list `node:output` or `^node`."""
        try:
            if reference[:1] == "^":
                name = reference[1:]
                if name in self._ports:
                    return [reference]
                return [f"^@{port}" for port in self._arguments[name]]
            name, _, rest = reference.partition(":")
            if name in self._arguments and (not rest or rest.isdigit()):
                index, results = rest, [f"@{port}" for port in self._arguments[name]]
            else:
                output, _, index = rest.partition(":")
                results = [tensor_name(name, port) for port in self._ports[name][output]]
            return [results[int(index)]] if index else results
        except (KeyError, IndexError, ValueError):
            raise GraphError(
                "function-input-missing", function=self._name, node=reader, input=reference
            ) from None

    def _filled(self, node: Node) -> Mapping[str, AttrValue]:
        """Return a node's attributes with the values that the caller gives."""
        filled = dict(node.attrs)
        for name, value in node.attrs.items():
            if value.WhichOneof("value") in ("placeholder", "func", "list"):
                filled[name] = self._filled_value(node, value)
        return filled

    def _filled_value(self, node: Node, value: AttrValue) -> AttrValue:
        result = AttrValue()
        result.CopyFrom(value)
        waiting = [result]
        while waiting:
            part = waiting.pop()
            kind = part.WhichOneof("value")
            if kind == "placeholder":
                if part.placeholder not in self._attrs:
                    raise GraphError(
                        "function-attribute-missing",
                        function=self._name,
                        node=node.name,
                        attribute=part.placeholder,
                    )
                part.CopyFrom(self._attrs[part.placeholder])
            elif kind == "func":
                waiting += part.func.attr.values()
            elif kind == "list":
                waiting += [attr for func in part.list.func for attr in func.attr.values()]
        if result.ByteSize() > max(_MAX_ATTR_BYTES, value.ByteSize()):
            raise GraphError(
                "attribute-grows", function=self._name, node=node.name, most=_MAX_ATTR_BYTES
            )
        return result


def rename(graph: Graph, names: Mapping[str, str]) -> None:
    """Rename nodes, and update inputs, colocations and the graph's inputs and outputs.

    Names may be swapped, as all nodes change at once; the node order does not change.
    GraphError: two nodes would have the same name.
    """
    moved_classes = {f"loc:@{old}": f"loc:@{new}" for old, new in names.items()}

    def moved(tensor: str) -> str:
        name, port = split(tensor)
        return tensor_name(names[name], port) if name in names else tensor

    def renamed(node: Node) -> Node:
        inputs = tuple(map(moved, node.inputs))
        name = names.get(node.name, node.name)
        if name != node.name or inputs != node.inputs:
            node = replace(node, name=name, inputs=inputs)
        classes = node.attr("_class") if "_class" in node.attrs else None
        if isinstance(classes, list):
            reported = [moved_classes.get(str(text), str(text)) for text in classes]
            node = node if reported == classes else node.with_attrs(_class=reported)
        return node

    nodes = list(graph)
    for node in nodes:  # without readers, they can be removed in any order
        graph.replace(node, replace(node, inputs=()))
    for node in nodes:
        graph.remove(node)
    for node in nodes:
        graph.add(renamed(node))
    graph.inputs = tuple(map(moved, graph.inputs))
    graph.outputs = tuple(map(moved, graph.outputs))
