"""The body of a function as a graph, and a graph as a function of the library."""

from dataclasses import replace

from deploykit.freezing.variables import state_shape
from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.functions import Callee, Library
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.node import Node, split, tensor_name
from deploykit.transforms.core.ops import output_references
from deploykit.transforms.core.protos import FunctionDef, NodeDef
from deploykit.transforms.core.tensors import DType, type_number


def graph_of(library: Library, callee: Callee, graph: Graph) -> Graph:
    """Return a function's body: its arguments are placeholders, its results outputs.

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
    found = Graph(nodes, outputs=results, versions=graph.versions)
    found.library = graph.library
    return found


def written(body: Graph, name: str, value: tuple[int, DType], changed: int | None) -> str:
    """Add a function with a body to the library of the body; return its name.

    It is as the function `name`, but takes a value of a type at an argument. The result `changed`,
    which may be one more, has that type, too.
    """
    library, (argument, dtype) = Library(body), value
    found = FunctionDef()
    found.CopyFrom(library[name])
    number = len(library.functions)
    while f"{name}_lifted_{number}" in library.functions:
        number += 1
    signature = found.signature
    signature.name = f"{name}_lifted_{number}"
    state_shape(found, argument)
    found.resource_arg_unique_id.pop(argument, None)
    arguments, results = signature.input_arg, signature.output_arg
    if len(body.outputs) > len(results):
        results.add(name=f"lifted_{number}")
    for each in (arguments[argument], *(results[i] for i in (changed,) if i is not None)):
        each.type = type_number(dtype)
        each.ClearField("handle_data")
    references = _references(body, library, [each.name for each in arguments])
    del found.node_def[:]
    for node in body:
        if node.name not in references:
            raise GraphError("node-not-known", node=node.name, op=node.op)
        if references[node.name] != [node.name]:
            inputs = tuple(_reference(references, each) for each in node.inputs)
            found.node_def.add().CopyFrom(_proto(node, [each for each in inputs if each]))
    found.ret.clear()
    for result, tensor in zip(results, body.outputs, strict=True):
        found.ret[result.name] = _reference(references, tensor)
    body.library.function.append(found)
    return str(signature.name)


def _proto(node: Node, inputs: list[str]) -> NodeDef:
    proto = replace(node, inputs=()).to_proto()
    proto.input.extend(inputs)
    return proto


def _references(body: Graph, library: Library, arguments: list[str]) -> dict[str, list[str]]:
    """Return how a function refers to each output of each node."""
    found = {name: [name] for name in arguments}
    for node in body:
        op_def = library.op_def(node.op)
        if node.name not in found and op_def is not None:
            found[node.name] = output_references(node, op_def)
    return found


def _reference(references: dict[str, list[str]], tensor: str) -> str:
    """Return how a function refers to a tensor; "": it waits for an argument, which is there."""
    name, port = split(tensor)
    if port < 0:
        return "" if references[name] == [name] else tensor
    return references[name][port]
