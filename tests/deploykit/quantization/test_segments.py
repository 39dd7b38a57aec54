"""Each node that leads to a layer runs in one segment, and what later ones read is stored."""

import pytest

from deploykit.quantization.rounding_session import segments
from deploykit.transforms.ir.node import normal, producer_name
from tests.deploykit.quantization.test_calibrated_graph import FORMS, residual_net
from tests.support import building, random, tf
from tests.transforms.int8_nets import C, image, layer, relu


@pytest.mark.parametrize("forms", [FORMS[:1], FORMS[::3]], ids=["one", "many"])
def test_every_segment_can_run_on_what_is_stored(forms):
    graph = residual_net(forms)
    layers = [name for name in graph.order() if graph[name].op == "Conv2D"]
    found = segments(graph, layers)
    assert found is not None
    stored, ran, seen = set(graph.inputs), set(), set()
    for number, segment in enumerate(found):
        waiting = [segment.source, *segment.stored]
        own = set()
        while waiting:
            tensor = waiting.pop()
            name = producer_name(tensor)
            if tensor in stored or name in own:
                continue
            node = graph[name]
            if graph.descendants(graph.inputs).isdisjoint({name}):
                continue  # a constant
            assert name not in ran, f"{name} runs twice"
            own.add(name)
            waiting += map(normal, node.data_inputs)
        ran |= own
        stored |= set(segment.stored)
        stored -= set(segment.dropped)
        assert segment.source == normal(graph[layers[number]].data_inputs[0])
        assert set(segment.layers) == {layers.index(name) for name in own & set(layers)}
        seen |= set(segment.layers)
        assert number not in seen  # it is rounded before it runs
    assert stored <= set(graph.inputs) | set(found[-1].stored)


def test_control_flow_of_tensorflow_1_is_not_cut():
    with building(["x"], ["out/biased"]) as graph:
        tf.compat.v1.disable_control_flow_v2()
        y = relu(layer("conv", image(), "stem"))
        y = tf.compat.v1.while_loop(
            lambda i, _: i < 2, lambda i, y: (i + 1, y + 1.0), (tf.constant(0), y)
        )[1]
        layer("conv", y, "out", weights=random(1, 1, C, 3))
    assert segments(graph, ["stem", "out"]) is None
