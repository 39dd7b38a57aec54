"""inline_functions: ports, attributes, order of effects, branches, loops, and what is refused."""

import re

import numpy as np
import pytest
from google.protobuf import text_format

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.protos import AttrValue, FunctionDef, FunctionDefLibrary, NodeDef
from deploykit.transforms.ir.tensors import DType
from tests.support import (
    assert_golden,
    because,
    build,
    error,
    ops,
    raises,
    random,
    run,
    says,
    skipped,
    tf,
    transform,
)
from tests.transforms.examples import Example

X = {"x": random(4, 6)}


def placeholder():
    return tf.compat.v1.placeholder(tf.float32, [4, 6], name="x")


def nested():
    """Outputs out of order, TopKV2 and Split inside, an argument that is a result, two calls."""
    x = placeholder()

    @tf.function
    def inner(a):
        values, indices = tf.math.top_k(a, 3)
        parts = tf.split(a, 3, axis=1)
        return indices, values, parts[2], a

    @tf.function
    def outer(a, b):
        indices, values, part, same = inner(a)
        again = inner(same * random(6))
        return part * 2.0 + b, tf.cast(indices, tf.float32) * values, again[1], a

    p, q, r, s = outer(x, tf.constant(random(4, 2)))
    tf.add_n([tf.reduce_sum(p), tf.reduce_sum(s)], name="p")
    tf.add(q, r, name="q")


def variadic():
    """A function of any number of tensors of any type, called with Pack inside."""
    x = placeholder()

    @tf.function
    def pack(*tensors):
        return tf.unstack(tf.stack(tensors[::-1], axis=1), axis=1)[:2]

    first, second = pack(x, x * random(6), x + 1.0)
    tf.subtract(first, second, name="p")
    tf.identity(second, name="q")


def direct():
    """A call as TensorFlow 1 wrote it: the function's name is the op."""
    from tensorflow.python.framework.function import Defun

    x = placeholder()

    @Defun(tf.float32)
    def halves(a):
        values, indices = tf.math.top_k(a, 2)
        return tf.cast(indices, tf.float32), values

    indices, values = halves(x * random(6))
    tf.subtract(indices, values, name="p")
    tf.identity(values, name="q")


def branch_and_loop():
    """If and While name functions; those stay functions, with the calls inside them."""
    x = placeholder()

    @tf.function
    def double(a):
        return a * 2.0

    @tf.function
    def outer(a):
        a = tf.cond(tf.reduce_sum(a) > 0, lambda: double(a), lambda: a - 1.0)
        _, a = tf.while_loop(lambda i, _: i < 3, lambda i, t: (i + 1, double(t)), (0, a))
        return a

    tf.identity(outer(x), name="p")
    tf.identity(outer(-x), name="q")


def v1_branch():
    """Constants of a body below a Switch must be dead where the call is."""
    x = placeholder()

    @tf.function
    def constant():
        return tf.constant(random(4, 6, seed=1))

    @tf.function
    def second(a, b):
        return b, tf.constant(random(4, 6, seed=2))

    tf.compat.v1.disable_control_flow_v2()
    try:
        positive = tf.reduce_sum(x) > 0
        p = tf.compat.v1.cond(positive, constant, lambda: x)
        q = tf.compat.v1.cond(positive, lambda: second(x, x)[1], lambda: second(x, x + 1)[0])
    finally:
        tf.compat.v1.enable_control_flow_v2()
    tf.identity(p, name="p")
    tf.identity(q, name="q")


def v1_loop():
    """Constants of a body in a loop must live in the loop, and loops in bodies must differ."""
    x = placeholder()

    @tf.function
    def step(a):
        return a * 0.5 + tf.constant(random(6))

    tf.compat.v1.disable_control_flow_v2()
    try:

        @tf.function
        def loop(a):
            def again(i, t):
                return i + 1, step(t)

            return tf.compat.v1.while_loop(lambda i, _: i < 3, again, [0, a])[1]

        def around(i, t):
            return i + 1, step(t) + tf.constant(random(6, seed=3))

        y = tf.compat.v1.while_loop(lambda i, _: i < 4, around, [0, x])[1]
        p, q = loop(y), loop(x)
    finally:
        tf.compat.v1.enable_control_flow_v2()
    tf.identity(p, name="p")
    tf.identity(q, name="q")


