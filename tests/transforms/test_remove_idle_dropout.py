"""Dropout that drops nothing goes, and its random numbers; the numbers stay exactly."""

import pytest

from tests.support import error, ops, transform
from tests.transforms.examples import Example
from tests.transforms.test_remove_training_nodes import X, cast, floor, net, select

TEXT = "fold_constants remove_idle_dropout"


@pytest.mark.parametrize("scaled", [False, True])
def test_dropout_that_keeps_everything_goes(scaled):
    graph = net(floor(scaled, kept=1.0))
    result = transform(graph, TEXT)
    assert ops(result) == {"Placeholder": 1, "Neg": 1, "Relu": 1}
    assert error(graph, result, X) == 0
    assert str(transform(result, TEXT)) == str(result)


@pytest.mark.parametrize("step", [select, cast(False), floor(True)])
def test_dropout_that_drops_stays(step):
    graph = transform(net(step), "fold_constants")
    assert str(transform(graph, "remove_idle_dropout")) == str(graph)


GRAPHS = [
    Example(
        "remove_idle_dropout",
        lambda: transform(net(floor(False, kept=1.0)), "fold_constants"),
        golden="floor",
    )
]
