"""Whether a graph from an untrusted file can be handed to TensorFlow without killing the process.

TensorFlow is no safe parser: 238 bytes of a function that calls itself, or 163 bytes of a Const
whose type is not its tensor's, end the process that imports them, where no `except` can help.
Nothing here starts TensorFlow, recurses, or decodes a value.
"""

from collections.abc import Iterable, Mapping

from deploykit.transforms.core.checks.node_rules import NodeRules
from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.functions import names_in
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.node import Node, split
from deploykit.transforms.core.ops import op_defs
from deploykit.transforms.core.protos import FunctionDef, NodeDef

# Nothing honest comes near these; TensorFlow takes minutes or all memory beyond them.
MAX_CALL_DEPTH = 256
MAX_EXPANDED_NODES = 20_000_000  # of the graph with every call replaced by what it calls


def validate(graph: Graph) -> None:
    """Check a graph from an untrusted file; GraphError: what is wrong with which node.

    Every node has a legal name, a known op, as many data inputs as the op takes, inputs that their
    producers make, and the op's attributes in their types. Tensors fit their shapes and types.
    Functions exist, and neither call themselves nor expand beyond all bounds.
    """
    try:
        _validate(graph)
    except GraphError as error:  # names out of the file may hold anything, of any length
        sentence = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(error)[:1000])
        raise GraphError(sentence) from None


def _validate(graph: Graph) -> None:
    if not len(graph):
        raise GraphError("the graph has no node")
    rules = NodeRules({f.signature.name: f for f in graph.library.function})
    for node in graph:
        rules.check(node)
    graph.check()
    made = {node.name: rules.output_count(node) for node in graph}
    for node in graph:
        data_inputs, reads = node.data_inputs, rules.input_count(node)
        if len(data_inputs) + len(node.control_inputs) < len(node.inputs):
            raise GraphError(f"node '{node.name}': a data input stands after a control input")
        if len(data_inputs) != reads:
            raise GraphError(
                f"node '{node.name}' ({node.op}) has {len(data_inputs)} data inputs, but its op "
                f"takes {reads}"
            )
        for tensor in data_inputs:
            name, port = split(tensor) if ":" in tensor else (tensor, 0)
            if port >= made[name]:
                raise _no_such_output(graph, tensor, made, f"node '{node.name}' reads '{tensor}'")
    for role, tensors in (("input", graph.inputs), ("output", graph.outputs)):
        for tensor in tensors:
            name, port = split(tensor)
            if port > 0 and port >= made[name]:  # a node without outputs may be run
                raise _no_such_output(graph, tensor, made, f"'{tensor}' is named as {role}")
    _check_library(graph, rules)


def _no_such_output(graph: Graph, tensor: str, made: Mapping[str, int], who: str) -> GraphError:
    node = graph.producer(tensor)
    plural = "" if made[node.name] == 1 else "s"
    return GraphError(
        f"{who}, but node '{node.name}' ({node.op}) has {made[node.name]} output{plural}"
    )


def _check_library(graph: Graph, rules: NodeRules) -> None:
    if not graph.library.function:
        return
    if len(rules.functions) < len(graph.library.function):
        raise GraphError("two functions of the graph's library have the same name")
    for name, function in rules.functions.items():
        if name in op_defs():
            raise GraphError(f"function '{name}' bears the name of an op of TensorFlow")
        try:
            _check_body(function, rules)
        except GraphError as error:
            raise GraphError(f"function '{name}': {error}") from None
    calls = {
        name: _calls(function.node_def, rules.functions)
        for name, function in rules.functions.items()
    }
    sizes = dict.fromkeys(calls, 0)
    depths = dict.fromkeys(calls, 0)
    for name in _callees_first(calls):
        called = calls[name]
        sizes[name] = len(rules.functions[name].node_def) + sum(sizes[c] for c in called)
        depths[name] = 1 + max((depths[c] for c in called), default=0)
        if sizes[name] > MAX_EXPANDED_NODES or depths[name] > MAX_CALL_DEPTH:
            raise GraphError(
                f"function '{name}' stands for {sizes[name]} nodes in {depths[name]} levels of "
                f"calls, but at most {MAX_EXPANDED_NODES} in {MAX_CALL_DEPTH} levels are read"
            )
    total = sum(sizes[c] for c in _calls(graph, rules.functions))
    if total > MAX_EXPANDED_NODES:
        raise GraphError(
            f"the graph's calls stand for {total} nodes, but at most {MAX_EXPANDED_NODES} are read"
        )


def _check_body(function: FunctionDef, rules: NodeRules) -> None:
    """Check a function's nodes by themselves, and that what they read is there, in no cycle.

    Ports are left to whoever instantiates the function: they depend on the attributes it is given.
    """
    body = Graph()
    for argument in function.signature.input_arg:
        body.add(Node(argument.name, "_Arg"))
    for proto in function.node_def:
        rules.check(Node.from_proto(proto), in_function=True)
        inputs = (f"^{i[1:]}" if i[:1] == "^" else i.partition(":")[0] for i in proto.input)
        body.add(Node(proto.name, proto.op, tuple(inputs)))
    returned = [tensor.partition(":")[0] for tensor in function.ret.values()]
    body.outputs = (*returned, *function.control_ret.values())
    body.check()


def _calls(
    nodes: Iterable[Node] | Iterable[NodeDef], functions: Mapping[str, FunctionDef]
) -> list[str]:
    """Return the functions that nodes call or name, as often as they do."""
    calls = []
    for node in nodes:
        attrs = node.attrs if isinstance(node, Node) else node.attr
        calls += [name for name in (node.op, *names_in(attrs.values())) if name in functions]
    return calls


def _callees_first(calls: Mapping[str, list[str]]) -> list[str]:
    """Return the functions, each after those that it calls. GraphError: one calls itself."""
    users: dict[str, list[str]] = {name: [] for name in calls}
    missing = {name: len(set(called)) for name, called in calls.items()}
    for name, called in calls.items():
        for callee in dict.fromkeys(called):
            users[callee].append(name)
    order = [name for name, count in missing.items() if not count]
    for name in order:  # which grows meanwhile
        for user in users[name]:
            missing[user] -= 1
            if not missing[user]:
                order.append(user)
    left = [name for name, count in missing.items() if count]
    if left:
        name, path = left[0], dict[str, None]()
        while name not in path:  # whoever is left calls one that is left
            path[name] = None
            name = next(callee for callee in calls[name] if missing[callee])
        cycle = list(path)[list(path).index(name) :]
        shown = " -> ".join([*cycle[:8], name])
        raise GraphError(f"function '{name}' calls itself ({shown}), without end")
    return order
