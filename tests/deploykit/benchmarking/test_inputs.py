"""What a run is fed: sizes are known or asked for, batches differ, data are cut without remains."""

import numpy as np
import pytest

from deploykit.benchmarking.inputs import batches
from deploykit.cli.value_types import Value, shape
from deploykit.transforms.common.errors import Error, GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from tests.support import assert_golden, raises, refusal, shows


def graph(**inputs) -> Graph:
    """Return a graph of placeholders: a shape, or [type, shape]; None: an open size."""
    nodes = []
    for name, what in inputs.items():
        type_, shape = what if isinstance(what, list) else ("float32", what)
        node = Node(name, "Placeholder").with_attrs(dtype=DType(type_))
        if shape != "any":
            node = node.with_attrs(shape=tuple(-1 if s is None else s for s in shape))
        nodes.append(node)
    return Graph(nodes, list(inputs), [])


IMAGE = (None, 8, 6, 3)


def shapes(found):
    assert len({tuple(array.shape for array in arrays) for arrays in found}) == 1
    return [array.shape for array in found[0]]


@pytest.mark.parametrize(
    ("inputs", "batch", "given", "expected"),
    [
        ({"x": IMAGE}, None, {}, [(1, 8, 6, 3)]),
        ({"x": IMAGE}, 5, {}, [(5, 8, 6, 3)]),
        ({"x": (2, 4)}, None, {}, [(2, 4)]),
        ({"x": (2, 4)}, 2, {}, [(2, 4)]),
        ({"x": (None, 4), "y": (3, 2)}, None, {}, [(3, 4), (3, 2)]),  # y demands three
        ({"x": (None, 4), "sizes": ["int32", (2,)]}, 5, {}, [(5, 4), (2,)]),
        ({"x": (None, 4), "rate": ()}, 5, {}, [(5, 4), ()]),
        ({"x": (None, None, None, 3)}, None, {"x": (1, 9, 9, 3)}, [(1, 9, 9, 3)]),
        ({"x": (None, None, None, 3)}, None, {"x": (4, 9, 9, 3)}, [(4, 9, 9, 3)]),
        ({"x": (None, None, None, 3)}, 7, {"x": (1, 9, 9, 3)}, [(7, 9, 9, 3)]),
        ({"x": ["float32", "any"]}, None, {"x": (4, 9)}, [(4, 9)]),
        ({"x": ["float32", "any"]}, 2, {"x": (4, 9)}, [(2, 9)]),
        ({"x": ["float32", "any"]}, 2, {"x": ()}, [()]),
        ({"x": (None, None), "y": IMAGE}, None, {"x": (6, 9)}, [(6, 9), (6, 8, 6, 3)]),
        # As a comparison chooses them.
        ({"x": (None, None, None, 3)}, None, {}, [(1, 96, 96, 3)]),
        ({"x": (None, None, None, 3)}, 2, {}, [(2, 96, 96, 3)]),
        ({"x": (4, None)}, None, {}, [(4, 96)]),
        ({"x": ["float32", "any"]}, 4, {}, [()]),
    ],
)
def test_sizes(inputs, batch, given, expected):
    assert shapes(batches(graph(**inputs), batch, given)) == expected


def test_made_up_batches_differ_and_are_the_same_each_time():
    net = graph(x=IMAGE, ids=["int32", (None, 40)], flag=["bool", ()], keep=())
    found = batches(net, 3)
    assert len(found) == 4
    for a in range(4):
        for b in range(a):
            assert not np.array_equal(found[a][0], found[b][0])
            assert not np.array_equal(found[a][1], found[b][1])
            assert found[a][2] == found[b][2]  # else the batches would run different models
            assert found[a][3] == found[b][3]
    again, other = batches(net, 3), batches(net, 3, seed=1)
    assert all(np.array_equal(a, b) for a, b in zip(found[2], again[2], strict=True))
    assert not np.array_equal(found[2][0], other[2][0])
    assert [a.dtype.name for a in found[0]] == ["float32", "int32", "bool", "float32"]