def unused():
    """An argument that no result needs, and one that no node needs: a call computes them too."""
    x = placeholder()

    @tf.function
    def inner(a, b):
        return a * 2.0

    @tf.function
    def outer(a, b):
        return inner(a + 1.0, tf.identity(b)), tf.constant(random(6))

    p, q = outer(x, tf.identity(x * 3.0))
    tf.identity(p, name="p")
    tf.identity(q, name="q")


MADE = [nested, variadic, direct, branch_and_loop, v1_branch, v1_loop]


def calls(graph: Graph) -> int:
    functions = {f.signature.name for f in graph.library.function}
    return sum(node.op.endswith("PartitionedCall") or node.op in functions for node in graph)


@pytest.mark.parametrize("make", MADE, ids=lambda make: make.__name__)
def test_values_stay_to_the_bit(make):
    graph = build(make, ["x"], ["p", "q"])
    assert calls(graph)
    result = transform(graph, "inline_functions remove_unused_functions")
    assert not calls(result)
    assert error(graph, result, X) == 0
    assert error(graph, result, {"x": -X["x"]}) == 0


def as_everywhere(graph: Graph) -> str:
    """Return the graph without what differs from process to process and from machine to machine."""
    return re.sub(r", config_proto=b'.*?'|(?<=f=__inference_outer)_\d+", "", str(graph))


@pytest.mark.golden("inline_functions/nested")
def test_golden():
    graph = build(nested, ["x"], ["p", "q"])
    result = transform(graph, "inline_functions sort_by_execution_order")
    assert_golden(as_everywhere(graph), result)


def test_functions_of_branches_and_loops_stay():
    result = transform(build(branch_and_loop, ["x"], ["p"]), "inline_functions")
    assert {"StatelessIf", "StatelessWhile"} <= set(ops(result))


def test_a_body_below_a_switch_is_as_dead_as_its_call():
    result = transform(build(v1_branch, ["x"], ["p", "q"]), "inline_functions")
    assert result["cond/PartitionedCall/Const"].inputs == ("^cond/switch_t",)
    gate = result["cond_1/PartitionedCall/arguments"]
    assert gate.inputs == ("cond_1/Switch_1:1", "cond_1/Switch_1:1")
    assert result["cond_1/PartitionedCall/Const"].inputs == (f"^{gate.name}",)


# ------------------------------------------------------------------ functions written by hand


def func(
    name: str, signature: str, nodes: list[str], ret: dict[str, str], control_ret=()
) -> FunctionDef:
    """Return a FunctionDef from text: its signature, and NodeDefs."""
    result = text_format.Parse(f"signature {{ {signature} }}", FunctionDef())
    result.signature.name = name
    for node in nodes:
        result.node_def.append(text_format.Parse(node, NodeDef()))
    for output, tensor in ret.items():
        result.ret[output] = tensor
    for node in control_ret:
        result.signature.control_output.append(node)
        result.control_ret[node] = node
    return result


def call(
    name: str, function: str, *inputs: str, types=("float32",), out=("float32",), **attrs
) -> Node:
    node = Node(name, "StatefulPartitionedCall", tuple(inputs))
    node = node.with_attrs(Tin=[*map(DType, types)], Tout=[*map(DType, out)])
    f = AttrValue()
    f.func.name = function
    for key, value in attrs.items():
        f.func.attr[key].CopyFrom(Node("", "").with_attrs(a=value).attrs["a"])
    return node.with_attrs(f=f)


def graph_of(*nodes: Node, functions=(), outputs=()) -> Graph:
    x = Node("x", "Placeholder").with_attrs(dtype=DType("float32"), shape=(4, 6))
    library = FunctionDefLibrary(function=functions)
    return Graph([x, *nodes], ["x"], outputs, library=library)


