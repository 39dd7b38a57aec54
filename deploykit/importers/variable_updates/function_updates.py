"""Updates in the functions of branches and loops, whose bodies are edited as graphs."""

import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from deploykit.importers.variables import FUNCTION_OPS, state_shape
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.functions import Callee, Library, functions_in
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, split, tensor_name
from deploykit.transforms.ir.node_index import reached
from deploykit.transforms.ir.ops import FEEDABLE_OPS, op_defs, output_references
from deploykit.transforms.ir.protos import FunctionDef, NodeDef
from deploykit.transforms.ir.stateful_ops import UNTOUCHED_READS, is_update, passed_ports
from deploykit.transforms.ir.tensors import DType, type_number
from deploykit.transforms.shapes.static_shapes import Shapes


def graph_of(library: Library, callee: Callee, graph: Graph) -> Graph:
    """Return a function's body as a graph with placeholders as arguments and outputs as results.

    The body shares the library of `graph`. GraphError: an argument or result is a list.
    """
    function, body = library[callee.name], library.body(callee)
    names = [argument.name for argument in function.signature.input_arg]
    if (body.arguments, len(body.results)) != (len(names), len(function.signature.output_arg)):
        raise GraphError("function-with-lists", function=callee.name)

    def named(tensor: str) -> str:
        name, port = split(tensor)
        return tensor_name(names[int(name[1:])], port) if name[:1] == "@" else tensor

    nodes = [Node(name, "Placeholder") for name in names]
    nodes += [replace(node, inputs=tuple(map(named, node.inputs))) for node in body.nodes]
    results = [named(tensor) for tensor in body.results]
    result = Graph(nodes, outputs=results, versions=graph.versions)
    result.library = graph.library
    return result


def written(body: Graph, name: str, value: tuple[int, DType], changed: int | None) -> str:
    """Add a function with this body to the body's library; return its name.

    It equals the function `name`, except that the argument in `value` is a value of that dtype.
    The result `changed`, which may be an additional one, also has that dtype.
    """
    library, (argument, dtype) = Library(body), value
    function_def = FunctionDef()
    function_def.CopyFrom(library[name])
    number = len(library.functions)
    while f"{name}_lifted_{number}" in library.functions:
        number += 1
    signature = function_def.signature
    signature.name = f"{name}_lifted_{number}"
    state_shape(function_def, argument)
    function_def.resource_arg_unique_id.pop(argument, None)
    arguments, results = signature.input_arg, signature.output_arg
    if len(body.outputs) > len(results):
        results.add(name=f"lifted_{number}")
    for item in (arguments[argument], *(results[i] for i in (changed,) if i is not None)):
        item.type = type_number(dtype)
        item.ClearField("handle_data")
    references = _body_references(body, library, [argument.name for argument in arguments])
    del function_def.node_def[:]
    for node in body:
        if node.name not in references:
            raise GraphError("node-not-known", node=node.name, op=node.op)
        if references[node.name] != [node.name]:
            inputs = tuple(_reference(references, input_) for input_ in node.inputs)
            function_def.node_def.add().CopyFrom(
                _proto(node, [input_ for input_ in inputs if input_])
            )
    function_def.ret.clear()
    for result, tensor in zip(results, body.outputs, strict=True):
        function_def.ret[result.name] = _reference(references, tensor)
    body.library.function.append(function_def)
    return str(signature.name)


def _proto(node: Node, inputs: list[str]) -> NodeDef:
    proto = replace(node, inputs=()).to_proto()
    proto.input.extend(inputs)
    return proto


def _body_references(body: Graph, library: Library, arguments: list[str]) -> dict[str, list[str]]:
    """Return the references to each output of each node, in a FunctionDef's notation."""
    results = {name: [name] for name in arguments}
    for node in body:
        op_def = library.op_def(node.op)
        if node.name not in results and op_def is not None:
            results[node.name] = output_references(node, op_def)
    return results


def _reference(references: dict[str, list[str]], tensor: str) -> str:
    """Return a FunctionDef's reference to a tensor; "" for a control input from an argument."""
    name, port = split(tensor)
    if port < 0:
        return "" if references[name] == [name] else tensor
    return references[name][port]