def test_the_range_of_made_up_values():
    x = batches(graph(x=(None, 1000)), input_range=(2.0, 3.0))[0][0]
    assert 2.0 <= x.min() < 2.1
    assert 2.9 < x.max() <= 3.0


def test_a_graph_without_inputs_is_run_on_nothing():
    assert batches(Graph([Node.constant("c", np.ones(2))], [], ["c"])) == ((),)


REFUSED = [
    ({"x": ["resource", ()]}, 4, {}), ({"x": IMAGE}, None, {"y": (1,)}),
    ({"x": IMAGE}, None, {"x": (1, 9, 6, 3)}), ({"x": IMAGE}, None, {"x": (1, 8, 6)}),
    ({"x": (2, 4)}, 3, {}), ({"x": IMAGE}, 0, {}), ({"x": IMAGE}, -1, {}),
    ({"x": (None, None)}, None, {"x": (100000, 100000)}),
]  # fmt: skip


@pytest.mark.golden("refusals/benchmark_inputs")
def test_refusals():
    assert_golden(*(
        f"{inputs} {batch} {given}\n{refusal(batches, graph(**inputs), batch, given)}"
        for inputs, batch, given in REFUSED
    ))  # fmt: skip


def rows(count: int) -> np.ndarray:
    return np.arange(count * 2, dtype=np.float32).reshape(count, 2)


@pytest.mark.parametrize(
    ("count", "batch", "expected"),
    [
        (10, 4, [[0, 4], [4, 8]]),  # the short one is dropped
        (8, 4, [[0, 4], [4, 8]]),
        (3, 4, [[0, 3]]),  # it is all there is
        (4, 4, [[0, 4]]),
        (3, None, [[0, 1], [1, 2], [2, 3]]),
        (99, 2, [[n, n + 2] for n in range(0, 32, 2)]),  # sixteen of them
    ],
)
def test_batches_of_data(count, batch, expected):
    found = batches(graph(x=(None, 2)), batch, data={"x": rows(count)})
    assert len(found) == len(expected)
    for (x,), (start, end) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x, rows(count)[start:end])


def test_data_in_the_order_of_the_inputs():
    net = graph(b=(2, 2), a=["string", (None,)], rate=())
    data = {"a": np.array(["u", "v", "w", "x"]), "b": rows(4), "rate": np.float32(0.5)}
    found = batches(net, data=data)
    assert len(found) == 2  # b demands two at once
    np.testing.assert_array_equal(found[1][0], rows(4)[2:])
    assert list(found[1][1]) == ["w", "x"]
    assert found[1][2] == 0.5


UNFIT = [
    (None, {"y": rows(3), "z": rows(3)}, {}), (None, {"x": rows(0)}, {}),
    (None, {"x": rows(3)}, {"x": (1, 2)}), (None, {"x": np.ones((3, 5), np.float32)}, {}),
    (-4, {"x": rows(3)}, {}),
]  # fmt: skip


@pytest.mark.golden("refusals/benchmark_data")
def test_data_that_do_not_fit():
    assert_golden(*(
        refusal(batches, graph(x=(None, 2)), batch, given, data) for batch, data, given in UNFIT
    ))  # fmt: skip


@pytest.mark.parametrize(("count", "batch"), [(1, None), (8, 4)])
def test_data_for_a_batch_that_the_graph_demands(count, batch):
    with pytest.raises(GraphError) as error:
        batches(graph(x=(2, 2)), batch, data={"x": rows(count)})
    assert shows(error.value, "batch-fixed", fixed=2)


def test_the_option():
    def parsed(text):
        return Value("SHAPE", shape).convert(text, None, None)

    assert parsed("x=1,224,224,3") == ("x", (1, 224, 224, 3))
    assert parsed("net/x:0=8") == ("net/x", (8,))
    assert parsed("x:1=8") == ("x:1", (8,))
    assert parsed("keep=") == ("keep", ())
    for wrong in ("x", "=1,2", "1,2", "x=a", "x=1,,2", "x=0", "x=1,-1", "x=1,?,3", "x=1.5"):
        with raises(Error, "option-value", got=wrong):
            parsed(wrong)
