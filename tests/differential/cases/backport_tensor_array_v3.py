"""Version 3 of the TensorArray ops becomes version 2; the graphs are old enough for that one."""

from collections.abc import Callable

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.ops import op_defs
from tests.differential.case import Case
from tests.differential.cases.remove_nodes import chain
from tests.differential.graphs import const, net, without_attrs
from tests.support import tf

NAME = "backport_tensor_array_v3"


def old(make: Callable, attrs=("identical_element_shapes",)) -> Callable[[], Graph]:
    """Return a graph that TensorFlow also loads with version 2, which it gave up later.

    The first arrays of version 3 did not have these attributes.
    """

    def graph() -> Graph:
        built = net(make)()
        built.versions.producer = op_defs()["TensorArrayV2"].deprecation.version - 1
        for node in built:
            if node.op == "TensorArrayV3":
                without_attrs(built, node.name, *attrs)
        return built

    return graph


def array(raw, name: str, size: int = 2):
    return raw.TensorArrayV3(size=const(size, f"{name}/size"), dtype=tf.float32,
                             element_shape=[3], name=name)  # fmt: skip


def filled(raw, x, name="array"):
    """Return an array with the rows of x, and its flow."""
    made = array(raw, name)
    places = const([0, 1], f"{name}/places")
    given = {"handle": made.handle, "indices": places, "flow_in": made.flow}
    return made.handle, raw.TensorArrayScatterV3(**given, value=x, name=f"{name}/fill")


def write_and_read(raw, x):
    made = array(raw, "array")
    row = raw.Sum(input=x, axis=const(0, "axis"), name="row")
    flow = raw.TensorArrayWriteV3(handle=made.handle, index=const(1, "one"), value=row,
                                  flow_in=made.flow, name="write")  # fmt: skip
    raw.TensorArrayReadV3(handle=made.handle, index=const(1, "again"), flow_in=flow,
                          dtype=tf.float32, name="out")  # fmt: skip


def scatter_and_gather(raw, x):
    handle, flow = filled(raw, x)
    raw.TensorArrayGatherV3(handle=handle, indices=const([1, 0], "order"), flow_in=flow,
                            dtype=tf.float32, element_shape=[3], name="out")  # fmt: skip


def split_and_concat(raw, x):
    made = raw.TensorArrayV3(size=const(2, "size"), dtype=tf.float32, name="array")
    flow = raw.TensorArraySplitV3(handle=made.handle, value=x, lengths=const([1, 1], "l", "int64"),
                                  flow_in=made.flow, name="split")  # fmt: skip
    joined = raw.TensorArrayConcatV3(handle=made.handle, flow_in=flow, dtype=tf.float32,
                                     name="joined")  # fmt: skip
    raw.Relu(features=joined.value, name="out")


def size(raw, x):
    handle, flow = filled(raw, x)
    count = raw.TensorArraySizeV3(handle=handle, flow_in=flow, name="count")
    floats = raw.Cast(x=count, DstT=tf.float32, name="floats")
    raw.Mul(x=x, y=floats, name="out")


def close(raw, x):
    handle, flow = filled(raw, x)
    row = raw.TensorArrayReadV3(handle=handle, index=const(0, "zero"), flow_in=flow,
                                dtype=tf.float32, name="row")  # fmt: skip
    with tf.control_dependencies([row]):
        closed = raw.TensorArrayCloseV3(handle=handle, name="closed")
    with tf.control_dependencies([closed]):
        raw.Neg(x=row, name="out")


def gradient(raw, x):
    handle, flow = filled(raw, x)
    grad = raw.TensorArrayGradV3(handle=handle, flow_in=flow, source="g", name="grad")
    row = raw.Sum(input=x, axis=const(0, "axis"), name="row")
    written = raw.TensorArrayWriteV3(handle=grad.grad_handle, index=const(0, "zero"), value=row,
                                     flow_in=grad.flow_out, name="write")  # fmt: skip
    raw.TensorArrayReadV3(handle=grad.grad_handle, index=const(0, "again"), flow_in=written,
                          dtype=tf.float32, name="out")  # fmt: skip


CASES = [
    Case("write and read", old(write_and_read), NAME),
    Case("scatter and gather", old(scatter_and_gather), NAME),
    Case("split and concat", old(split_and_concat), NAME),
    Case("an array as TensorFlow writes it today", old(write_and_read, ()), NAME,
         deviations=("attributes of an op",)),
    Case("size", old(size), NAME),
    Case("close", old(close), NAME),
    Case("gradient", old(gradient), NAME),
    Case("no array", net(chain), NAME),
]  # fmt: skip
