"""What may stand around a part of a graph: effects, feeds, fetches, readers, devices, loops.

Each function returns graphs that are built around the nodes of another one, whose names stay.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, producer_name, split, tensor_name
from deploykit.transforms.ir.ops import FEEDABLE_OPS, output_types
from deploykit.transforms.ir.tensors import DType

ASSERT, BOOL, INT = "fires", DType("bool"), DType("int32")


def firing(graph: Graph, name: str) -> Graph:
    """Return the graph in which a node waits for an Assert that fires."""
    graph = graph.copy()
    for part, value in (("condition", np.array(False)), ("data", np.array("lost", object))):
        graph.add(Node.constant(f"{ASSERT}/{part}", value))
    effect = Node(ASSERT, "Assert", (f"{ASSERT}/condition", f"{ASSERT}/data"))
    graph.add(effect.with_attrs(T=[DType("string")], summarize=3))
    graph.replace(graph[name], replace(graph[name], inputs=(*graph[name].inputs, f"^{ASSERT}")))
    return graph


def with_asserts(graph: Graph) -> Iterator[tuple[str, Graph]]:
    """Yield the graph with a firing Assert on each control edge that an output needs.

    A constant is tried with the edge, and behind an Identity that has it.
    """
    for name in _live(graph):
        if graph[name].op not in FEEDABLE_OPS:
            yield f"an Assert that '{name}' waits for", firing(graph, name)
        if graph[name].op == "Const":
            read = behind_identity(graph, name)
            yield f"an Assert that an Identity of '{name}' waits for", firing(read, f"{name}/read")


def behind_identity(graph: Graph, name: str) -> Graph:
    """Return the graph in which a constant is read through an Identity, as variables are."""
    graph = graph.copy()
    identity = Node(graph.unique_name(f"{name}/read"), "Identity", (name,))
    graph.redirect({name: f"{name}/read"})
    graph.add(identity.with_attrs(T=graph[name].attr("dtype")))
    return graph


def with_feeds(graph: Graph) -> Iterator[tuple[str, Graph]]:
    """Yield the graph with each tensor fed that has a value."""
    for name, type_, port in _tensors(graph):
        if port == 0 and type_ not in ("resource", "variant") and name not in graph.inputs:
            result = graph.copy()
            result.inputs = (*graph.inputs, name)
            yield f"'{name}' fed", result


def with_fetches(graph: Graph) -> Iterator[tuple[str, Graph]]:
    """Yield the graph with each tensor fetched that has a value; a TensorArray's flow has none."""
    for name, type_, port in _tensors(graph):
        tensor = tensor_name(name, port)
        is_flow = graph[name].op.startswith("TensorArray") and type_ == "float32"
        is_value = not type_.startswith(("resource", "variant", "q")) and not is_flow
        if tensor not in graph.outputs and is_value:
            result = graph.copy()
            result.outputs = (*graph.outputs, tensor)
            yield f"'{tensor}' fetched", result


def with_shared_constants(graph: Graph) -> Iterator[tuple[str, Graph]]:
    """Yield the graph with another reader of each constant."""
    for name in _live(graph):
        node = graph[name]
        if node.op == "Const" and not node.attr("dtype").startswith("q"):
            result = graph.copy()
            result.add(Node("shared", "Identity", (name,)).with_attrs(T=node.attr("dtype")))
            result.outputs = (*graph.outputs, "shared")
            yield f"'{name}' shared", result


def with_devices(graph: Graph) -> Iterator[tuple[str, Graph]]:
    """Yield the graph with a device on every node, and on every second one."""
    for step in (1, 2):
        result = graph.copy()
        for node in list(result)[::step]:
            result.replace(node, replace(node, device="/job:localhost/replica:0/task:0/cpu:0"))
        yield f"a device on one of {step} nodes", result


def in_a_loop(graph: Graph) -> Graph:
    """Return the graph as the body of a loop of TensorFlow 1 that runs twice.

    Its outputs are what the last turn gave.
    """
    frame = {"frame_name": "loop", "is_constant": False, "parallel_iterations": 10}
    result, inside = _inside(graph, "loop/pivot")

    def add(name: str, op: str, *inputs: str, **attrs: object) -> str:
        return result.add(Node(f"loop/{name}", op, inputs).with_attrs(**attrs)).name

    for name in inside:
        type_ = graph[name].attr("dtype")
        enter = add(f"{name}/Enter", "Enter", name, T=type_, **{**frame, "is_constant": True})
        result.add(Node(inside[name], "Identity", (enter, "^loop/pivot")).with_attrs(T=type_))
    for name, value in (("zero", 0), ("one", 1), ("two", 2)):
        result.add(Node.constant(f"loop/{name}", np.array(value, np.int32)))
    result.replace(result["loop/one"], replace(result["loop/one"], inputs=("^loop/pivot",)))
    start = add("start", "Enter", "loop/zero", T=INT, **frame)
    turn = add("turn", "Merge", start, "loop/next", T=INT, N=2)
    end = add("end", "Enter", "loop/two", T=INT, **{**frame, "is_constant": True})
    goes_on = add("goes_on", "LoopCond", add("less", "Less", turn, end, T=INT))
    add("switch", "Switch", turn, goes_on, T=INT)
    add("pivot", "Identity", "loop/switch:1", T=INT)
    add("next", "NextIteration", add("add", "Add", "loop/pivot", "loop/one", T=INT), T=INT)
    outputs = []
    for number, tensor in enumerate(graph.outputs):
        type_ = _type(graph, tensor)
        first = result.add(_zero(f"loop/first_{number}", type_)).name
        first = add(f"enter_{number}", "Enter", first, T=type_, **frame)
        back = add(f"back_{number}", "NextIteration", inside.get(tensor, tensor), T=type_)
        merged = add(f"merge_{number}", "Merge", first, back, T=type_, N=2)
        left = add(f"left_{number}", "Switch", merged, goes_on, T=type_)
        outputs.append(add(f"out_{number}", "Exit", left, T=type_))
    return _around(result, graph, outputs)