@dataclass
class Uses:
    """The uses of a variable or table in functions."""

    updates: list[tuple[str, Node]] = field(default_factory=list)
    """Updates as (function, node)."""
    is_read: bool = False
    """Whether a function returns a value that depends on it; reads for updates do not count."""


class _Body:
    """A function's nodes with an index of the readers of each tensor."""

    def __init__(self, function: FunctionDef) -> None:
        self.arguments = [argument.name for argument in function.signature.input_arg]
        self.returned = set(function.ret.values())
        self.nodes = [Node.from_proto(proto) for proto in function.node_def]
        self.inputs = [tuple(proto.input) for proto in function.node_def]
        self.readers: dict[str, list[int]] = {}
        for index, inputs in enumerate(self.inputs):
            for tensor in dict.fromkeys(inputs):
                self.readers.setdefault(tensor, []).append(index)


class FunctionUses:
    """Uses of resources in the functions of a graph."""

    def __init__(self, graph: Graph) -> None:
        """Index the graph's library; functions are analyzed on demand."""
        self._library = Library(graph)
        self._bodies: dict[str, _Body] = {}

    def of(self, call: Node, port: int) -> Uses:
        """Return how the functions that a node calls use its input at a port."""
        callees = [(name, argument) for name, argument, _ in _callees(call, port)]
        if self._updating.isdisjoint(name for name, _ in callees):
            return Uses(is_read=bool(callees))
        uses = Uses()
        reached(callees, lambda callee: self._follow(*callee, uses))
        return uses

    @functools.cached_property
    def _updating(self) -> frozenset[str]:
        """Functions that contain an update, or refer to a function that does."""
        return self._library.reaching(lambda node: is_update(node.op))

    def _body(self, name: str) -> _Body:
        if name not in self._bodies:
            self._bodies[name] = _Body(self._library[name])
        return self._bodies[name]

    def _follow(self, name: str, argument: int, uses: Uses) -> Iterator[tuple[str, int]]:
        """Record how a function uses an argument; yield the functions that it passes it to."""
        body = self._body(name)
        waiting = [body.arguments[argument]]
        handles, reads, updates = set(waiting), [], set()
        while waiting:
            tensor = waiting.pop()
            for index in body.readers.get(tensor, ()):
                node = body.nodes[index]
                for port in [p for p, item in enumerate(body.inputs[index]) if item == tensor]:
                    references = _references(node)
                    passed = [references[output] for output in passed_ports(node, port)]
                    callees = list(_callees(node, port))
                    if any(is_loop_body for _, _, is_loop_body in callees):
                        passed.append(references[port])
                    yield from ((callee, place) for callee, place, _ in callees)
                    if port == 0 and is_update(node.op):
                        uses.updates.append((name, node))
                        updates.add(index)
                    elif not passed and not callees and node.op not in UNTOUCHED_READS:
                        reads.append(index)
                    new = [item for item in passed if item not in handles]
                    handles.update(new)
                    waiting += new
        uses.is_read |= any(_leaves(body, index, updates) for index in reads)


def _callees(node: Node, port: int) -> Iterator[tuple[str, int, bool]]:
    """Yield (function, argument, is loop body) for the functions that get a node's input."""
    if node.op not in FUNCTION_OPS:
        return
    _, roles, before = FUNCTION_OPS[node.op]
    for role in roles:
        for function in functions_in(node.attrs[role]) if port >= before else ():
            yield function.name, port - before, role == "body"


def _leaves(body: _Body, start: int, ends: set[int]) -> bool:
    """Return whether a function's results depend on a node, other than through `ends`."""

    def given(index: int) -> list[str]:
        return _references(body.nodes[index])

    def readers(index: int) -> list[int]:
        return [i for tensor in given(index) for i in body.readers.get(tensor, ()) if i not in ends]

    return any(tensor in body.returned for i in reached([start], readers) for tensor in given(i))


def _references(node: Node) -> list[str]:
    return output_references(node, op_defs()[node.op]) if node.op in op_defs() else []


_SUMS = {"AssignAdd": "AddV2", "AssignSub": "Sub"}
_SCATTER = re.compile(r"(?:Resource)?Scatter(Nd)?(Update|Add|Sub|Min|Max)")
_SLICES = ("ResourceStridedSliceAssign", "StridedSliceAssign")
_MASKS = ("begin_mask", "ellipsis_mask", "end_mask", "new_axis_mask", "shrink_axis_mask")


