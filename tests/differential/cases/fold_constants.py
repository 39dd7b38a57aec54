"""What depends on constants alone is computed."""

from deploykit.transforms.ir.graph import Graph
from tests.differential.case import Case, Refusal, error_of
from tests.differential.graphs import const, fashion_keras, fashion_tf1, net, two_layers
from tests.support import random, tf


def sum_of_constants(raw, x):
    a, b = const(random(100), "a"), const(random(100, seed=1), "b")
    raw.Mul(x=raw.AddV2(x=a, y=b, name="sum"), y=x, name="out")


def shape_of_a_constant(raw, x):
    shape = raw.Shape(input=const(random(1, 1, 3), "a"), name="shape")
    sizes = raw.Cast(x=shape, DstT=tf.float32, name="sizes")
    raw.Mul(x=sizes, y=x, name="out")


def shape_of_the_placeholder(raw, x):
    sizes = raw.Cast(x=raw.Shape(input=x, name="shape"), DstT=tf.float32, name="sizes")
    raw.Mul(x=x, y=raw.Prod(input=sizes, axis=const(0, "axis"), name="size"), name="out")


def flatten(raw, x):
    """What Keras writes for Flatten of a batch of any size: nothing of it is constant."""
    shape = raw.Shape(input=x, name="shape")
    ends = [const([i], f"end{i}") for i in (0, 1)]
    rows = raw.StridedSlice(input=shape, begin=ends[0], end=ends[1], strides=const([1], "step"),
                            shrink_axis_mask=1, name="rows")  # fmt: skip
    form = raw.Pack(values=[rows, const(-1, "rest")], name="form")
    raw.Reshape(tensor=x, shape=form, name="out")


def nothing_constant(raw, x):
    raw.Relu(features=raw.Neg(x=x, name="minus"), name="out")


def chain(raw, x):
    y = const(random(100, low=0.1), "a")
    for op, name in ((raw.Sqrt, "root"), (raw.Neg, "minus"), (raw.Abs, "size")):
        y = op(x=y, name=name)
    raw.Sub(x=x, y=y, name="out")


def used_and_unused(raw, x):
    sum_of_constants(raw, x)
    raw.Exp(x=raw.Neg(x=const(random(5), "other"), name="minus"), name="unused")


def shapes_and_indices(raw, x):
    y = raw.Transpose(x=const(random(4, 3), "a"), perm=const([1, 0], "axes"), name="turned")
    y = raw.Reshape(tensor=y, shape=const([2, 6], "form"), name="row")
    y = raw.ConcatV2(values=[y, y], axis=const(0, "axis"), name="twice")
    y = raw.GatherV2(params=y, indices=const([0, 3], "rows"), axis=const(0, "at"), name="some")
    raw.MatMul(a=x, b=y, name="out")


def integers(raw, x):
    count = raw.Range(start=const(0, "from"), limit=const(9, "to"), delta=const(2, "by"), name="r")
    y = raw.FloorDiv(x=count, y=const(2, "two"), name="halves")
    raw.AddV2(x=raw.Cast(x=y, DstT=tf.float32, name="cast"), y=x, name="out")


def two_readers(raw, x):
    y = raw.Exp(x=const(random(100), "a"), name="exp")
    raw.Mul(x=raw.AddV2(x=x, y=y, name="sum"), y=y, name="out")


def constant_output(raw, x):
    raw.Neg(x=x, name="minus")
    raw.AddV2(x=const(random(4), "a"), y=const(random(4, seed=1), "b"), name="out")


def several_outputs(raw, x):
    parts = raw.Split(axis=const(0, "axis"), value=const(random(200), "a"), num_split=2, name="s")
    raw.Sub(x=raw.Mul(x=x, y=parts[0], name="product"), y=parts[1], name="out")


def random_values(raw, x):
    """Return noise of no strength: random ops must stay."""
    noise = raw.RandomUniform(shape=const([100], "form"), dtype=tf.float32, seed=1, name="noise")
    raw.AddV2(x=x, y=raw.Mul(x=noise, y=const(0.0, "zero"), name="none"), name="out")


def recorded_shapes() -> Graph:
    graph = net(sum_of_constants, 100)()
    node = graph["sum"]
    graph.replace(node, node.with_attrs(_output_shapes=[(100,)]))
    return graph


def recorded_shape_of_the_placeholder() -> Graph:
    graph = net(shape_of_the_placeholder, None, 5)()
    graph.replace(graph["x"], graph["x"].with_attrs(_output_shapes=[(4, 5)], shape=None))
    return graph


