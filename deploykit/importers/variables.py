"""Replacement of variables that are no longer updated by constants.

Nodes that passed on or read the variable pass on or read its value, including those in the
functions of branches and loops.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.functions import Library, functions_in, names_in
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, split, tensor_name
from deploykit.transforms.ir.ops import FEEDABLE_OPS, input_ports, op_defs, output_references
from deploykit.transforms.ir.protos import AttrValue, FunctionDef, TensorShapeProto
from deploykit.transforms.ir.stateful_ops import passed_ports
from deploykit.transforms.ir.tensors import Array, DType, type_number
from deploykit.transforms.runtime.session import check_restored

_READING_OPS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape"})
# Ops that pass inputs to functions: the attributes with the input types and the functions, and the
# number of leading inputs that are not passed on.
FUNCTION_OPS = {
    "Case": ("Tin", ("branches",), 1),
    "If": ("Tin", ("then_branch", "else_branch"), 1),
    "PartitionedCall": ("Tin", ("f",), 0),
    "StatefulPartitionedCall": ("Tin", ("f",), 0),
    "StatelessCase": ("Tin", ("branches",), 1),
    "StatelessIf": ("Tin", ("then_branch", "else_branch"), 1),
    "StatelessWhile": ("T", ("cond", "body"), 0),
    "While": ("T", ("cond", "body"), 0),
}
_RESOURCE = type_number("resource")
_AXIS = "@axis"  # stands for the axis of a gather until its node exists


def fill_variables(
    graph: Graph,
    values: Mapping[str, Array],
    states: Mapping[str, DType] | None = None,
    idle: Container[tuple[str, str]] = (),
) -> None:
    """Replace variables by their values, which are given by node name.

    `states` are nodes that replace a variable, with their dtypes. `idle` are updates that are
    removed because no output needs them, as (function, node).
    GraphError: a value does not fit its variable, or a node needs the variable itself.
    """
    types: dict[str, DType] = dict(states or {})
    for name, value in values.items():
        node = graph[name]
        check_restored(node, value)
        constant = Node.constant(name, value, node.attr("dtype"), node.device)
        types[name] = DType(constant.attr("dtype"))
        graph.replace(node, constant)
    if not types:
        return
    functions = _Functions(graph, idle)
    waiting = list(types)
    while waiting:
        tensor = waiting.pop()
        for reader in graph.readers(split(tensor)[0]):
            for port in _ports(reader.data_inputs, tensor):
                old = graph[reader.name]
                node, passed_on = _with_value(old, port, types[tensor], functions)
                if _AXIS in node.inputs:
                    axis = graph.add(_axis(graph.unique_name(f"{node.name}/axis"), node))
                    node = _reading_axis(node, axis.name)
                graph.replace(old, node)
                for output in passed_on:
                    name = tensor_name(node.name, output)
                    if name not in types:
                        types[name] = types[tensor]
                        waiting.append(name)
    functions.finish()
    for node in graph:
        if not types.keys().isdisjoint(_variables_of(node)):
            raise needs_variable(node, graph)


def _variables_of(node: Node) -> list[str]:
    """Return the inputs of a node that need the variable itself, not its value."""
    op_def = op_defs().get(node.op)
    if op_def is None or not any(arg.is_ref or arg.type == _RESOURCE for arg in op_def.input_arg):
        return []
    ports = input_ports(node, op_def)
    places = [ports[arg.name] for arg in op_def.input_arg if arg.is_ref or arg.type == _RESOURCE]
    return [node.data_inputs[port] for place in places for port in place]


def needs_variable(node: Node, graph: Graph, why: str = "") -> GraphError:
    """Return the error for a node that needs a variable itself, with advice."""
    switches = [n.name for n in graph if n.op in FEEDABLE_OPS and n.attr("dtype") == "bool"]
    ways = [f"pin the placeholder that switches training (--pin {n}=false)" for n in switches[:1]]
    ways += ["name other --outputs", "save the model with a function that only reads the variable"]
    return GraphError("variable-not-frozen", node=node.name, op=node.op, reason=why, advice=ways)


def _ports(inputs: Sequence[str], tensor: str) -> list[int]:
    return [port for port, read in enumerate(inputs) if read == tensor]


def _axis(name: str, gather: Node) -> Node:
    return Node.constant(name, np.array(gather.attr("batch_dims", 0), np.int32))


def _reading_axis(gather: Node, axis: str) -> Node:
    return replace(gather, inputs=tuple(axis if i == _AXIS else i for i in gather.inputs))


def _with_value(
    node: Node, port: int, dtype: DType, functions: "_Functions"
) -> tuple[Node, list[int]]:
    """Return a node that reads a value instead of a variable, and the outputs that pass it on.

    A gather reads its axis from `@axis`, which the caller has to add.
    """
    base = replace(node, op=node.op.removeprefix("Ref"))
    passed = passed_ports(base, port)
    if passed:  # `_output_shapes` is the shape of the handle, a scalar
        base = base.with_attrs(_output_shapes=None)
    if base.op == "IdentityN":
        return _with_type(base, "T", port, dtype), passed
    if passed:
        return base.with_attrs(T=dtype), passed
    if base.op in FUNCTION_OPS:
        return functions.call_with_value(base, port, dtype)
    if base.op == "VarIsInitializedOp":
        return Node.constant(node.name, np.array(True), device=node.device), []
    if base.op not in _READING_OPS or port:
        return node, []  # ops on reference variables read values; others are refused
    reading = Node(node.name, "", node.inputs, device=node.device)
    if node.op == "ReadVariableOp":
        return replace(reading, op="Identity").with_attrs(T=dtype), []
    if node.op == "VariableShape":
        return replace(reading, op="Shape").with_attrs(T=dtype, out_type=node.attr("out_type")), []
    reading = reading.with_attrs(Tparams=dtype, Tindices=node.attr("Tindices"))
    if node.op == "ResourceGatherNd":
        return replace(reading, op="GatherNd"), []
    gather = replace(reading, op="GatherV2")
    gather = gather.with_data_inputs(*node.data_inputs, _AXIS)
    batch_dims = node.attr("batch_dims", 0)
    return gather.with_attrs(Taxis=DType("int32"), batch_dims=batch_dims), []


def _with_type(node: Node, attr: str, port: int, dtype: DType) -> Node:
    types = list(node.attr(attr, []))
    types[port] = dtype
    return node.with_attrs(**{attr: [DType(type_) for type_ in types]})


class _Functions:
    """Variants of a graph's functions that take values instead of variables."""

    def __init__(self, graph: Graph, idle: Container[tuple[str, str]]) -> None:
        self._graph = graph
        self._idle = idle
        self._functions = Library(graph).functions
        self._forms: dict[str, _Form] = {}

    def call_with_value(self, node: Node, port: int, dtype: DType) -> tuple[Node, list[int]]:
        """Return a node whose functions take a value at a port; a loop also returns it."""
        attr, roles, before = FUNCTION_OPS[node.op]
        if port < before:
            return node, []
        node = _with_type(node, attr, port - before, dtype)
        for role in roles:
            value = AttrValue()
            value.CopyFrom(node.attrs[role])
            for function in functions_in(value):
                function.name = self._form(function.name, port - before, dtype, role == "body")
            node = node.with_attrs(**{role: value})
        node = node.with_attrs(output_shapes=None, _output_shapes=None)
        return node, [port] if "body" in roles else []

    def _form(self, name: str, argument: int, dtype: DType, is_body: bool) -> str:
        """Return the name of the function variant that takes one more value."""
        form = self._forms.get(name, _Form(name, (), is_body))
        form = replace(form, values=tuple(sorted({*form.values, (argument, dtype)})))
        places = "_".join(str(place) for place, _ in form.values)
        name = f"{form.function}_frozen_{'body_' if is_body else ''}{places}"
        self._forms[name] = form
        return name

    def finish(self) -> None:
        """Add the called variants to the library, including those that they call."""
        waiting = [name for node in self._graph for name in names_in(node.attrs.values())]
        while waiting:
            name = waiting.pop()
            if name in self._forms and name not in self._functions:
                function = self._written(name, self._forms[name])
                self._functions[name] = function
                self._graph.library.function.append(function)
                for proto in function.node_def:
                    waiting += names_in(proto.attr.values())

    def _written(self, name: str, form: "_Form") -> FunctionDef:
        result = self._without_idle_updates(form.function)
        result.signature.name = name
        for argument, dtype in form.values:
            changed = [result.signature.input_arg[argument]]
            state_shape(result, argument)
            if form.is_body:  # a loop body returns its arguments at the same ports
                changed.append(result.signature.output_arg[argument])
            for item in changed:
                item.type = type_number(dtype)
                item.ClearField("handle_data")
            result.resource_arg_unique_id.pop(argument, None)
            self._take_value(result, result.signature.input_arg[argument].name, dtype)
        return result

    def _without_idle_updates(self, name: str) -> FunctionDef:
        """Return a copy of a function with updates that no output needs replaced by NoOps."""
        result = FunctionDef()
        result.CopyFrom(self._functions[name])
        for proto in result.node_def:
            if (name, proto.name) in self._idle:
                waits = [tensor for tensor in proto.input if tensor[:1] == "^"]
                proto.CopyFrom(Node(proto.name, "NoOp", tuple(waits)).to_proto())
        return result

    def _take_value(self, function: FunctionDef, argument: str, dtype: DType) -> None:
        """Make the direct and indirect readers of an argument read a value."""
        readers: dict[str, list[int]] = {}
        for index, proto in enumerate(function.node_def):
            for tensor in dict.fromkeys(proto.input):
                readers.setdefault(tensor, []).append(index)
        renamed: dict[str, str] = {}
        waiting, seen = [argument], {argument}
        while waiting:
            tensor = waiting.pop()
            for index in readers.get(tensor, ()):
                for port in _ports(function.node_def[index].input, tensor):
                    for passed_on in self._replace(function, index, port, dtype, renamed):
                        if passed_on not in seen:
                            seen.add(passed_on)
                            waiting.append(passed_on)
        for proto in function.node_def:
            for place, tensor in enumerate(proto.input):
                proto.input[place] = renamed.get(tensor, tensor)
        for output, tensor in function.ret.items():
            function.ret[output] = renamed.get(tensor, tensor)

    def _replace(
        self, function: FunctionDef, index: int, port: int, dtype: DType, renamed: dict[str, str]
    ) -> list[str]:
        """Make a node of a function read a value at a port; return the tensors that pass it on."""
        proto = function.node_def[index]
        old = replace(Node.from_proto(proto), inputs=tuple(proto.input))
        node, passed_on = _with_value(old, port, dtype, self)
        if node is old:
            raise needs_variable(node, self._graph)
        if _AXIS in node.inputs:
            axis = _axis(f"{node.name}/axis_{len(function.node_def)}", node)
            function.node_def.add().CopyFrom(axis.to_proto())
            node = _reading_axis(node, f"{axis.name}:output:0")
        proto.CopyFrom(node.to_proto())
        before, after = (output_references(item, op_defs()[item.op]) for item in (old, node))
        renamed.update({a: b for a, b in zip(before, after, strict=True) if a != b})
        return [after[output] for output in passed_on]


def state_shape(function: FunctionDef, argument: int) -> None:
    """Set the shape of an argument, formerly a variable's handle, to that of the value.

    A handle is a scalar, and TensorFlow's loader would assign that shape to the value.
    """
    handles = function.signature.input_arg[argument].handle_data
    shape = handles[0].shape if handles else TensorShapeProto(unknown_rank=True)
    attrs = function.arg_attr[argument].attr
    for key in [key for key in attrs if key.startswith("_handle")]:
        del attrs[key]
    attrs["_output_shapes"].CopyFrom(AttrValue(list=AttrValue.ListValue(shape=[shape])))
    stated = function.attr["_input_shapes"].list.shape if "_input_shapes" in function.attr else ()
    if argument < len(stated):
        stated[argument].CopyFrom(shape)


@dataclass(frozen=True)
class _Form:
    """A function with values for some arguments; a loop body also returns them."""

    function: str
    values: tuple[tuple[int, DType], ...]
    is_body: bool
