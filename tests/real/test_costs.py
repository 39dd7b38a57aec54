"""Shapes and floating-point operations of whole networks, against TensorFlow's own count."""

import pytest

import deploykit
from deploykit.benchmarking.profiling.execution import flops
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.runtime.child_process import call
from deploykit.transforms.shapes.static_shapes import Shapes
from tests import pairwise
from tests.real.keras_nets import save
from tests.support import flops_in_tensorflow, tf

pytestmark = pytest.mark.sampled

COUNTED = ("Conv2D", "DepthwiseConv2dNative", "MatMul")  # what TensorFlow's profiler knows


def known_to_be_open(graph: Graph) -> None:
    """Check that each size that is open to TensorFlow is, and no other."""
    with tf.Graph().as_default() as whole:
        tf.import_graph_def(graph.to_graph_def(), name="")
    shapes = Shapes(graph)
    for operation in whole.get_operations():
        for tensor in operation.outputs[:1]:
            sizes = tuple(-1 if size is None else size for size in tensor.shape)
            assert shapes.shape(operation.name) == sizes, operation.name


def same_as_tensorflow(graph: Graph) -> int:
    """Compare every shape and the operations of each op at batch 1; return the operations.

    Sizes that an input leaves open are 224.
    """
    known_to_be_open(graph)
    for name in graph.inputs:
        shape = (1, *(224 if s < 0 else s for s in graph[name].attr("shape")[1:]))
        graph.replace(graph[name], graph[name].with_attrs(shape=shape))
    with tf.Graph().as_default() as whole:
        tf.import_graph_def(graph.to_graph_def(), name="")
    shapes, counted = Shapes(graph), flops(graph, Shapes(graph))
    for node in whole.as_graph_def().node:
        (shape,) = (t.shape for t in whole.get_operation_by_name(node.name).outputs[:1])
        found = shapes.full_shape(node.name)
        assert found is not None, node.name
        assert shape.is_compatible_with(found), node.name
    assert counted["unknown"] == 0
    theirs = flops_in_tensorflow(whole)
    assert counted["by_op"] == {op: theirs[op] for op in COUNTED if theirs.get(op)}
    return counted["total"]


def test_efficientnet_lite0(efficientnet_lite0):
    graph = deploykit.freeze(efficientnet_lite0 / "frozen.pb")
    assert same_as_tensorflow(graph) == 770_375_104


NETS = {  # 10^9 operations; published: half as many multiply-adds
    "MobileNetV2": 0.60,
    "MobileNetV3Small": 0.113,
    "ResNet50": 7.75,
    "InceptionV3": 11.45,
    "EfficientNetB0": 0.78,
}


@pytest.mark.parametrize("name", pairwise.drawn(__name__, [*NETS], 1))
def test_keras_networks(name, tmp_path):
    path = tmp_path / f"{name}.keras"
    call(f"{save.__module__}:save", name, str(path))
    total = same_as_tensorflow(deploykit.freeze(path))
    assert total / 1e9 == pytest.approx(NETS[name], rel=0.02)
