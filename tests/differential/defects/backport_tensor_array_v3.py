"""TensorArrays that the original backports wrongly."""

from tests.differential.cases.backport_tensor_array_v3 import filled
from tests.differential.defects.defect import Defect
from tests.differential.graphs import const, net
from tests.differential.judging import does_not_run, keeps
from tests.support import tf

BACKPORT = "backport_tensor_array_v3"


def loop(raw, x):
    """Return a loop of TensorFlow 1, which takes the handle through an Enter."""
    tf.compat.v1.disable_control_flow_v2()
    try:
        a = tf.TensorArray(tf.float32, 2, element_shape=[3]).unstack(x)
        b = tf.TensorArray(tf.float32, 2, element_shape=[3])
        _, b = tf.while_loop(
            lambda i, _: i < 2, lambda i, t: (i + 1, t.write(i, a.read(i) * 2.0)), (0, b)
        )
        tf.identity(b.stack(), name="out")
    finally:
        tf.compat.v1.enable_control_flow_v2()


def passed_on(raw, x):
    handle, flow = filled(raw, x)
    raw.TensorArrayReadV3(handle=raw.Identity(input=handle, name="same"), index=const(1, "one"),
                          flow_in=flow, dtype=tf.float32, name="out")  # fmt: skip


DEFECTS = [
    Defect(BACKPORT, "a loop", net(loop), BACKPORT,
           "Enter and Switch keep the type of the handle: the graph does not load",
           does_not_run("cannot load"), "changes it too", keeps(TensorArrayV2=2)),
    Defect(BACKPORT, "a handle that passes an Identity", net(passed_on), BACKPORT,
           "its type is kept: the graph does not load", does_not_run("cannot load"),
           "changes it too", keeps(TensorArrayV2=1)),
]  # fmt: skip