def in_a_branch(graph: Graph) -> Graph:
    """Return the graph as the branch that TensorFlow 1 takes if `branch/taken` is fed with true."""
    result, inside = _inside(graph, "branch/pivot")

    def add(name: str, op: str, *inputs: str, **attrs: object) -> str:
        return result.add(Node(f"branch/{name}", op, inputs).with_attrs(**attrs)).name

    taken = add("taken", "Placeholder", dtype=BOOL, shape=())
    add("switch", "Switch", taken, taken, T=BOOL)
    add("pivot", "Identity", "branch/switch:1", T=BOOL)
    for name in inside:
        type_ = graph[name].attr("dtype")
        switch = add(f"{name}/Switch", "Switch", name, taken, T=type_)
        result.add(Node(inside[name], "Identity", (f"{switch}:1",)).with_attrs(T=type_))
    outputs = []
    for number, tensor in enumerate(graph.outputs):
        type_ = _type(graph, tensor)
        other = result.add(_zero(f"branch/other_{number}", type_)).name
        other = add(f"else_{number}", "Switch", other, taken, T=type_)
        value = inside.get(tensor, tensor)
        outputs.append(add(f"out_{number}", "Merge", other, value, T=type_, N=2))
    around = _around(result, graph, outputs)
    around.inputs = (*around.inputs, taken)
    return around


def with_output_shapes(graph: Graph) -> Graph:
    """Return the graph whose nodes say the shapes of their outputs, as TensorFlow infers them."""
    result = graph.copy()
    shaped = imported(graph).as_graph_def(add_shapes=True)
    for proto in shaped.node:
        node = result[proto.name]
        shapes = proto.attr["_output_shapes"]
        result.replace(node, node.with_attrs(_output_shapes=shapes))
    return result


def imported(graph: Graph):
    """Return a graph as TensorFlow imports it; ValueError: it refuses."""
    import tensorflow as tf

    result = tf.Graph()
    with result.as_default():
        tf.import_graph_def(graph.to_graph_def(), name="")
    return result


def _inside(graph: Graph, pivot: str) -> tuple[Graph, dict[str, str]]:
    """Return the nodes with sources tied to a pivot, and the names of placeholders inside."""
    fed = [node.name for node in graph if node.op in FEEDABLE_OPS]
    inside = {name: f"inside/{name}" for name in fed}
    defaults = {producer_name(tensor) for name in fed for tensor in graph[name].data_inputs}

    def moved(tensor: str) -> str:
        name, port = split(tensor)
        return tensor_name(inside.get(name, name), port)

    nodes = []
    for node in graph:
        inputs = tuple(map(moved, node.inputs))
        if not node.inputs and node.name not in inside and node.name not in defaults:
            inputs = (f"^{pivot}",)
        nodes.append(node if node.name in inside else replace(node, inputs=inputs))
    return Graph(nodes), inside


def _around(result: Graph, graph: Graph, outputs: list[str]) -> Graph:
    return Graph(result, graph.inputs, outputs, graph.versions, graph.library)


def _zero(name: str, type_: DType) -> Node:
    value = np.array("", object) if type_ == "string" else np.array(0)
    return Node.constant(name, value, type_)


def _type(graph: Graph, tensor: str) -> DType:
    from deploykit.transforms.ir.functions import Library

    node, port = graph.producer(tensor), split(tensor)[1]
    types = output_types(node, Library(graph).op_def(node.op))
    assert types is not None, tensor
    return types[port]


def _live(graph: Graph) -> list[str]:
    live = graph.ancestors(producer_name(tensor) for tensor in graph.outputs)
    return [node.name for node in graph if node.name in live]


def _tensors(graph: Graph) -> Iterator[tuple[str, DType, int]]:
    """Yield the tensors that outputs need and somebody reads: name, type, port."""
    read = {t for n in _live(graph) for t in graph[n].data_inputs}
    for tensor in sorted(read):
        name, port = split(tensor)
        yield name, _type(graph, tensor), port
