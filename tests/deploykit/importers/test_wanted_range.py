"""What the first nodes of a graph say of photos, over arithmetic of every make."""

import itertools

import numpy as np
import pytest

from deploykit.importers.image_range import (
    BYTES,
    SIGNED,
    UNIT,
    ExpectedRange,
    expected_from,
    expected_range,
)
from deploykit.importers.metadata_file import About, about
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from tests.support import because

MEAN, DEVIATION = np.array([123.7, 116.3, 103.5]), np.array([58.4, 57.1, 57.4])


class Net:
    """A graph that grows node by node behind its input."""

    def __init__(self, dtype="float32", shape=(-1, 8, 8, 3)):
        self.graph = Graph((), ("x",))
        self.type, self.at = dtype, "x"
        self.graph.add(Node("x", "Placeholder").with_attrs(dtype=DType(dtype), shape=shape))

    def constant(self, value, dtype=None):
        node = Node.constant(self.graph.unique_name("c"), np.asarray(value, dtype or self.type))
        return self.graph.add(node).name

    def op(self, op, *inputs, **attrs):
        node = Node(self.graph.unique_name(op.lower()), op, inputs).with_attrs(**attrs)
        return self.graph.add(node).name

    def then(self, op, *constants, first=True, **attrs):
        inputs = (self.at, *constants) if first else (*constants, self.at)
        self.at = self.op(op, *inputs, **{"T": DType(self.type), **attrs})
        return self

    def says(self, layer="Conv2D"):
        self.op(layer, self.at, self.constant(np.zeros((3, 3, 3, 2))), T=DType(self.type))
        found = expected_range(self.graph, "x")
        return None if found is None else found.range


def divided(net, by):
    return net.then("RealDiv", net.constant(by))


def multiplied(net, by):
    return net.then("Mul", net.constant(1 / np.asarray(by)))


def multiplied_first(net, by):
    return net.then("Mul", net.constant(1 / np.asarray(by)), first=False)


def by_a_root(net, by):
    square = net.constant(np.asarray(by, np.float64) ** 2)
    return net.then("Mul", net.op("Rsqrt", square, T=DType(net.type)))


def by_a_name(net, by):
    return net.then("RealDiv", net.op("Identity", net.constant(by), T=DType(net.type)))


def less(net, what):
    return net.then("Sub", net.constant(what))


def plus(net, what):
    return net.then("AddV2", net.constant(-np.asarray(what)))


def biased(net, what):
    return net.then("BiasAdd", net.constant(np.broadcast_to(-np.asarray(what, float), 3)))


SCALES = (divided, multiplied, multiplied_first, by_a_root, by_a_name)
SHIFTS = (less, plus, biased)
# (x - mean) / deviation
KNOWN = [
    (BYTES, 0.0, 255.0), (BYTES, 0.0, 256.0), (BYTES, 0.0, 128.0), (BYTES, 127.5, 127.5),
    (BYTES, 128.0, 128.0), (BYTES, MEAN, DEVIATION), (BYTES, 33.3, 78.6), (BYTES, MEAN, 1.0),
    (BYTES, [3.0, 120.0, 90.0], [14.0, 50.0, 40.0]), (BYTES, MEAN, 58.8),
    (UNIT, 0.5, 0.5), (UNIT, MEAN / 255, DEVIATION / 255), (UNIT, 0.1307, 0.3081), (UNIT, 0.45, 1),
    (UNIT, 0.5, 0.25), (UNIT, 0.0, 1 / 255), (UNIT, MEAN / 255, 1 / 255),
    (SIGNED, -1.0, 2.0), (SIGNED, -1.0, 1 / 127.5), (SIGNED, -0.1, 0.4),
    (None, 0.0, 1.0), (None, 0.0, 2.0), (None, 0.0, 0.5), (None, 0.0, 1e-6), (None, 0.0, 65535.0),
    (None, 1000.0, 50.0), (None, 0.02, 1.1), (None, [0.5, 120.0, 0.5], [0.5, 58.0, 0.5]),
]  # fmt: skip


