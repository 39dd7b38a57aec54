"""Lifting of updates out of branches, loops and function calls.

The rewritten functions take a variable's value instead of its handle and return the final value.
The graph reads the variable before the calling node and assigns it afterwards.
"""

import logging
from dataclasses import replace

from deploykit.importers.variable_updates.function_updates import FunctionUses, graph_of, written
from deploykit.importers.variable_updates.updated_variables import StatefulResource
from deploykit.importers.variables import FUNCTION_OPS, fill_variables
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.functions import Callee, Library, callees, functions_in
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, split, tensor_name
from deploykit.transforms.ir.node_index import reached
from deploykit.transforms.ir.ops import op_defs, output_types
from deploykit.transforms.ir.protos import AttrValue
from deploykit.transforms.ir.stateful_ops import takes_handle
from deploykit.transforms.ir.tensors import DType

logger = logging.getLogger("deploykit")


class Lifting:
    """Lifts the updates of a graph's variables out of functions."""

    def __init__(self, graph: Graph) -> None:
        """Store the graph; `lift` changes it."""
        self._graph = graph
        self.nodes: set[str] = set()
        """Names of nodes whose functions were rewritten."""
        self.origins: dict[str, Node] = {}
        """One of the original updates, by the name of the update that replaces it."""

    def lift(self, variable: Node) -> bool:
        """Lift all updates of a variable; return False, and change nothing, if that fails."""
        trial = self._graph.copy()
        try:
            lifted = _lift(trial, variable)
        except GraphError as error:
            logger.debug("updates of variable '%s' stay in functions: %s", variable.name, error)
            return False
        self.nodes |= lifted.keys()
        self.origins |= dict(lifted.values())
        graph = self._graph
        graph.library.CopyFrom(trial.library)
        for node in trial:
            if node.name not in graph:
                graph.add(node)
            elif graph[node.name] is not node:
                graph.replace(graph[node.name], node)
        return True


def _lift(graph: Graph, variable: Node) -> dict[str, tuple[str, Node]]:
    """Lift the updates of a variable out of all nodes of a graph.

    The result contains, by node name, the new update after the node and one of the original ones.

    GraphError: the value after an update, or the order of updates, is unknown.
    """
    functions = FunctionUses(graph)
    lifted: dict[str, tuple[str, Node]] = {}
    handles = StatefulResource(graph, variable, functions).handles
    conditional = graph.conditional_names()
    for name in [node.name for node in graph if node.op in FUNCTION_OPS]:
        node = graph[name]  # may have new control inputs from earlier lifting
        ports = [port for port, item in enumerate(node.data_inputs) if item in handles]
        inside = [update for port in ports for _, update in functions.of(node, port).updates]
        if not inside:
            continue
        if len(ports) > 1 or node.name in conditional:
            raise GraphError("variable-read-twice", node=node.name, variable=variable.name)
        lifted[node.name] = (_lift_node(graph, node, ports[0], variable), inside[0])
    return lifted


def _lift_node(graph: Graph, node: Node, port: int, variable: Node) -> str:
    """Lift updates out of the functions of a node; return the name of the new update after it."""
    attr, roles, before = FUNCTION_OPS[node.op]
    dtype, is_loop = DType(variable.attr("dtype")), "body" in roles
    waits = [
        *node.control_inputs,
        *(f"^{graph.producer(data_input).name}" for data_input in node.data_inputs),
    ]
    name = graph.unique_name(f"{node.name}/before")
    read = Node(name, "ReadVariableOp", (variable.name, *dict.fromkeys(waits)))
    graph.add(read.with_attrs(dtype=dtype))
    inputs = [name if i == port else item for i, item in enumerate(node.data_inputs)]
    types = list(node.attr(attr))
    types[port - before] = dtype
    new = node.with_data_inputs(*inputs).with_attrs(**{attr: [DType(type_) for type_ in types]})
    for role in roles:
        new = new.with_attrs(**{role: _with_values(graph, node, role, port - before, variable)})
    left = port
    if not is_loop:
        given = output_types(node) or []
        left = len(given)
        new = new.with_attrs(Tout=[*given, dtype])
    new = new.with_attrs(output_shapes=None, _output_shapes=None, _read_only_resource_inputs=None)
    readers = list(graph.consumers(node.name))
    if is_loop:  # readers of the handle that the loop returned
        graph.redirect({tensor_name(node.name, port): variable.name})
        readers = [graph[reader.name] for reader in readers]
    graph.replace(graph[node.name], new)
    name = graph.unique_name(f"{node.name}/after")
    assign = Node(name, "AssignVariableOp", (variable.name, tensor_name(node.name, left)))
    graph.add(assign.with_attrs(dtype=dtype))
    for reader in readers:
        graph.replace(reader, reader.with_control_inputs(f"^{name}"))
    return name


