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
    Defect("rename_attribute", "a node that has the new one too", marked, ATTRIBUTE,
           "loses one of the two",
           makes(lambda before, after: len(after["product"].attrs)
                 < len(before["product"].attrs)),
           "leaves it, and says so", stays()),
    Defect("rename_node", "a node beside which others are to run", colocated,
           named("first", "start"), "they name the old one: the graph does not load",
           does_not_run("cannot load"), "they name the new one", gives(follow)),
    Defect("rename_node", "an output", net(chain), named("out", "result"),
           "the graph has no such output any more",
           makes(lambda before, after: "out" not in after and after.outputs == ("out",)),
           "it is an output by its new name",
           gives(lambda before, after: after.outputs == ("result",))),
    Defect("rename_node", "a node that the graph does not have", net(chain),
           named("onne", "two_"), "does nothing, without a word",
           makes(lambda before, after: "two_" not in after), "says so, with the nearest names",
           refuses("'onne'")),
    Defect("obfuscate_names", "outputs given as out:0", long(10), "obfuscate_names",
           "are renamed", makes(lambda before, after: "out" not in after), "keep their names",
           keeps(), outputs="out:0"),
    Defect("obfuscate_names", "nodes that are to run beside others", colocated,
           "obfuscate_names", "name what is not there any more: the graph does not load",
           does_not_run("cannot load"), "name it by its new name", gives(follow)),
    Defect("rename_op", "an op that takes another number of inputs", net(chain),
           "rename_op(old_op_name=Relu, new_op_name=AddV2)", "a graph that does not load",
           does_not_run("cannot load"), "refuses it", refuses("but AddV2 takes 2")),
    Defect("remove_attribute", "an op that TensorFlow does not have", marked,
           "remove_attribute(attribute_name=_mark, op_name=MatMull)",
           "does nothing, without a word",
           makes(lambda before, after: len(after["product"].attrs) == len(before["product"].attrs)),
           "says so, with the nearest ones", refuses("there is no op 'MatMull'")),
    Defect("set_device", "a device that does not parse, such as /device:CPU", net(chain),
           'set_device(device="/device:CPU")', "sets it: the graph does not load",
           does_not_run("cannot load"), "refuses it",
           refuses("device is '/device:CPU', expected such as /device:CPU:0")),
    Defect("set_device", "the device cpu:0, without a slash", net(chain),
           'set_device(device="cpu:0")',
           "sets it; TensorFlow calls it malformed, wherever Python's import does not mend it",
           makes(lambda before, after: after["two"].device == "cpu:0"), "refuses it",
           refuses("device is 'cpu:0', expected such as /device:CPU:0")),
]  # fmt: skip