def reads_value_before(update: Node) -> bool:
    """Return whether the value after an update depends on the value before it."""
    return _assigned(update) != "Assign"


def value_behind(graph: Graph, update: Node, before: str, dtype: DType) -> str | None:
    """Add a node with the value after an update; return its name, or None if it is unsupported.

    `before` is the tensor with the variable's previous value; an Assign does not read it.
    """
    assigned = _assigned(update)
    given = update.data_inputs[1:]
    if assigned == "Assign":
        return _add(graph, update, "Identity", given[:1], T=dtype)
    if assigned in _SUMS:
        return _add(graph, update, _SUMS[assigned], (before, *given), T=dtype)
    if update.op in _SLICES:
        retained = {name: update.attr(name) for name in (*_MASKS, "Index") if name in update.attrs}
        return _add(
            graph, update, "TensorStridedSliceUpdate", (before, *given), T=dtype, **retained
        )
    return _scattered(graph, update, before, dtype)


def _scattered(graph: Graph, update: Node, before: str, dtype: DType) -> str | None:
    match = _SCATTER.fullmatch(update.op)
    if match is None:
        return None
    indices, values = update.data_inputs[1:3]
    index_type = update.attr("Tindices")
    if not match[1]:  # whole rows, which a scalar may fill
        if not Shapes(graph).shape(values):
            return None
        axis = Node.constant(graph.unique_name(f"{update.name}/axis"), np.array(-1, np.int32))
        graph.add(axis)
        rows = Node(graph.unique_name(f"{update.name}/rows"), "ExpandDims", (indices, axis.name))
        indices = graph.add(rows.with_attrs(T=index_type, Tdim=DType("int32"))).name
    op = f"TensorScatter{match[2]}"
    return _add(graph, update, op, (before, indices, values), T=dtype, Tindices=index_type)


def _add(graph: Graph, update: Node, op: str, inputs: tuple[str, ...], **attrs: object) -> str:
    name = graph.unique_name(f"{update.name}/value")
    return graph.add(Node(name, op, tuple(inputs)).with_attrs(**attrs)).name


def _assigned(update: Node) -> str:
    return update.op.removesuffix("VariableOp")


def is_zero(graph: Graph, tensor: str) -> bool:
    """Return whether all values of a tensor are 0 for all inputs."""
    node = graph.producer(tensor)
    if node.op in FEEDABLE_OPS or graph.is_input(node.name):
        return False
    if node.op == "ZerosLike":
        return True
    source = node.data_inputs[1] if node.op == "Fill" else tensor
    constant = graph.constant(source)
    return constant is not None and constant.attr("dtype") != "string" and not constant.value.any()


_PRODUCTS = frozenset({"Mul", "MulNoNan"})


class ZeroProducts:
    """The products of a graph with a factor that is 0 for all inputs.

    Infinity and NaN times 0 are NaN, except for integers and for MulNoNan with 0 as its second
    input.
    """

    def __init__(self, graph: Graph) -> None:
        """Find the products in the graph."""
        self._graph = graph
        self._factors = {
            node.name: factors
            for node in graph
            if node.op in _PRODUCTS
            for factors in [
                [data_input for data_input in node.data_inputs if not is_zero(graph, data_input)]
            ]
            if len(factors) < len(node.data_inputs)
        }
        self.names = frozenset(self._factors)
        self.certain = frozenset(name for name in self.names if self._is_certain(graph[name]))
        """Names of products that are 0 for any value of the other factor."""

    def _is_certain(self, product: Node) -> bool:
        if product.op == "MulNoNan":
            return is_zero(self._graph, product.data_inputs[1])
        return str(product.attr("T")).startswith(("int", "uint"))

    def watched(self, products: Iterable[str]) -> list[str]:
        """Add a node for each factor of products that must be finite; return the node names."""
        graph = self._graph
        results = []
        for product in sorted(products):
            for factor in self._factors[product]:
                name = graph.unique_name(f"{product}/factor")
                node = Node(name, "Identity", (factor,)).with_attrs(T=graph[product].attrs["T"])
                results.append(graph.add(node).name)
        return results
