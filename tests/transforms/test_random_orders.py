"""Random small nets through random transform orders keep their numbers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from deploykit.transforms.runtime.differences import compare
from tests.support import random, run, transform

FLOAT = {"T": DType("float32")}
CHANNELS = 4

EXACT = ["strip_unused_nodes", "remove_nodes(op=Identity)", "merge_duplicate_nodes",
         "sort_by_execution_order", "remove_device", "add_default_attributes",
         "remove_control_dependencies", "inline_functions", "remove_unused_functions",
         "inline_partitionedcall", "remove_training_nodes", "fold_pads", "fuse_dilations",
         "flatten_atrous_conv", "fuse_convolutions", "set_device(device=\"/cpu:0\")",
         "backport_concatv2", "backport_tensor_array_v3", "sparsify_gather",
         "remove_attribute(attribute_name=_output_shapes)"]  # fmt: skip
FOLDING = ["fold_constants", "fold_batch_norms", "fold_old_batch_norms", "fold_scale"]
STEPS = ["conv", "depthwise", "matmul", "mul", "add", "sub", "bias", "norm", "relu", "identity",
         "residual", "wait", "double", "concat"]  # fmt: skip


def step(graph: Graph, kind: str, number: int, x: str, earlier: list[str]) -> str:
    """Add one step of a net of [2, 5, 5, 4] tensors, and return the tensor it makes."""
    name = f"s{number}"

    def const(part: str, *shape: int, low: float = -1.0) -> str:
        seed = number if number % 3 else 0  # some constants are equal, so that they can merge
        return graph.add(Node.constant(f"{name}/{part}", random(*shape, seed=seed, low=low))).name

    def add(op: str, *inputs: str, **attrs) -> str:
        return graph.add(Node(name, op, inputs).with_attrs(**FLOAT, **attrs)).name

    conv = {"strides": [1, 1, 1, 1], "padding": "SAME", "data_format": "NHWC"}
    if kind == "conv":
        return add("Conv2D", x, const("w", 3, 3, CHANNELS, CHANNELS), **conv)
    if kind == "depthwise":
        return add("DepthwiseConv2dNative", x, const("w", 3, 3, CHANNELS, 1), **conv)
    if kind == "matmul":
        flat = graph.add(Node.constant(f"{name}/flat", np.array([50, CHANNELS], np.int32))).name
        form = graph.add(Node.constant(f"{name}/form", np.array([2, 5, 5, 4], np.int32))).name
        reshape = {**FLOAT, "Tshape": DType("int32")}
        rows = graph.add(Node(f"{name}/rows", "Reshape", (x, flat)).with_attrs(**reshape)).name
        weights = const("w", CHANNELS, CHANNELS)
        node = Node(f"{name}/matmul", "MatMul", (rows, weights)).with_attrs(**FLOAT)
        product = graph.add(node.with_attrs(transpose_b=number % 2 == 0)).name
        return graph.add(Node(name, "Reshape", (product, form)).with_attrs(**reshape)).name
    if kind in ("mul", "add", "sub"):
        op = {"mul": "Mul", "add": "AddV2", "sub": "Sub"}[kind]
        other = const("c", *((CHANNELS,) if number % 4 else (1, 5, 5, 1)))
        return add(op, *((x, other) if number % 2 else (other, x)))
    if kind == "bias":
        return add("BiasAdd", x, const("b", CHANNELS), data_format="NHWC")
    if kind == "norm":
        values = [const(part, CHANNELS, low=0.5) for part in ("gamma", "beta", "mean", "variance")]
        norm = {"U": DType("float32"), "is_training": False, "epsilon": 1e-3}
        return add("FusedBatchNormV3", x, *values, **norm)
    if kind == "residual":
        return add("AddV2", x, earlier[number % len(earlier)])
    if kind == "wait":
        return add("Identity", x, f"^{earlier[number % len(earlier)]}")
    if kind == "double":
        twin = graph.add(Node(f"{name}/twin", "Relu", (x,)).with_attrs(**FLOAT)).name
        other = graph.add(Node(f"{name}/other", "Relu", (x,)).with_attrs(**FLOAT)).name
        return add("Mul", twin, other)
    if kind == "concat":  # of two halves, the other way round
        halves = [const(f"half{i}", 1, 1, CHANNELS, 2) for i in range(2)]
        parts = [
            graph.add(Node(f"{name}/part{i}", "Conv2D", (x, w)).with_attrs(**FLOAT, **conv)).name
            for i, w in enumerate(halves)
        ]
        axis = graph.add(Node.constant(f"{name}/axis", np.array(3, np.int32))).name
        joined = Node(name, "ConcatV2", (*reversed(parts), axis))
        return graph.add(joined.with_attrs(**FLOAT, Tidx=DType("int32"), N=2)).name
    return add("Relu" if kind == "relu" else "Identity", x)


def net(kinds: list[str], fetched: list[int]) -> Graph:
    graph = Graph([Node("x", "Placeholder").with_attrs(dtype=DType("float32"), shape=(2, 5, 5, 4))])
    tensors = ["x"]
    for number, kind in enumerate(kinds):
        tensors.append(step(graph, kind, number, tensors[-1], tensors))
    graph.inputs = ("x",)
    names = [tensors[place % len(tensors)] for place in fetched]
    graph.outputs = dict.fromkeys(name for name in (*names, tensors[-1]) if name != "x")
    return graph


NETS = st.builds(
    net,
    st.lists(st.sampled_from(STEPS), min_size=1, max_size=9),
    st.lists(st.integers(0, 9), max_size=2),
)


def check(graph: Graph, transforms: list[str]) -> None:
    before = graph
    feeds = {"x": random(2, 5, 5, 4, seed=7)}
    expected = run(before, feeds)
    bar = 0.0
    for text in transforms:
        graph = transform(graph, text)
        assert graph.inputs == before.inputs
        assert graph.outputs == before.outputs
        if text in FOLDING:
            bar = 1e-6 * (5 + len(before))
        found = compare(expected, run(graph, feeds))
        worst = max(max(d.max_relative_error, d.rms_relative_error) for d in found)
        assert worst <= bar, (text, transforms)


ORDERS = st.lists(st.sampled_from(EXACT + FOLDING), min_size=1, max_size=5)


@settings(max_examples=100, derandomize=True)
@given(NETS, ORDERS)
def test_random_orders(graph, transforms):
    check(graph, transforms)


@pytest.mark.sampled
@settings(max_examples=1500, derandomize=True)
@given(NETS, ORDERS)
def test_many_random_orders(graph, transforms):
    check(graph, transforms)


def test_a_wrong_fold_is_caught(monkeypatch):
    """A fold that forgets the mean must be found by the same check."""
    from deploykit.transforms.layers import affine

    right = affine._batch_norm

    def wrong(*arguments):
        found = right(*arguments)
        return affine.Affine(found.scale, found.offset * 0)

    monkeypatch.setattr(affine, "_batch_norm", wrong)
    with pytest.raises(AssertionError):
        check(net(["conv", "norm"], []), ["fold_batch_norms"])
