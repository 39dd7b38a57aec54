import pytest

from tests.support import built, error, ops, random, tf, transform
from tests.transforms.examples import Example

X = {"x": random(2, 4, seed=1)}


@built(["x"], ["out"])
def concat(axis=1, axis_type="int32", computed=False, wait=False):
    x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[2, 4], name="x")
    y = tf.raw_ops.Neg(x=x, name="y")
    z = tf.raw_ops.Abs(x=x, name="z")
    double = x * 2.0
    place = tf.constant(axis, axis_type, name="axis")
    if computed:
        place = tf.raw_ops.Abs(x=place, name="computed")
    with tf.control_dependencies([z] if wait else []):
        made = tf.raw_ops.ConcatV2(values=[x, y, double], axis=place, name="concat")
    tf.raw_ops.Relu(features=made, name="out")


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("axis_type", ["int32", "int64"])
@pytest.mark.parametrize("computed", [False, True])
def test_the_values_stay(axis, axis_type, computed):
    """The original leaves an int64 axis as it is, which Concat does not take."""
    graph = concat(abs(axis) if computed else axis, axis_type, computed)
    result = transform(graph, "backport_concatv2")
    assert ops(result)["Concat"] == 1
    assert "ConcatV2" not in ops(result)
    assert "Tidx" not in result["concat"].attrs
    assert result["concat"].data_inputs[1:] == graph["concat"].data_inputs[:-1]
    assert error(graph, result, X) == 0


def test_an_int32_axis_is_read_as_it_is():
    assert transform(concat(), "backport_concatv2")["concat"].data_inputs[0] == "axis"


def test_a_control_input_stays_last():
    """The original takes it for the axis."""
    graph = concat(wait=True)
    result = transform(graph, "backport_concatv2")
    assert result["concat"].inputs == ("axis", "x", "y", graph["concat"].inputs[2], "^z")
    assert error(graph, result, X) == 0


GRAPHS = [
    Example("backport_concatv2", concat, golden="concat"),
    Example("backport_concatv2", lambda: concat(axis_type="int64", wait=True)),
]
