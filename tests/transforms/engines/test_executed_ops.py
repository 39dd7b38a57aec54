"""What OpenVINO executes is told by the nodes of the graph: each layer once, with its precision."""

import pytest

from deploykit.transforms.engines import openvino_model
from deploykit.transforms.engines.executed_ops import Executed, NodeNames
from deploykit.transforms.engines.openvino_model import Compiling, OpenVinoModel
from deploykit.transforms.int8.plan import OPS
from deploykit.transforms.ir.graph import Graph
from tests.support import random, transform
from tests.transforms.int8_nets import C, calibrated, feeds_of, image, layer, relu
from tests.transforms.test_quantize_static import (
    gelu,
    inception,
    net,
    net_with_two_readers,
    residual,
    two_products,
)


def compiled(graph: Graph, **compiling) -> OpenVinoModel:
    content = b"".join(graph.serialized())
    return OpenVinoModel(content, {"x": "x"}, graph.outputs, Compiling(threads=1, **compiling))


def equal_branches() -> Graph:
    """Return layers that nothing but their weights tells apart, the later one first in the sum."""

    def make():
        x = image()
        one, two = (
            relu(layer("conv", x, name, weights=random(3, 3, C, C, seed=seed)))
            for seed, name in enumerate(("one", "two"))
        )
        layer("depthwise", two + one, "out")

    return net(make, outputs=("out/biased",))


NETS = [residual, inception, equal_branches, lambda: two_products(gelu()), net_with_two_readers]


@pytest.mark.parametrize("make", NETS)
@pytest.mark.parametrize("in_codes", [False, True])
def test_each_layer_is_told_once(make, in_codes, tmp_path):
    graph = make()
    layers = {node.name for node in graph if node.op in OPS}
    if in_codes:
        path = calibrated(graph, tmp_path)
        graph = transform(graph, f'quantize_codes(ranges="{path}", isa=vnni)')
    found = compiled(graph).executed()
    told = [each for each in found if each.layer]
    assert sorted(each.layer for each in told) == sorted(layers)
    assert {each.precision for each in told} == ({"u8"} if in_codes else {"f32"})
    assert all(each.nanoseconds is None for each in found)
    assert all(each.nodes[0] == each.layer for each in told)


def test_layers_come_in_the_order_of_execution():
    model = compiled(inception())
    found = [each.layer for each in model.executed() if each.layer]
    assert found[0] == "first"
    assert found[-1] == "dense"


@pytest.mark.parametrize("make", NETS[:3])
def test_convolutions_have_the_names_of_their_nodes(make, tmp_path):
    """Codes keep their names in OpenVINO's model, so they tell whose weights they are."""
    path = calibrated(graph := make(), tmp_path)
    codes = transform(graph, f'quantize_codes(ranges="{path}", isa=vnni)')
    content = b"".join(codes.serialized())
    model = openvino_model.read(content, codes.outputs, NodeNames(codes.to_graph_def().node))
    found = [op for op in model.get_ops() if "Convolution" in op.get_type_name()]
    assert len(found) >= 3
    for op in found:
        assert f"{op.friendly_name}/weights:0" in names_above(op.input_value(1).get_node())


def names_above(node) -> set[str]:
    """Return the names of the tensors that a tensor is made of."""
    waiting, names = [node], set()
    while waiting:
        node = waiting.pop()
        names |= {name for out in node.outputs() for name in out.get_names()}
        waiting += [each.get_source_output().get_node() for each in node.inputs()]
    return names


def test_profiled_calls_have_times():
    graph = inception()
    model = compiled(graph, profiles=True)
    assert all(each.nanoseconds is None for each in model.executed())
    model.run(feeds_of(graph, 2))
    times = [each.nanoseconds for each in model.executed() if each.layer]
    assert all(time is not None for time in times)
    assert sum(times) > 0


def test_a_graph_without_layers_is_told_too():
    def make():
        relu(image(), "out")

    found = compiled(net(make)).executed()
    assert any(isinstance(each, Executed) and each.kind == "Eltwise" for each in found)
    assert not any(each.layer for each in found)