def batch_norm_of_keras(raw, x):
    """Return the constants of a batch norm as Keras 3 writes it, read through Identities."""
    gamma, beta, mean, variance = (
        raw.Identity(input=const(random(100, seed=i, low=0.2), n), name=f"{n}/read")
        for i, n in enumerate(("gamma", "beta", "mean", "variance"))
    )
    scale = raw.Rsqrt(x=raw.AddV2(x=variance, y=const(1e-3, "epsilon"), name="add"), name="rsqrt")
    scale = raw.Mul(x=scale, y=gamma, name="scale")
    shift = raw.Sub(x=beta, y=raw.Mul(x=mean, y=scale, name="moved"), name="shift")
    raw.AddV2(x=raw.Mul(x=x, y=scale, name="mul"), y=shift, name="out")


NAME = "fold_constants"
NAMES = ("names of folded nodes",)
SHAPES = ("names of folded nodes", "constants wait for nothing")
READ = ("names of folded nodes", "names behind Identity")
ULP = 1.2e-7
NORM = 4 * ULP  # NumPy's inverse square root is not TensorFlow's to the last bit

CASES = [
    Case("sum of constants", net(sum_of_constants, 100), NAME, deviations=NAMES),
    Case("the op is excluded", net(sum_of_constants, 100), f"{NAME}(exclude_op=AddV2)"),
    Case("another op is excluded", net(sum_of_constants, 100), f"{NAME}(exclude_op=Mul)",
         deviations=NAMES),
    Case("the node is excluded", net(sum_of_constants, 100), f"{NAME}(exclude_node=sum)"),
    Case("larger than allowed", net(sum_of_constants, 100),
         f"{NAME}(max_constant_size_in_bytes=10)"),
    Case("as large as allowed", net(sum_of_constants, 100),
         f"{NAME}(max_constant_size_in_bytes=400)", deviations=NAMES),
    Case("shape of a constant", net(shape_of_a_constant, 3), NAME, deviations=NAMES),
    Case("shape of a placeholder", net(shape_of_the_placeholder, 4, 5), NAME, deviations=SHAPES),
    Case("unknown shape", net(flatten, None, 2, 3), NAME),
    Case("known shape", net(flatten, 2, 2, 3), NAME, deviations=SHAPES),
    Case("nothing is constant", net(nothing_constant, 100), NAME),
    Case("a chain", net(chain, 100), NAME, deviations=NAMES),
    Case("unused nodes go", net(used_and_unused, 100), NAME, deviations=NAMES),
    Case("shapes and indices", net(shapes_and_indices, 3, 2), NAME, deviations=NAMES),
    Case("integers", net(integers, 5), NAME, deviations=NAMES),
    Case("two readers", net(two_readers, 100), NAME, deviations=NAMES, tolerance=ULP),
    Case("a constant output", net(constant_output, 100), NAME, deviations=("constant outputs",)),
    Case("several outputs", net(several_outputs, 100), NAME, deviations=READ),
    Case("random values stay", net(random_values, 100), NAME),
    Case("recorded shapes go", recorded_shapes, NAME, deviations=NAMES),
    Case("recorded shapes count if they are not cleared", recorded_shape_of_the_placeholder,
         f"{NAME}(clear_output_shapes=false)", deviations=SHAPES),
    Case("recorded shapes do not count if they are", recorded_shape_of_the_placeholder, NAME,
         deviations=("recorded shapes",)),
    Case("batch norm of Keras", net(batch_norm_of_keras, 100), NAME, deviations=NAMES,
         tolerance=NORM),
    Case("small net", two_layers,
         f"remove_device remove_control_dependencies {NAME}", deviations=READ),
    Case("frozen Fashion, TF1", fashion_tf1, NAME, deviations=READ),
    Case("frozen Fashion, Keras", fashion_keras, NAME, deviations=READ, tolerance=1e-6),
    Refusal("a size that is no number", net(chain, 100), f"{NAME}(max_constant_size_in_bytes=1e6)",
            "Couldn't interpret the max_constant_size_in_bytes argument as a number:1e6",
            error_of("parameter-value", name="max_constant_size_in_bytes", got="1e6")),
    Refusal("a truth value that is none", net(chain, 100), f"{NAME}(clear_output_shapes=perhaps)",
            "Couldn't interpret the clear_output_shapes argument as a boolean:perhaps",
            error_of("parameter-value", name="clear_output_shapes", got="perhaps")),
]  # fmt: skip