FLOAT = "input_arg { name: 'a' type: DT_FLOAT } output_arg { name: 'r' type: DT_FLOAT }"
T = "attr { key: 'T' value { type: DT_FLOAT } }"
LIST = """
    input_arg { name: 'xs' type_attr: 'T' number_attr: 'N' }
    input_arg { name: 'y' type_attr: 'T' }
    output_arg { name: 'all' type_attr: 'T' number_attr: 'N' }
    output_arg { name: 'sum' type_attr: 'T' }
    attr { name: 'N' type: 'int' } attr { name: 'T' type: 'type' default_value { type: DT_FLOAT } }
"""
PLACEHOLDERS = """
    attr { key: 'T' value { placeholder: 'T' } } attr { key: 'N' value { placeholder: 'N' } }
"""


def test_lists_and_attributes_that_the_caller_gives():
    """`xs` and `node:output` are lists, `xs:1` is one; N and T come from the call or a default."""
    two = "value { list { type: DT_FLOAT type: DT_FLOAT } }"
    both = f"name: 'n' op: 'IdentityN' input: 'xs' attr {{ key: 'T' {two} }}"
    total = f"name: 's' op: 'AddN' input: 'xs' {PLACEHOLDERS}"
    difference = "name: 'd' op: 'Sub' input: 's:sum:0' input: 'y' " + (
        "attr { key: 'T' value { placeholder: 'T' } }"
    )
    inner = func("inner", LIST, [both, total, difference], {"all": "n:output", "sum": "d:z:0"})
    types = "value { list { type: DT_FLOAT type: DT_FLOAT type: DT_FLOAT } }"
    nested = (
        "name: 'c' op: 'PartitionedCall' input: 'xs:1' input: 'xs:0' input: 'y' "
        f"attr {{ key: 'f' value {{ func {{ name: 'inner' {PLACEHOLDERS} }} }} }} "
        f"attr {{ key: 'Tin' {types} }} attr {{ key: 'Tout' {types} }}"
    )
    outer = func("outer", LIST, [both, nested], {"all": "n:output", "sum": "c:output:2"})
    y = Node("y", "Neg", ("x",)).with_attrs(T=DType("float32"))
    z = Node.constant("z", random(4, 6, seed=9))
    three = ["float32"] * 3
    c = call("c", "outer", "x", "y", "z", types=three, out=three, N=2, T=DType("float32"))
    d = call("d", "inner", "x", "y", "z", types=three, out=three, N=2)
    graph = graph_of(y, z, c, d, functions=[inner, outer], outputs=["c", "c:1", "c:2", "d:1"])
    result = transform(graph, "inline_functions remove_unused_functions")
    assert result["c/c/s"].inputs == ("y", "x")
    assert result["c/c/s"].attr("N") == 2
    assert result["c"].inputs == ("c/n", "c/n:1", "c/c/d")
    assert result["d"].inputs == ("d/n", "d/n:1", "d/d")
    x = X["x"]  # TensorFlow itself cannot import a function with open types
    for value, expected in zip(run(result, X), (x, -x, -z.value, -x), strict=True):
        np.testing.assert_array_equal(value, expected)


def test_a_call_that_is_fetched_keeps_its_name_and_ports():
    neg = func("neg", FLOAT, [f"name: 'n' op: 'Neg' input: 'a' {T}"], {"r": "n:y:0"})
    reader = Node("after", "Neg", ("c",)).with_attrs(T=DType("float32"))
    graph = graph_of(call("c", "neg", "x"), reader, functions=[neg], outputs=["c", "after"])
    result = transform(graph, "inline_functions")
    assert str(result["c"]) == "c = Identity(c/n) {T=float32}"
    assert result["after"].inputs == ("c/n",)
    assert error(graph, result, X) == 0


