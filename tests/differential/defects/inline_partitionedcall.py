"""Calls that the original inlines wrongly, or not."""

from deploykit.transforms.ir.graph import Graph
from tests.differential.cases.inline_functions import net as calls
from tests.differential.defects.defect import Defect
from tests.differential.defects.inline_functions import nested, second_output
from tests.differential.judging import does_not_run, fails, gives, keeps, leaves, makes
from tests.support import tf

INLINE = "inline_partitionedcall"


def call_with_a_device(x):
    @tf.function
    def halve(a):
        return tf.nn.relu(a) / 2.0

    with tf.device("/device:CPU:0"):
        y = halve(x)
    tf.identity(y, name="out")


def halved() -> Graph:
    graph = calls(call_with_a_device)()
    graph.outputs = ("PartitionedCall",)
    return graph


def on_the_device(before: Graph, after: Graph) -> bool:
    return after["PartitionedCall/Relu"].device == before["PartitionedCall"].device


def waited_for(x):
    @tf.function
    def checked(a):
        return tf.nn.relu(a)

    with tf.control_dependencies([checked(x)]):
        tf.negative(x, name="out")


DEFECTS = [
    Defect(INLINE, "a function that returns the second output of an op", calls(second_output),
           INLINE, "uses the first: the graph no longer loads",
           does_not_run("cannot load"), "uses the second", keeps(PartitionedCall=0)),
    Defect(INLINE, "a call inside a function", calls(nested), INLINE, "is not inlined",
           leaves(PartitionedCall=1), "is inlined too", keeps(PartitionedCall=0)),
    Defect(INLINE, "a call that is an output", halved, INLINE, "the output is missing",
           makes(lambda before, after: "PartitionedCall" not in after), "keeps its name",
           keeps(PartitionedCall=0)),
    Defect(INLINE, "a call with a device", calls(call_with_a_device), INLINE,
           "its body has none", makes(lambda before, after: not on_the_device(before, after)),
           "its body runs there", gives(on_the_device)),
    Defect(INLINE, "a call that another node waits for", calls(waited_for), INLINE, "refuses it",
           fails("inputs referring to nonexistent nodes"), "waits for its body",
           keeps(PartitionedCall=0)),
]  # fmt: skip
