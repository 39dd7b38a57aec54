"""The kernel gets zeros between its weights; the check sees one that is only as large."""

import pytest

from deploykit.transforms.ir.node import Node
from tests.support import because, error, ops, random, shows, transform
from tests.transforms.examples import Example
from tests.transforms.test_fuse_dilations import BAR, PADDINGS, conv1d, feeds, left_alone, net

NAME = "flatten_atrous_conv"


@pytest.mark.parametrize(("around", "padding"), PADDINGS)
@pytest.mark.parametrize("kind", ["conv2d", "depthwise"])
def test_flattens(kind, around, padding):
    graph = net(kind, **around)
    if kind == "depthwise" and "EXPLICIT" in (padding, around.get("padding")):
        assert shows(left_alone(graph, NAME)[0], "padding-unsupported")
        return
    result = transform(graph, NAME)
    assert ops(result) == {"Placeholder": 1, "Const": 1, graph["layer"].op: 1, "Relu": 1}
    assert result["merge"].attr("padding") == padding
    assert result["merge"].attr("dilations") == graph["layer"].attr("dilations")
    assert error(graph, result, feeds(graph)) <= BAR
    assert str(transform(result, NAME)) == str(result)


def test_conv3d():
    graph = net("conv3d", (2, 1, 2), ((2, 2),) * 3, ((0, 0),) * 3, padding="VALID")
    assert shows(left_alone(graph, NAME)[0], "padding-unsupported")
    graph = net("conv3d", (2, 1, 2), ((2, 2), (1, 1), (2, 2)), ((0, 0),) * 3, padding="VALID")
    result = transform(graph, NAME)
    assert result["weights"].shape == (5, 3, 5, 3, 4)
    assert error(graph, result, feeds(graph)) <= BAR


def test_conv1d():
    graph = conv1d()
    result = transform(graph, NAME)
    assert "SpaceToBatchND" not in ops(result)
    assert error(graph, result, feeds(graph)) <= BAR


def test_weights_that_are_computed_are_left_alone():
    graph = net()
    graph.add(Node("twice", "AddV2", ("weights", "weights")).with_attrs(T=graph["x"].attr("dtype")))
    layer = graph["layer"]
    graph.replace(layer, layer.with_data_inputs("split", "twice"))
    assert left_alone(graph, NAME) == [because("weights-not-folded")]
    after = transform(graph, f"fold_constants {NAME}")
    assert error(graph, after, {"x": random(2, 9, 7, 3)}) <= BAR


def test_shared_weights_get_a_copy_of_their_own():
    graph = net()
    graph.add(Node("shape", "Shape", ("weights",)).with_attrs(T=graph["weights"].attr("dtype")))
    graph.outputs = ("out", "shape")
    result = transform(graph, NAME)
    assert result["weights"].shape == (3, 3, 3, 4)
    assert result["merge"].inputs == ("x", "layer/weights")
    assert error(graph, result, feeds(graph)) <= BAR


GRAPHS = [
    Example(NAME, net, BAR),
    Example(NAME, lambda: net("depthwise"), BAR, golden="depthwise"),
    Example(NAME, conv1d, BAR),
]