def test_names_devices_colocations():
    near = "attr { key: '_class' value { list { s: 'loc:@m' s: 'loc:@a' } } }"
    body = [
        f"name: 'n' op: 'Neg' input: 'a' {T} {near}",
        f"name: 'm' op: 'Neg' input: 'n:y:0' device: '/gpu:0' {T}",
    ]
    taken = Node("c/n", "Neg", ("x",)).with_attrs(T=DType("float32"))
    last = Node("out", "Sub", ("c", "c/n")).with_attrs(T=DType("float32"))
    node = call("c", "f", "x")
    object.__setattr__(node, "device", "/cpu:0")
    f = func("f", FLOAT, body, {"r": "m:y:0"})
    graph = graph_of(taken, node, last, functions=[f], outputs=["out"])
    result = transform(graph, "inline_functions")
    assert result["out"].inputs == ("c_1/m", "c/n")
    assert (result["c_1/n"].device, result["c_1/m"].device) == ("/cpu:0", "/gpu:0")
    assert result["c_1/n"].attr("_class") == ["loc:@c_1/m"]


# ------------------------------------------------------------------ what waits for what


HANDLE = "input_arg { name: 'v' type: DT_RESOURCE } input_arg { name: 'a' type: DT_FLOAT }"
DTYPE = "attr { key: 'dtype' value { type: DT_FLOAT } }"
ASSIGN = f"name: 'assign' op: 'AssignVariableOp' input: 'v' input: 'a' {DTYPE}"
READ = f"name: 'read' op: 'ReadVariableOp' input: 'v' {DTYPE}"
RESULT = "output_arg { name: 'r' type: DT_FLOAT }"


def stateful(*nodes: Node) -> Graph:
    variable = Node("v", "VarHandleOp").with_attrs(dtype=DType("float32"), shape=(4, 6))
    read = Node("out", "ReadVariableOp", ("v",)).with_attrs(dtype=DType("float32"))
    keep = func("keep", f"{HANDLE} {RESULT}", [ASSIGN], {"r": "a"}, ["assign"])
    silent = func("silent", HANDLE, [ASSIGN], {}, ["assign"])
    given = "attr { key: 'Tin' value { list { type: DT_RESOURCE type: DT_FLOAT } } }"
    outer = func(
        "outer", HANDLE,
        ["name: 'c' op: 'StatefulPartitionedCall' input: 'v' input: 'a' "
         f"attr {{ key: 'f' value {{ func {{ name: 'silent' }} }} }} {given} "
         "attr { key: 'Tout' value { list { } } }"],
        {}, ["c"],
    )  # fmt: skip
    get = func("get", f"{HANDLE} {RESULT}", [READ], {"r": "read:value:0"})
    nodes = [read if node.name == "out" and node.op == "NoOp" else node for node in nodes]
    graph = graph_of(variable, read, functions=[keep, silent, outer, get], outputs=["out"])
    for node in nodes:
        if node.name == "out":
            graph.replace(graph["out"], node)
        else:
            graph.add(node)
    return graph


def read_after(*control_inputs: str) -> Node:
    read = Node("out", "ReadVariableOp", ("v", *control_inputs))
    return read.with_attrs(dtype=DType("float32"))


def of_handle(name: str, function: str, *inputs: str, out=()) -> Node:
    return call(name, function, *inputs, types=("resource", "float32"), out=out)


ASSIGN_X = Node("set", "AssignVariableOp", ("v", "x")).with_attrs(dtype=DType("float32"))
ORDERS = {
    "what waits for the call waits for its effect": (
        of_handle("c", "silent", "v", "x"), read_after("^c")),
    "also for that of a call inside": (of_handle("c", "outer", "v", "x"), read_after("^c")),
    "who reads a result comes after the effect beside it": (
        of_handle("c", "keep", "v", "x", out=["float32"]),
        Node("i", "Identity", ("c",)).with_attrs(T=DType("float32")), read_after("^i")),
    "the body waits for what the call waits for": (
        ASSIGN_X, of_handle("c", "get", "v", "x", "^set", out=["float32"]),
        Node("out", "Identity", ("c",)).with_attrs(T=DType("float32"))),
    "through several": (
        ASSIGN_X, Node("a", "NoOp", ("^set",)), Node("b", "NoOp", ("^set",)),
        of_handle("c", "get", "v", "x", "^a", "^b", out=["float32"]),
        Node("out", "Identity", ("c",)).with_attrs(T=DType("float32"))),
}  # fmt: skip


