"""remove_unused_functions: what is reached through calls, branches, datasets; no more."""

import pytest

from deploykit.transforms.ir.functions import names_in
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.protos import AttrValue, FunctionDefLibrary
from deploykit.transforms.ir.tensors import DType
from tests.support import assert_golden, build, error, random, tf, transform
from tests.transforms.examples import Example

X = {"x": random(4, 6)}


def nested():
    """A call, an If and a While inside it, calls in those, and a dataset with a function."""
    x = tf.compat.v1.placeholder(tf.float32, [4, 6], name="x")

    @tf.function
    def double(a):
        return a * random(6)

    @tf.function
    def outer(a):
        a = tf.cond(tf.reduce_sum(a) > 0, lambda: double(a), lambda: a - 1.0)
        _, a = tf.while_loop(lambda i, _: i < 3, lambda i, t: (i + 1, double(t)), (0, a))
        return a

    tf.identity(outer(x), name="p")
    numbers = tf.data.Dataset.range(3).map(lambda n: n * 2)
    total = numbers.reduce(tf.constant(0, tf.int64), lambda a, b: a + b)
    tf.identity(total, name="total")
    tf.identity(tf.function(lambda a: a * 3.0)(x), name="unused")


def functions(graph: Graph) -> list[str]:
    """Return the names in the library, without the numbers that TensorFlow gives them."""
    return sorted(f.signature.name.rstrip("0123456789_") for f in graph.library.function)


@pytest.mark.golden("remove_unused_functions/nested")
def test_golden():
    """Of the functions alone, as the nodes stay."""
    graph = build(nested, ["x"], ["p", "total"])
    result = transform(graph, "remove_unused_functions")
    assert_golden(*("".join(f"{name}\n" for name in functions(g)) for g in (graph, result)))


def test_the_values_stay():
    graph = build(nested, ["x"], ["p", "total"])
    result = transform(graph, "remove_unused_functions")
    assert len(result.library.function) == len(graph.library.function) - 1
    assert error(graph, result, X) == 0
    only_p = build(nested, ["x"], ["p"])
    assert len(transform(only_p, "remove_unused_functions").library.function) < len(
        result.library.function
    )


def test_after_inlining_only_branches_and_loops_keep_functions():
    graph = build(nested, ["x"], ["p"])
    result = transform(graph, "inline_functions remove_unused_functions")
    assert "__inference_outer" in functions(graph)
    assert "__inference_outer" not in functions(result)
    assert error(graph, result, X) == 0


def library(*names: str) -> FunctionDefLibrary:
    result = FunctionDefLibrary()
    for name in names:
        result.function.add().signature.name = name
    return result


def test_gradients_go_with_their_functions():
    node = Node("out", "f", ("x",)).with_attrs(T=DType("float32"))
    x = Node("x", "Placeholder").with_attrs(dtype=DType("float32"))
    graph = Graph([x, node], ["x"], ["out"], library=library("f", "f_grad", "g", "g_grad", "own"))
    graph.library.gradient.add(function_name="f", gradient_func="f_grad")
    graph.library.gradient.add(function_name="g", gradient_func="g_grad")
    graph.library.registered_gradients.add(gradient_func="own", registered_op_type="Own")
    result = transform(graph, "remove_unused_functions").library
    assert [f.signature.name for f in result.function] == ["f", "f_grad"]
    assert [g.function_name for g in result.gradient] == ["f"]
    assert not result.registered_gradients


def test_functions_in_lists_and_in_attributes_of_functions():
    branches = AttrValue()
    branches.list.func.add(name="f")
    branches.list.func.add(name="g").attr["inner"].func.name = "h"
    x = Node("x", "Placeholder").with_attrs(dtype=DType("int32"))
    case = Node("out", "StatelessCase", ("x",)).with_attrs(branches=branches)
    graph = Graph([x, case], ["x"], ["out"], library=library("e", "f", "g", "h", "i", "j"))
    graph.library.function[3].attr["also"].func.name = "i"
    graph.library.function[4].node_def.add(name="n", op="i")  # it calls itself
    assert sorted(names_in(case.attrs.values())) == ["f", "g", "h"]
    result = transform(graph, "remove_unused_functions")
    assert [f.signature.name for f in result.library.function] == ["f", "g", "h", "i"]


@pytest.mark.parametrize("text", ["remove_unused_functions", "remove_unused_functions " * 2])
def test_a_graph_that_uses_all_stays(text):
    graph = transform(build(nested, ["x"], ["p", "total"]), "remove_unused_functions")
    result = transform(graph, text)
    assert str(result) == str(graph)
    assert result.library == graph.library
    assert not result.skipped


def test_a_long_chain_of_functions():
    names = [f"f{number}" for number in range(20_000)]
    graph = Graph([Node("out", "f0")], [], ["out"], library=library(*names, "unused"))
    for function, name in zip(graph.library.function, names[1:], strict=False):
        function.node_def.add(name="n", op=name)
    assert len(transform(graph, "remove_unused_functions").library.function) == 20_000


GRAPHS = [Example("remove_unused_functions", lambda: build(nested, ["x"], ["p"]))]
