"""Effects in branches, loops and functions run after inlining if and only if they ran before."""

import itertools

import numpy as np
import pytest

from deploykit.pipelines.transform import OPTIMIZE
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.functions import Library
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.ops import acts
from deploykit.transforms.ir.protos import AttrValue
from deploykit.transforms.ir.tensors import DType
from tests import pairwise
from tests.support import built, run, tf, transform


def old_branch(tf, c, x, inner):
    return tf.compat.v1.cond(c, lambda: inner(x), lambda: x + 1.0)


def old_loop(tf, c, x, inner):
    below = lambda i, _: i < tf.cast(c, tf.int32)  # noqa: E731
    return tf.compat.v1.while_loop(below, lambda i, t: (i + 1, inner(t)), [0, x])[1]


def old_condition(tf, c, x, inner):
    """The effect is in the condition of a loop, which runs once more than its body."""

    def below(i, t):
        inner(t)
        return i < tf.cast(c, tf.int32)

    return tf.compat.v1.while_loop(below, lambda i, t: (i + 1, t), [0, x])[1]


def branch(tf, c, x, inner):
    tf.compat.v1.enable_control_flow_v2()
    return tf.cond(c, lambda: inner(x), lambda: x + 1.0)


def case(tf, c, x, inner):
    return tf.switch_case(tf.cast(c, tf.int32), [lambda: x + 1.0, lambda: inner(x)])


def loop(tf, c, x, inner):
    tf.compat.v1.enable_control_flow_v2()
    below = lambda i, _: i < tf.cast(c, tf.int32)  # noqa: E731
    return tf.while_loop(below, lambda i, t: (i + 1, inner(t)), [0, x])[1]


def function(tf, c, x, inner):
    return tf.function(lambda x: inner(x), autograph=False)(x)


def without_control_results(tf, c, x, inner):
    """TensorFlow runs of such a function what its results need, and no more."""
    types = [tf.TensorSpec([], tf.bool), tf.TensorSpec([], tf.float32)]
    return tf.compat.v1.wrap_function(lambda c, x: inner(x, c), types)(c, x)


def direct(tf, c, x, inner):
    """The function's name is the op of the call. TensorFlow runs all stateful nodes."""
    from tensorflow.python.framework.function import Defun

    def direct(c, x):
        return inner(x, c)

    result = Defun(tf.bool, tf.float32)(direct)(c, x)
    result.set_shape([])
    return result


OLD = [old_branch, old_loop, old_condition]
FUNCTIONS = [function, without_control_results, direct]
ALL = [*OLD, branch, case, loop, *FUNCTIONS]


def asserts(tf, x):
    tf.raw_ops.Assert(condition=tf.less(x, 0.0), data=[x])


def prints(tf, x):
    tf.raw_ops.PrintV2(input=tf.constant("printed"))


@built(["c", "x"], ["out"])
def nested(chain, effect):
    """Return a graph with an effect inside constructs, outermost first."""
    v1 = tf.compat.v1

    def inner(level, c, x):
        if level == len(chain):
            effect(tf, x)
            return x * 2.0
        if chain[level] in OLD:
            v1.disable_control_flow_v2()
        try:
            return chain[level](tf, c, x, lambda x, c=c: inner(level + 1, c, x))
        finally:
            v1.enable_control_flow_v2()

    c, x = v1.placeholder(tf.bool, [], name="c"), v1.placeholder(tf.float32, [], name="x")
    tf.identity(inner(0, c, x), name="out")


def outcomes(graph: Graph, capfd) -> list[tuple[object, int]]:
    """Return for each condition the output, or None for an error, and the number of prints."""
    found: list[tuple[object, int]] = []
    capfd.readouterr()
    for taken in (True, False):
        try:
            value = float(run(graph, {"c": np.array(taken), "x": np.float32(1)})[0])
        except GraphError:
            value = None
        found.append((value, capfd.readouterr().err.count("printed")))
    return found


def with_control_results(graph: Graph) -> Graph:
    """Return the graph with direct calls as StatefulPartitionedCall of functions that name effects.

    Then also what lies below a Switch is a control result.
    """
    result = graph.copy()
    for function in result.library.function:
        for node in function.node_def:
            if function.signature.name.startswith("direct") and acts(node.op):
                function.signature.control_output.append(node.name)
                function.control_ret[node.name] = node.name
    library = Library(result)
    for node in result:
        callee = library.callee(node)
        if callee is not None and callee.is_direct:
            f = AttrValue()
            f.func.name = callee.name
            call = Node(node.name, "StatefulPartitionedCall", node.inputs)
            types = {"Tin": [DType("bool"), DType("float32")], "Tout": [DType("float32")]}
            result.replace(node, call.with_attrs(f=f, **types))
    return result


def check(chain, effect, capfd, around=lambda graph: graph) -> None:
    graph = around(nested(chain, effect))
    expected = outcomes(graph, capfd)
    for text in ("inline_functions", OPTIMIZE):
        result = transform(graph, text)
        assert not any(Library(result).callee(node) for node in result), text
        assert outcomes(result, capfd) == expected, text


def id_of(chain) -> str:
    return "-".join(construct.__name__ for construct in chain)


QUICK = [
    *((each,) for each in FUNCTIONS),
    *((direct, each) for each in (*OLD, branch, case, loop)),
    *((each, direct) for each in (old_branch, old_loop, function)),
    (function, branch), (function, direct, branch), (old_loop, direct, old_branch),
]  # fmt: skip
CHAINS = [
    each
    for depth, step in ((1, 1), (2, 1), (3, 11))
    for each in list(itertools.product(ALL, repeat=depth))[::step]
    if each not in QUICK and not set(FUNCTIONS).isdisjoint(each)
]


@pytest.mark.parametrize("chain", QUICK, ids=id_of)
def test_assertions_fire_where_they_fired(chain, capfd):
    check(chain, asserts, capfd)


@pytest.mark.parametrize("inside", [(each,) for each in OLD], ids=id_of)
@pytest.mark.parametrize("effect", [asserts, prints])
def test_control_results_below_a_switch(inside, effect, capfd):
    check((direct, *inside), effect, capfd, with_control_results)


@pytest.mark.slow
@pytest.mark.parametrize("effect", [asserts, prints])
@pytest.mark.parametrize(
    "chain", pairwise.drawn(__name__, [(each,) for each in CHAINS], 20), ids=id_of
)
def test_all_effects_in_all_constructs(chain, effect, capfd):
    check(chain, effect, capfd)


def test_the_check_sees_an_effect_that_nothing_waits_for(monkeypatch, capfd):
    monkeypatch.setattr(Library, "has_effect", lambda *_: False)
    with pytest.raises(AssertionError):
        check((direct, old_branch), asserts, capfd)


@pytest.mark.parametrize("each", [branch, case])
def test_a_branch_that_becomes_a_call_keeps_its_effects(each, capfd):
    """TensorFlow did not lower the If, so all stateful nodes of its branch ran."""
    graph = nested((direct, each), asserts)
    expected = [value for value, _ in outcomes(graph, capfd)]
    for taken, value in zip(("true", "false"), expected, strict=True):
        result = transform(graph, f"inline_functions pin_placeholder(name=c, value={taken})")
        try:
            assert float(run(result, {"x": np.float32(1)})[0]) == value
        except GraphError:
            assert value is None