@pytest.mark.parametrize("case", ORDERS, ids=str)
def test_effects_keep_their_order(case):
    graph = stateful(*ORDERS[case])
    np.testing.assert_array_equal(run(graph, X)[0], X["x"])
    result = transform(graph, "inline_functions")
    assert not calls(result)
    np.testing.assert_array_equal(run(result, X)[0], X["x"])


def test_a_constant_of_a_body_waits_for_nothing():
    node = "name: 'k' op: 'Const' attr { key: 'dtype' value { type: DT_FLOAT } } " + (
        "attr { key: 'value' value { tensor { dtype: DT_FLOAT tensor_shape { } float_val: 2 } } }"
    )
    mul = f"name: 'm' op: 'Mul' input: 'a' input: 'k:output:0' {T}"
    f = func("f", FLOAT, [node, mul], {"r": "m:z:0"})
    first = Node("first", "Neg", ("x",)).with_attrs(T=DType("float32"))
    last = Node("out", "Neg", ("c",)).with_attrs(T=DType("float32"))
    graph = graph_of(first, call("c", "f", "x", "^first"), last, functions=[f], outputs=["out"])
    result = transform(graph, "inline_functions")
    assert result["c/k"].inputs == ()
    assert result["c/m"].inputs == ("x", "c/k", "^first")


# ------------------------------------------------------------------ refused, or left alone


def calling(*names: str) -> list[str]:
    """Return NodeDefs that call functions one after the other."""
    nodes, tensor = [], "a"
    for number, name in enumerate(names):
        types = "value { list { type: DT_FLOAT } }"
        nodes.append(
            f"name: 'c{number}' op: 'PartitionedCall' input: '{tensor}' "
            f"attr {{ key: 'f' value {{ func {{ name: '{name}' }} }} }} "
            f"attr {{ key: 'Tin' {types} }} attr {{ key: 'Tout' {types} }}"
        )
        tensor = f"c{number}:output:0"
    return nodes


def test_doubling_functions_are_refused_at_once():
    functions = [func("f0", FLOAT, [f"name: 'n' op: 'Neg' input: 'a' {T}"], {"r": "n:y:0"})]
    for level in range(1, 60):
        name = f"f{level - 1}"
        functions.append(func(f"f{level}", FLOAT, calling(name, name), {"r": "c1:output:0"}))
    graph = graph_of(call("c", "f59", "x"), functions=functions, outputs=["c"])
    with pytest.raises(GraphError, match=says("inlined-too-large", function="f59")):
        transform(graph, "inline_functions")


def test_a_long_chain_of_functions():
    functions = [func("f0", FLOAT, [f"name: 'n' op: 'Neg' input: 'a' {T}"], {"r": "n:y:0"})]
    for level in range(1, 1000):
        functions.append(func(f"f{level}", FLOAT, calling(f"f{level - 1}"), {"r": "c0:output:0"}))
    graph = graph_of(call("c", "f999", "x"), functions=functions, outputs=["c"])
    assert ops(transform(graph, "inline_functions")) == {"Placeholder": 1, "Neg": 1, "Identity": 1}


def test_many_calls_and_a_large_body():
    f = func("f", FLOAT, [f"name: 'n' op: 'Neg' input: 'a' {T}"], {"r": "n:y:0"})
    nodes, last = [], "x"
    for number in range(5_000):
        nodes.append(call(f"c{number}", "f", last))
        last = f"c{number}"
    total = Node("sum", "AddN", tuple(n.name for n in nodes)).with_attrs(
        N=5_000, T=DType("float32")
    )
    graph = graph_of(*nodes, total, functions=[f], outputs=["sum"])
    result = transform(graph, "inline_functions")
    assert ops(result) == {"Placeholder": 1, "Neg": 5_000, "AddN": 1}


