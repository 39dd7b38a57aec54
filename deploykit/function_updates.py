"""What the functions of branches and loops do with a variable that they are given."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from deploykit.variables import FUNCTION_OPS
from transforms.core.functions import Library, functions_in
from transforms.core.node import Node
from transforms.core.ops import op_defs, output_ports
from transforms.core.protos import FunctionDef
from transforms.core.state import UNTOUCHED_READS, is_update, passed_ports


@dataclass
class Uses:
    """Nodes that work on a variable or table."""

    updates: list[tuple[str, Node]] = field(default_factory=list)
    """Each with its function."""
    is_read: bool = False
    """Whether its value leaves a function; what only updates it again does not count."""


def uses_inside(library: Library, call: Node, port: int) -> Uses:
    """Return what the functions that a node calls do with what it has at a port."""
    uses = Uses()
    waiting = [(name, argument) for name, argument, _ in _callees(call, port)]
    seen = set(waiting)
    while waiting:
        name, argument = waiting.pop()
        for callee in _uses(library[name], argument, uses):
            if callee not in seen:
                seen.add(callee)
                waiting.append(callee)
    return uses


def _callees(node: Node, port: int) -> Iterator[tuple[str, int, bool]]:
    """Yield the functions that get what is at a port, as which argument, and if as a loop body."""
    if node.op not in FUNCTION_OPS:
        return
    _, roles, before = FUNCTION_OPS[node.op]
    for role in roles:
        for function in functions_in(node.attrs[role]) if port >= before else ():
            yield function.name, port - before, role == "body"


def _uses(function: FunctionDef, argument: int, uses: Uses) -> Iterator[tuple[str, int]]:
    """Note what a function does with an argument, and yield whom it hands it on to."""
    nodes = [(Node.from_proto(proto), tuple(proto.input)) for proto in function.node_def]
    readers: dict[str, list[int]] = {}
    for index, (_, inputs) in enumerate(nodes):
        for tensor in dict.fromkeys(inputs):
            readers.setdefault(tensor, []).append(index)
    waiting = [function.signature.input_arg[argument].name]
    handles, reads = set(waiting), []
    own_updates: set[int] = set()
    while waiting:
        tensor = waiting.pop()
        for index in readers.get(tensor, ()):
            node, inputs = nodes[index]
            for port in [port for port, each in enumerate(inputs) if each == tensor]:
                references = _references(node)
                passed = [references[output] for output in passed_ports(node, port)]
                callees = list(_callees(node, port))
                if any(is_body for _, _, is_body in callees):
                    passed.append(references[port])
                yield from ((name, place) for name, place, _ in callees)
                if is_update(node.op) and port == 0:
                    uses.updates.append((function.signature.name, node))
                    own_updates.add(index)
                elif not passed and not callees and node.op not in UNTOUCHED_READS:
                    reads.append(index)
                new = [each for each in passed if each not in handles]
                handles.update(new)
                waiting += new
    returned = set(function.ret.values())
    uses.is_read |= any(_leaves(each, nodes, readers, own_updates, returned) for each in reads)


def _leaves(
    start: int,
    nodes: list[tuple[Node, tuple[str, ...]]],
    readers: dict[str, list[int]],
    ends: set[int],
    returned: set[str],
) -> bool:
    """Say whether a node's values leave its function, other than into the nodes at `ends`."""
    waiting, seen = [start], {start}
    while waiting:
        for tensor in _references(nodes[waiting.pop()][0]):
            if tensor in returned:
                return True
            for index in readers.get(tensor, ()):
                if index not in seen and index not in ends:
                    seen.add(index)
                    waiting.append(index)
    return False


def _references(node: Node) -> list[str]:
    """Return how other nodes of its function refer to the outputs of a node."""
    if node.op not in op_defs():
        return []
    ports = output_ports(node, op_defs()[node.op])
    return [f"{node.name}:{output}:{i}" for output in ports for i in range(len(ports[output]))]
