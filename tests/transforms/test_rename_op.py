import logging

import pytest

from deploykit.transforms.common.errors import GraphError, PipelineError
from tests.support import assert_golden, because, built, error, ops, random, says, tf, transform
from tests.transforms.examples import Example

X = {"x": random(2, 4, seed=1)}


@built(["x"], ["out"])
def sums():
    x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[2, 4], name="x")
    first = tf.raw_ops.AddV2(x=x, y=random(4), name="first")
    second = tf.raw_ops.AddV2(x=first, y=x, name="second")
    tf.raw_ops.Relu(features=second, name="out")


@pytest.mark.golden("rename_op/sums")
def test_golden():
    graph = sums()
    text = "rename_op(old_op_name=AddV2, new_op_name=Add)"
    assert_golden(graph, transform(graph, text))


def test_an_op_that_does_the_same_keeps_the_values():
    graph = sums()
    result = transform(graph, "rename_op(old_op_name=AddV2, new_op_name=Add)")
    assert ops(result)["Add"] == 2
    assert "AddV2" not in ops(result)
    assert error(graph, result, X) == 0


@pytest.mark.parametrize("text", ["old_op_name=Sub, new_op_name=Add",
                                  "old_op_name=AddV2, new_op_name=AddV2"])  # fmt: skip
def test_left_alone(text):
    graph = sums()
    graph.prune()
    assert str(transform(graph, f"rename_op({text})")) == str(graph)


def test_an_op_of_ones_own_is_taken_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING, logger="transforms"):
        result = transform(sums(), "rename_op(old_op_name=Relu, new_op_name=MyRelu)")
        assert result["out"].op == "MyRelu"
        assert result["out"].inputs == ("second",)
        assert caplog.messages == [because("op-not-there", op="MyRelu")]
        caplog.clear()
        transform(sums(), "rename_op(old_op_name=Sub, new_op_name=MySub)")
        assert not caplog.messages


def test_a_wrong_number_of_inputs_is_refused_before_anything_changes():
    graph = sums()
    with pytest.raises(
        GraphError, match=says("op-inputs-count", node="first", count=2, op="Relu", expected=1)
    ):
        transform(graph, "rename_op(old_op_name=AddV2, new_op_name=Relu)")


@pytest.mark.parametrize("name", ["AddV3", "*"])
def test_an_op_that_nobody_knows_cannot_be_renamed(name):
    with pytest.raises(PipelineError, match=says("missing", kind="op")):
        transform(sums(), f'rename_op(old_op_name="{name}", new_op_name=Add)')


GRAPHS = [Example("rename_op(old_op_name=AddV2, new_op_name=Add)", sums)]