NEEDY = "name: 'n' op: 'Neg' input: 'a' attr { key: 'T' value { placeholder: 'S' } }"
REFUSED = {
    "unknown function": (
        [func("halve", FLOAT, calling("haLve"), {"r": "c0:output:0"})], "halve",
        says("missing", name="haLve", hint=because("did-you-mean", names="halve"))),
    "itself": (
        [func("f", FLOAT, calling("f"), {"r": "c0:output:0"})], "f",
        says("function-recursive-inline", calls="'f' -> 'f'")),
    "each other": (
        [func("g", FLOAT, calling("h"), {"r": "c0:output:0"}),
         func("h", FLOAT, calling("i"), {"r": "c0:output:0"}),
         func("i", FLOAT, calling("h"), {"r": "c0:output:0"})], "g",
        says("function-recursive-inline", calls="'h' -> 'i' -> 'h'")),
    "no such output": (
        [func("f", FLOAT, [f"name: 'n' op: 'Neg' input: 'a' {T}"], {"r": "n:z:0"})], "f",
        says("function-input-missing", function="f", node="r", input="n:z:0")),
    "no such node": (
        [func("f", FLOAT, [f"name: 'n' op: 'Neg' input: 'b' {T}"], {"r": "n:y:0"})], "f",
        says("function-input-missing", function="f", node="n", input="b")),
    "an attribute not given": ([func("f", FLOAT, [NEEDY], {"r": "n:y:0"})], "f",
        says("function-attribute-missing", function="f", node="n", attribute="S")),
    "two arguments": ([func("f", f"input_arg {{ name: 'b' type: DT_FLOAT }} {FLOAT}", [],
        {"r": "b"})], "f",
        says("call-inputs-count", node="c", count=1, expected=2)),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_refused(case):
    functions, called, message = REFUSED[case]
    graph = graph_of(call("c", called, "x"), functions=functions, outputs=["c"])
    with pytest.raises(GraphError, match=message):
        transform(graph, "inline_functions")


def test_attributes_that_double_are_refused():
    pair = "attr { name: 'T' type: 'func' }"
    twice = (
        "attr { key: 'p' value { placeholder: 'T' } } attr { key: 'q' value { placeholder: 'T' } }"
    )
    functions = [
        func("f0", f"{FLOAT} {pair}", [f"name: 'n' op: 'Neg' input: 'a' {T}"], {"r": "n:y:0"})
    ]
    for level in range(1, 60):
        (node,) = calling(f"f{level - 1}")
        given = f"attr {{ key: 'T' value {{ func {{ name: 'f' {twice} }} }} }}"
        node = node.replace(f"name: 'f{level - 1}'", f"name: 'f{level - 1}' {given}")
        functions.append(func(f"f{level}", f"{FLOAT} {pair}", [node], {"r": "c0:output:0"}))
    graph = graph_of(call("c", "f59", "x", T="text"), functions=functions, outputs=["c"])
    with raises(GraphError, "attribute-grows"):
        transform(graph, "inline_functions")


F = func("f", FLOAT, [f"name: 'n' op: 'Neg' input: 'a' {T}"], {"r": "n:y:0"})
CUSTOM = func("g", FLOAT, ["name: 'n' op: 'MyOwnOp' input: 'a'"], {"r": "n:y:0"})


@pytest.mark.parametrize(
    ("function", "fed", "reason"),
    [
        (F, ["c"], skipped("c", "call-fed")),
        (CUSTOM, [], skipped("c", "function-op-unknown", function="g", op="MyOwnOp")),
    ],
)
def test_left_alone(function, fed, reason):
    last = Node("out", "Neg", ("c",)).with_attrs(T=DType("float32"))
    node = call("c", function.signature.name, "x")
    graph = graph_of(node, last, functions=[function], outputs=["out"])
    graph.inputs = ("x", *fed)
    before = str(graph)
    from deploykit.transforms.inline_functions import inline_functions

    inline_functions(graph)
    assert str(graph) == before
    assert graph.skipped == [reason]


GRAPHS = [
    *(Example("inline_functions", lambda make=make: build(make, ["x"], ["p"])) for make in MADE),
    Example("inline_functions", lambda: build(unused, ["x"], ["q"])),
]