@pytest.mark.parametrize(("expected", "mean", "deviation"), KNOWN, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_arithmetic_of_every_make(expected, mean, deviation, dtype):
    mean, deviation = np.asarray(mean), np.asarray(deviation)
    for scale, shift in itertools.product(SCALES, SHIFTS):
        assert scale(shift(Net(dtype), mean), deviation).says() == expected
        assert shift(scale(Net(dtype), deviation), mean / deviation).says() == expected
        halves = divided(scale(Net(dtype), deviation), 2)
        assert multiplied(shift(halves, mean / deviation / 2), 0.5).says() == expected


@pytest.mark.parametrize(("expected", "mean", "deviation"), KNOWN[:12], ids=str)
def test_half_precision(expected, mean, deviation):
    net = less(divided(Net("float16"), deviation), np.asarray(mean) / np.asarray(deviation))
    assert net.says() == expected


def resized(net):
    return net.then("ResizeBilinear", net.constant([4, 4], "int32"))


def transposed(net):
    return net.then("Transpose", net.constant([0, 3, 1, 2], "int32"))


def padded(net):
    return net.then("Pad", net.constant(np.zeros((4, 2)), "int32"))


def cast(net):
    return net.then("Cast", SrcT=DType(net.type), DstT=DType(net.type))


def clipped(net):
    return net.then("Maximum", net.constant(0)).then("Minimum", net.constant(255), first=False)


def reversed_channels(net):
    return net.then("ReverseV2", net.constant([3], "int32"))


def split_and_joined(net):
    parts = net.op("Split", net.constant(3, "int32"), net.at, T=DType(net.type), num_split=3)
    order = (f"{parts}:2", f"{parts}:1", parts)
    net.at = net.op("ConcatV2", *order, net.constant(3, "int32"), T=DType(net.type), N=3)
    return net


def sliced_and_packed(net):
    parts = [net.op("StridedSlice", net.at, net.constant(n, "int32")) for n in range(3)]
    net.at = net.op("Pack", *parts, T=DType(net.type), N=3)
    return net


def thrice(net):
    net.at = net.op("ConcatV2", net.at, net.at, net.at, net.constant(3, "int32"), N=3)
    return net


BETWEEN = (
    resized, transposed, padded, cast, clipped, reversed_channels, split_and_joined,
    sliced_and_packed, thrice,
)  # fmt: skip


@pytest.mark.parametrize(
    "moves",
    [*((each,) for each in BETWEEN), *itertools.combinations(BETWEEN, 2)],
    ids=lambda moves: "-".join(each.__name__ for each in moves),
)
def test_what_stands_between(moves):
    for mean, deviation, expected in ((127.5, 127.5, BYTES), (0.5, 0.5, UNIT), (0, 1, None)):
        ahead, among = Net(), Net()
        for move in moves:
            ahead = move(ahead)
        assert divided(less(ahead, mean), deviation).says() == expected
        among = less(among, mean)
        for move in moves:
            among = move(among)
        assert divided(among, deviation).says() == expected


def test_channels_that_are_parted_each_have_their_mean():
    """As VGG subtracts it, in the order that ImageNet's first nets took."""
    net = Net()
    parts = net.op("Split", net.constant(3, "int32"), "x", T=DType("float32"), num_split=3)
    each = [
        net.op("Sub", f"{parts}:{2 - n}" if n < 2 else parts, net.constant(mean))
        for n, mean in enumerate((103.9, 116.8, 123.7))
    ]
    net.at = net.op("ConcatV2", *each, net.constant(3, "int32"), N=3)
    assert net.says() == BYTES


@pytest.mark.parametrize("layer", ["FusedBatchNormV3", "Conv2D", "MatMul", "Relu", "Softmax"])
def test_a_layer_alone_says_nothing(layer):
    assert Net().says(layer) is None


def test_an_input_that_several_nodes_read_says_nothing():
    net = divided(Net(), 255)
    net.op("Conv2D", "x", net.constant(np.zeros((3, 3, 3, 2))))
    assert net.says() is None
    measured = divided(Net(), 255)
    measured.op("Shape", "x", T=DType("float32"))
    assert measured.says() == BYTES


def test_a_mean_of_the_photo_itself_says_nothing():
    net = Net()
    mean = net.op("Mean", "x", net.constant([1, 2, 3], "int32"))
    net.at = net.op("Sub", "x", mean)
    assert divided(net, 58).says() is None


def test_a_number_that_is_fed_says_nothing():
    net = Net()
    net.graph.inputs = ("x", net.constant(255.0))
    net.at = net.op("RealDiv", "x", net.graph.inputs[1])
    assert net.says() is None


def test_types_say_it_too():
    assert expected_range(Net("uint8").graph, "x") == ExpectedRange(BYTES, "uint8 input")
    assert expected_range(Net("int32").graph, "x").range == BYTES
    for dtype in ("int8", "bool", "complex64"):
        assert expected_range(Net(dtype).graph, "x") is None


def test_a_chain_of_thousands_is_followed_in_no_time():
    """One walk, whatever is split and joined on the way."""
    net = Net()
    for _ in range(300):
        net = split_and_joined(cast(net))
    assert divided(net, 255).says() == BYTES


def test_what_is_said_can_be_kept():
    net = divided(Net(), 255)
    assert net.says() == BYTES
    net.graph.outputs = (net.at,)
    (text,) = about(net.graph).photos.values()
    itself = because("divides-itself")
    assert text == f"0..255 ({itself})"
    assert expected_from(text) == expected_range(net.graph, "x")
    assert expected_from("-1..1") == ExpectedRange(SIGNED, "from the model metadata file")
    assert expected_from("") is None
    net.graph.about = About(photos={"x": "", "gone": "0..1"})
    assert about(net.graph).photos == {"x": ""}


def test_what_moves_with_an_input():
    net = divided(Net(), 255)
    net.graph.outputs = (net.at,)
    before = net.graph
    renamed, cut = before.copy(), before.copy()
    renamed.inputs, cut.inputs = ("y",), (net.at,)
    known = about(before)
    assert known.renamed(before, renamed).photos == {"y": known.photos["x"]}
    assert known.renamed(before, cut).photos == {}
