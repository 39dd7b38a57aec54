"""fold_constants: what folds, what must not, and that the file never grows for it."""

import numpy as np
import pytest

from tests.support import assert_golden, build, error, ops, random, run, transform
from transforms.core.evaluate import Constants
from transforms.core.graph import Graph
from transforms.core.node import Node
from transforms.core.tensors import DType

ULPS = 4 * np.finfo(np.float32).eps  # the design's bar, relative to the largest value


def size(graph: Graph) -> int:
    return sum(map(len, graph.serialized()))


def with_placeholder(make, shape=(3, 4), **roles) -> Graph:
    def body():
        import tensorflow as tf

        x = tf.compat.v1.placeholder(tf.float32, shape, name="x")
        tf.identity(make(tf, x), name="out")

    return build(body, roles.get("inputs", ["x"]), roles.get("outputs", ["out"]))


def batch_norm(tf, x):
    """Make scale and shift out of statistics, as Keras 3 does."""
    mean, variance, gamma, beta = (
        tf.identity(tf.constant(random(4, seed=s, low=0.2, high=2))) for s in range(4)
    )
    scale = tf.math.rsqrt(variance + 1e-3) * gamma
    return x * scale + (beta - mean * scale)


def shapes(tf, x):
    """Compute a shape and reshape to it."""
    shape = tf.shape(tf.ones([4, 3]))
    first = tf.strided_slice(shape, [0], [1], shrink_axis_mask=1)
    return tf.reshape(x, tf.stack([3 * first // 4, -1]))


def several_outputs(tf, x):
    parts = tf.split(tf.constant(random(3, 8)), 2, axis=1)
    return x * parts[0] + parts[1]


def by_tensorflow(tf, x):
    """Use an op that NumPy has no kernel for here."""
    return x + tf.nn.softmax(tf.matmul(random(3, 5), random(5, 4, seed=1)))


FOLDED = {
    "batch norm": (batch_norm, {"Mul", "AddV2"}),
    "shapes": (shapes, {"Reshape"}),
    "several outputs": (several_outputs, {"Mul", "AddV2"}),
    "by tensorflow": (by_tensorflow, {"AddV2"}),
}


@pytest.mark.parametrize("case", FOLDED)
def test_folds(case):
    make, left = FOLDED[case]
    before = with_placeholder(make)
    after = transform(before, "fold_constants")
    assert set(ops(after)) == {"Placeholder", "Const", "Identity"} | left
    assert error(before, after, {"x": random(3, 4, seed=9)}) <= ULPS
    assert str(transform(after, "fold_constants")) == str(after)
    assert size(after) <= size(before)


@pytest.mark.parametrize("case", ["batch norm", "shapes"])
def test_golden(case):
    after = transform(with_placeholder(FOLDED[case][0]), "fold_constants")
    assert_golden(f"fold_constants/{case}", str(after))


def test_a_whole_graph_that_is_constant():
    def body():
        import tensorflow as tf

        tf.add(tf.constant(random(100)), tf.constant(random(100, seed=1)), name="out")

    before = build(body, [], ["out:0"])
    after = transform(before, "fold_constants")
    assert ops(after) == {"Const": 1}
    np.testing.assert_array_equal(run(after, {})[0], random(100) + random(100, seed=1))


def kept(make, **roles):
    before = with_placeholder(make, **roles)
    before.prune()
    return before


def quantized(tf, x):
    codes = tf.constant(np.arange(12, dtype=np.int8).reshape(3, 4))
    codes = tf.bitcast(codes, tf.qint8)
    return x + tf.raw_ops.Dequantize(input=codes, min_range=-1.0, max_range=1.0, mode="SCALED")


def random_numbers(tf, x):
    return x + tf.random.uniform([3, 4], seed=1)


def reads_a_file(tf, x):
    return x + tf.strings.to_number(tf.io.read_file("/proc/loadavg"))


def tiled(tf, x):
    return x[:1, :1] * tf.tile(tf.constant(random(1000)), [50])


def default(tf, x):
    return x + tf.compat.v1.placeholder_with_default(random(3, 4), [3, 4], name="given")


@pytest.mark.parametrize(
    ("make", "op"),
    [
        (quantized, "Dequantize"),
        (random_numbers, "RandomUniform"),
        (reads_a_file, "ReadFile"),
        (tiled, "Tile"),
        (default, "PlaceholderWithDefault"),
    ],
)
def test_left_alone(make, op):
    before = kept(make)
    after = transform(before, "fold_constants")
    assert ops(after)[op] == 1
    assert size(after) <= size(before)


def test_too_large_results_are_said_and_what_is_below_them_folds():
    def make(tf, x):
        return x[:1, :1] * tf.tile(tf.constant(random(1000)) + 1.0, tf.constant([2]) * 25)

    before = kept(make)
    from transforms.fold_constants import fold_constants

    after = before.copy()
    fold_constants(after)
    assert any("takes 200" in reason for reason in after.skipped), after.skipped
    after.prune()
    assert "AddV2" not in ops(after)
    assert error(before, after, {"x": random(3, 4)}) == 0


def test_a_large_uniform_result_is_small_in_the_file():
    after = transform(with_placeholder(lambda tf, x: tf.fill([3, 4], 2.0) * x), "fold_constants")
    assert set(ops(after)) == {"Placeholder", "Const", "Mul", "Identity"}


@pytest.mark.parametrize(
    ("parameters", "left"),
    [
        ("exclude_op=Rsqrt", {"Rsqrt": 1}),
        ("exclude_op=Rsqrt, exclude_op=Sub", {"Rsqrt": 1, "Sub": 1}),
        ("exclude_node=sub", {"Sub": 1}),
        ("max_constant_size_in_bytes=10", {"Sub": 1}),
    ],
)
def test_parameters(parameters, left):
    before = with_placeholder(batch_norm)
    after = transform(before, f"fold_constants({parameters})")
    assert {op: ops(after).get(op) for op in left} == left
    assert error(before, after, {"x": random(3, 4)}) <= ULPS


@pytest.mark.parametrize("clear", [True, False])
def test_output_shapes(clear):
    from transforms.core.protos import AttrValue

    graph = with_placeholder(lambda tf, x: x)
    shapes = AttrValue()
    shapes.list.shape.add(unknown_rank=True)
    graph.replace(graph["out"], graph["out"].with_attrs(_output_shapes=shapes))
    after = transform(graph, f"fold_constants(clear_output_shapes={clear})")
    assert ("_output_shapes" in after["out"].attrs) is not clear


@pytest.mark.parametrize("shape", [(3, 4), (None, 4)])
def test_shapes_of_placeholders_fold_where_they_are_known(shape):
    def make(tf, x):
        return tf.cast(tf.shape(x), tf.float32) * tf.cast(tf.rank(x) + tf.size(x), tf.float32)

    before = with_placeholder(make, shape)
    after = transform(before, "fold_constants")
    assert ("Shape" in ops(after)) == (shape[0] is None)
    assert error(before, after, {"x": random(3, 4)}) == 0


def fed_constant():
    def make(tf, x):
        return x + tf.constant(random(3, 4), name="c") * 2.0

    return with_placeholder(make, inputs=["x", "c"]), {
        "x": random(3, 4),
        "c": random(3, 4, seed=5),
    }


def test_what_is_fed_is_not_constant():
    before, feeds = fed_constant()
    assert error(before, transform(before, "fold_constants"), feeds) == 0


def test_folding_what_is_fed_is_caught():
    """The wrong variant does not know that the constant is fed; the same check must fail."""
    before, feeds = fed_constant()
    wrong = Graph(before, ["x"], ["out"])
    wrong = transform(wrong, "fold_constants")
    wrong.add(Node.constant("c", random(3, 4)))
    wrong.inputs = before.inputs
    assert error(before, wrong, feeds) > 0.1


def frozen_by_tensorflow_2() -> Graph:
    """Each weight is read through an Identity that one NoOp waits for, as is the output."""

    def make(tf, x):
        reads = [tf.identity(tf.constant(random(4, 400, seed=s))) for s in range(8)]
        with tf.control_dependencies(reads):
            barrier = tf.no_op()
        with tf.control_dependencies([barrier]):
            return tf.identity(sum(tf.matmul(x, read) for read in reads))

    return with_placeholder(make)


def test_a_graph_frozen_by_tensorflow_2_does_not_double():
    before = frozen_by_tensorflow_2()
    after = transform(before, "fold_constants")
    assert size(after) <= size(before)
    assert ops(after)["Identity"] == 2  # the graph's own
    assert error(before, after, {"x": random(3, 4)}) == 0


def test_shared_constants_do_not_double():
    """Both transposes need the constant, which a third node reads too."""

    def make(tf, x):
        w = tf.constant(random(4, 500))
        return tf.matmul(x, w) + tf.matmul(x, tf.transpose(tf.transpose(w)))

    before = with_placeholder(make)
    after = transform(before, "fold_constants")
    assert size(after) <= size(before) + 300
    assert error(before, after, {"x": random(3, 4)}) == 0


def test_constants_inside_a_while_loop_stay():
    def body():
        import tensorflow as tf

        tf.compat.v1.disable_control_flow_v2()
        try:
            x = tf.compat.v1.placeholder(tf.float32, [], name="x")
            step = lambda i: i * 2.0 + tf.square(tf.constant(3.0))  # noqa: E731
            tf.identity(tf.while_loop(lambda i: i < 100.0, step, [x])[0], name="out")
        finally:
            tf.compat.v1.enable_control_flow_v2()

    before = build(body, ["x"], ["out"])
    after = transform(before, "fold_constants")
    assert error(before, after, {"x": np.float32(1)}) == 0


def test_a_value_whose_computing_fails_is_left():
    graph = with_placeholder(lambda tf, x: x + tf.constant(random(3, 4), name="c"))
    graph.add(Node.constant("shape", np.array([5, 7], np.int32)))
    attrs = {"T": DType("float32"), "Tshape": DType("int32")}
    graph.add(Node("bad", "Reshape", ("c", "shape")).with_attrs(**attrs))
    graph.outputs = ("out", "bad")
    after = transform(graph, "fold_constants")
    assert after["bad"].op == "Reshape"


def test_constants_are_found_in_one_pass_and_computed_once():
    graph = with_placeholder(batch_norm)
    constants = Constants(graph)
    assert "out" not in constants
    assert constants.value("x") is None
    rsqrt = next(n.name for n in graph if n.op == "Rsqrt")
    assert constants.value(rsqrt) is constants.value(rsqrt)
