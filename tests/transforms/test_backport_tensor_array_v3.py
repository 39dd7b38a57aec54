import pytest

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from tests.support import assert_golden, build, error, ops, random, says, tf, transform
from tests.transforms.examples import Example

X = {"x": random(3, 2, seed=1)}


def array(size: int = 3):
    return tf.raw_ops.TensorArrayV3(size=size, dtype=tf.float32, element_shape=[2])


def placeholder():
    return tf.raw_ops.Placeholder(dtype=tf.float32, shape=[3, 2], name="x")


def every_act():
    """Write, read, scatter, gather, split, concat, size and close."""
    raw, x = tf.raw_ops, placeholder()
    a, b = array(), array()
    flow = raw.TensorArrayScatterV3(handle=a.handle, indices=[0, 1, 2], value=x, flow_in=a.flow)
    row = raw.TensorArrayReadV3(handle=a.handle, index=1, flow_in=flow, dtype=tf.float32)
    b_flow = raw.TensorArrayWriteV3(handle=b.handle, index=0, value=row, flow_in=b.flow)
    for index in (1, 2):
        b_flow = raw.TensorArrayWriteV3(
            handle=b.handle, index=index, value=row * (index + 1.0), flow_in=b_flow
        )
    rows = raw.TensorArrayGatherV3(
        handle=b.handle, indices=[2, 0], flow_in=b_flow, dtype=tf.float32, element_shape=[2]
    )
    c = raw.TensorArrayV3(size=2, dtype=tf.float32)
    c_flow = raw.TensorArraySplitV3(
        handle=c.handle, value=rows, lengths=tf.constant([1, 1], tf.int64), flow_in=c.flow
    )
    joined = raw.TensorArrayConcatV3(handle=c.handle, flow_in=c_flow, dtype=tf.float32).value
    size = raw.TensorArraySizeV3(handle=c.handle, flow_in=c_flow)
    with tf.control_dependencies([joined, size]):
        closed = raw.TensorArrayCloseV3(handle=c.handle)
    with tf.control_dependencies([closed]):
        tf.identity(joined * tf.cast(size, tf.float32), name="out")


def loop():
    """A loop of TensorFlow 1 takes the handle through an Enter; the original tool breaks it."""
    tf.compat.v1.disable_control_flow_v2()
    try:
        a = tf.TensorArray(tf.float32, 3, element_shape=[2]).unstack(placeholder())
        b = tf.TensorArray(tf.float32, 3, element_shape=[2])
        _, b = tf.while_loop(
            lambda i, _: i < 3, lambda i, t: (i + 1, t.write(i, a.read(i) * 2.0)), (0, b)
        )
        tf.identity(b.stack(), name="out")
    finally:
        tf.compat.v1.enable_control_flow_v2()


def branch():
    """In a branch, the handle passes a Switch, and an array is made."""
    tf.compat.v1.disable_control_flow_v2()
    try:
        x = placeholder()
        a = tf.TensorArray(tf.float32, 3, element_shape=[2]).unstack(x)

        def made():
            b = tf.TensorArray(tf.float32, 1, element_shape=[2])
            return b.write(0, a.read(1)).read(0)

        tf.identity(tf.cond(tf.reduce_sum(x) > -9, made, lambda: a.read(0)), name="out")
    finally:
        tf.compat.v1.enable_control_flow_v2()


def gradient():
    raw, x = tf.raw_ops, placeholder()
    a = array()
    flow = raw.TensorArrayScatterV3(handle=a.handle, indices=[0, 1, 2], value=x, flow_in=a.flow)
    grad = raw.TensorArrayGradV3(handle=a.handle, flow_in=flow, source="g")
    written = raw.TensorArrayWriteV3(
        handle=grad.grad_handle, index=0, value=x[1], flow_in=grad.flow_out
    )
    row = raw.TensorArrayReadV3(handle=grad.grad_handle, index=0, flow_in=written, dtype=tf.float32)
    tf.identity(row, name="out")


def passed_on():
    a = array()
    handle = tf.raw_ops.Identity(input=a.handle, name="same")
    flow = tf.raw_ops.TensorArrayWriteV3(
        handle=handle, index=0, value=placeholder()[0], flow_in=a.flow
    )
    tf.identity(
        tf.raw_ops.TensorArrayReadV3(handle=handle, index=0, flow_in=flow, dtype=tf.float32),
        name="out",
    )


CASES = [every_act, loop, branch, gradient, passed_on]


def made(make) -> Graph:
    return build(make, ["x"], ["out"])


@pytest.mark.golden("backport_tensor_array_v3/{make.__name__}")
@pytest.mark.parametrize("make", CASES)
def test_golden(make):
    graph = made(make)
    assert_golden(graph, transform(graph, "backport_tensor_array_v3"))


@pytest.mark.parametrize("make", CASES)
def test_the_values_stay(make):
    graph = made(make)
    result = transform(graph, "backport_tensor_array_v3")
    assert not [op for op in ops(result) if op.endswith("V3")]
    assert [op for op in ops(result) if op.startswith("TensorArray")]
    assert not [node.name for node in result if node.attr("T") == "resource"]
    assert error(graph, result, X) == 0


def test_a_constant_takes_the_place_of_a_flow_that_is_read():
    graph = made(every_act)
    result = transform(graph, "backport_tensor_array_v3")
    flows = [node for node in result if node.name.endswith("/replacement_flow_node")]
    assert {flow.name for flow in flows} == {
        f"{node.name}/replacement_flow_node" for node in graph if node.op == "TensorArrayV3"
    }
    assert {flow.value.item() for flow in flows} == {1.0}
    assert not any("identical_element_shapes" in node.attrs for node in result)


def test_the_graph_is_as_old_as_its_ops():
    """The original tool loses the version, which has the same effect."""
    graph = made(every_act)
    assert graph.versions.producer > 26
    assert transform(graph, "backport_tensor_array_v3").versions.producer == 25
    assert graph.versions.producer > 26


def test_what_has_no_form_for_version_2_is_an_error():
    graph = made(every_act)
    handle = next(node.name for node in graph if node.op == "TensorArrayV3")
    graph.add(Node("call", "PartitionedCall", (handle,)))
    graph.outputs = ["out", "call"]
    with pytest.raises(
        GraphError, match=says("tensor-array-reader", node="call", op="PartitionedCall")
    ):
        transform(graph, "backport_tensor_array_v3")
    graph.outputs = ["out", f"{handle}:1"]
    with pytest.raises(GraphError, match=says("tensor-array-flow", name=handle)):
        transform(graph, "backport_tensor_array_v3")


GRAPHS = [Example("backport_tensor_array_v3", lambda: made(every_act))]
