"""Names of nodes, attributes, ops and devices that the original gets wrong."""

from deploykit.transforms.ir.graph import Graph
from tests.differential.cases.obfuscate_names import long
from tests.differential.cases.remove_nodes import chain
from tests.differential.defects.defect import Defect
from tests.differential.graphs import colocated, marked, net
from tests.differential.judging import does_not_run, gives, keeps, makes, refuses, stays

ATTRIBUTE = "rename_attribute(old_attribute_name=_mark, new_attribute_name=transpose_b)"


def follow(before: Graph, after: Graph) -> bool:
    """Return whether all nodes are to run where nodes of the graph run."""
    classes = [node.attr("_class") for node in after if "_class" in node.attrs]
    return len(classes) == 2 and all(c[0].removeprefix("loc:@") in after for c in classes)


def named(old: str, new: str) -> str:
    return f"rename_node(old_node_name={old}, new_node_name={new})"


DEFECTS = [
    Defect("rename_attribute", "a node that already has the new one", marked, ATTRIBUTE,
           "loses one of the two",
           makes(lambda before, after: len(after["product"].attrs)
                 < len(before["product"].attrs)),
           "skips it with a reason", stays()),
    Defect("rename_node", "a node that others are colocated with", colocated,
           named("first", "start"), "they refer to the old name: the graph does not load",
           does_not_run("cannot load"), "they refer to the new name", gives(follow)),
    Defect("rename_node", "an output", net(chain), named("out", "result"),
           "the graph loses the output",
           makes(lambda before, after: "out" not in after and after.outputs == ("out",)),
           "the output gets the new name",
           gives(lambda before, after: after.outputs == ("result",))),
    Defect("rename_node", "a node that the graph does not have", net(chain),
           named("onne", "two_"), "silently does nothing",
           makes(lambda before, after: "two_" not in after), "error with the nearest names",
           refuses("missing", kind="node", name="onne")),
    Defect("obfuscate_names", "outputs given as out:0", long(10), "obfuscate_names",
           "are renamed", makes(lambda before, after: "out" not in after), "keep their names",
           keeps(), outputs="out:0"),
    Defect("obfuscate_names", "nodes colocated with others", colocated,
           "obfuscate_names", "refer to a missing node: the graph does not load",
           does_not_run("cannot load"), "refer to its new name", gives(follow)),
    Defect("rename_op", "an op with another number of inputs", net(chain),
           "rename_op(old_op_name=Relu, new_op_name=AddV2)", "the graph does not load",
           does_not_run("cannot load"), "refuses it",
           refuses("op-inputs-count", op="AddV2", expected=2)),
    Defect("remove_attribute", "an op that TensorFlow does not have", marked,
           "remove_attribute(attribute_name=_mark, op_name=MatMull)",
           "silently does nothing",
           makes(lambda before, after: len(after["product"].attrs) == len(before["product"].attrs)),
           "error with the nearest names", refuses("missing", kind="op", name="MatMull")),
    Defect("set_device", "a device that does not parse, such as /device:CPU", net(chain),
           'set_device(device="/device:CPU")', "sets it: the graph does not load",
           does_not_run("cannot load"), "refuses it",
           refuses("unexpected", what="device", got="/device:CPU")),
    Defect("set_device", "the device cpu:0, without a slash", net(chain),
           'set_device(device="cpu:0")',
           "sets it; TensorFlow reports it as malformed unless Python's import repairs it",
           makes(lambda before, after: after["two"].device == "cpu:0"), "refuses it",
           refuses("unexpected", what="device", got="cpu:0")),
]  # fmt: skip