def _with_values(graph: Graph, node: Node, role: str, argument: int, variable: Node) -> AttrValue:
    """Return an attribute with functions that take a value and return it."""
    value = AttrValue()
    value.CopyFrom(node.attrs[role])
    for function, callee in zip(functions_in(value), callees(node, role), strict=True):
        function.name = _lifted(graph, callee, role, argument, variable)
        function.ClearField("attr")
    return value


def _lifted(graph: Graph, callee: Callee, role: str, argument: int, variable: Node) -> str:
    library = Library(graph)
    signature = library[callee.name].signature
    body = graph_of(library, callee, graph)
    argument_name = signature.input_arg[argument].name
    dtype = DType(variable.attr("dtype"))
    handle = replace(variable, name=argument_name, inputs=())
    body.replace(body[argument_name], handle)
    _lift(body, handle)
    held = StatefulResource(body, handle, FunctionUses(body))
    if role == "cond" and held.updates:
        raise GraphError("loop-condition-updates")
    states = held.let_read_updates()
    held.drop_updates()
    left = held.left or argument_name
    given = Node(argument_name, "Placeholder").with_attrs(dtype=dtype)
    body.replace(body[argument_name], given)
    results = list(body.outputs)
    changed = {"body": argument, "cond": None}.get(role, len(results))
    if changed is not None:
        results[changed : changed + 1] = [left]
    if any(item in held.handles for i, item in enumerate(results) if i != changed):
        raise GraphError("function-returns-variable", function=callee.name)
    body.outputs = tuple(results)
    fill_variables(body, {}, {argument_name: dtype, **states})
    return written(body, callee.name, (argument, dtype), changed)


class Needs:
    """Arguments that the results of functions depend on."""

    def __init__(self, graph: Graph) -> None:
        """Store the graph's library; functions are analyzed on demand."""
        self._library = Library(graph)
        self._found: dict[tuple[Callee, int], set[int]] = {}

    def of_node(self, node: Node, port: int) -> set[int]:
        """Return the data inputs that an output of a node depends on."""
        every = set(range(len(node.data_inputs)))
        if node.op not in FUNCTION_OPS or port < 0:
            return every
        _, roles, before = FUNCTION_OPS[node.op]
        functions = {role: callees(node, role) for role in roles}
        if "body" not in functions:
            used = [self._of_result(f, port) for role in roles for f in functions[role]]
            return {*range(before), *(before + item for item in set().union(*used))}
        body = functions["body"][0]
        starts = {port, *self._of_result(functions["cond"][0], 0)}
        return set(reached(starts, lambda result: self._of_result(body, result)))

    def _of_result(self, callee: Callee, result: int) -> set[int]:
        """Return the arguments that a result of a function depends on."""
        key = (callee, result)
        if key not in self._found:
            self._found[key] = self._followed(callee, result)
        return self._found[key]

    def _followed(self, callee: Callee, result: int) -> set[int]:
        body = self._library.body(callee)
        if any(takes_handle(node.op) or node.op not in op_defs() for node in body.nodes):
            return set(range(body.arguments))  # values may also pass through the resource
        nodes = {node.name: node for node in body.nodes}

        def needed(tensor: str) -> list[str]:
            name, port = split(tensor)
            if name[:1] == "@":
                return []
            return [nodes[name].data_inputs[i] for i in self.of_node(nodes[name], port)]

        value = reached([body.results[result]], needed)
        return {int(tensor[1:]) for tensor in value if tensor[:1] == "@"}
