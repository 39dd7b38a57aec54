"""Names become numbers, in the order of the nodes."""

from deploykit.transforms.ir.graph import Graph
from tests.differential.case import Case
from tests.differential.cases.remove_nodes import fan_out, reader_with_control, second_port
from tests.differential.graphs import fashion_keras, fashion_tf1, net, placeholder, two_layers
from tests.support import build, tf

NAME = "obfuscate_names"


def long(count: int, outputs=("out",)):
    """Return that many nodes in a chain, some of which are outputs."""

    def make():
        y = placeholder(1)
        for number in range(count):
            name = outputs[number - count] if number >= count - len(outputs) else f"node_{number}"
            y = tf.raw_ops.Neg(x=y, name=name)

    return lambda: build(make, ["x"], outputs)


def fed_inside() -> Graph:
    graph = net(fan_out)()
    graph.inputs = ("same",)
    return graph


CASES = [
    Case("four nodes", net(fan_out), NAME),
    Case("the old spelling of its name", net(fan_out), NAME, "obsfucate_names"),
    Case("by port", net(second_port), NAME),
    Case("waited for", net(reader_with_control), NAME),
    Case("more than two digits make", long(4000), NAME, slow=True),
    Case("1,000 nodes", long(1000), NAME),
    Case("outputs with numbers for names", long(40, ("A10", "19")), NAME),
    Case("outputs that are numbers", long(40, ("1", "a")), NAME),
    Case("several outputs", net(fan_out, outputs=("b", "out", "same")), NAME),
    Case("a fed node", fed_inside, NAME),
    Case("small net", two_layers, NAME, deviations=("pruned",)),
    Case("frozen Fashion, TF1", fashion_tf1, f"remove_attribute(attribute_name=_class) {NAME}"),
    Case("frozen Fashion, Keras", fashion_keras, NAME),
]
