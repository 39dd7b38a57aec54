"""Int8 from the scales that fake-quants state: all layers, and the numbers of the fake-quants."""

from itertools import product

import numpy as np
import pytest

from deploykit.rewriting.fake_quant_graph import (
    has_fake_quants,
    read_fake_quants,
    stated_codes_graph,
    stated_int8_graph,
)
from deploykit.rewriting.int8_graph import onednn_graph
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.int8.plan import OPS
from deploykit.transforms.core.int8.stored_codes import holds_codes
from deploykit.transforms.core.layers.layers import LAYER_OPS
from deploykit.transforms.core.running.differences import compare
from tests.support import ops, run
from tests.transforms.fake_quant_nets import (
    Block,
    feeds,
    one_block,
)

LEAST_DB = 40.0  # of the issue; a code that is rounded the other way here and there
FLIPPED = 2e-3  # of values: sums that end within a rounding of float32 between two codes

KINDS = ("conv", "strided", "depthwise", "matmul")
ACTIVATIONS = (("relu6", 0.0), ("relu6", -0.7), ("relu", 0.0), ("relu", -0.7), ("", -1.7))


def blocks():
    """Yield every kind of layer with every kind of weights, and with every activation."""
    for kind, per_channel, narrow, norm in product(
        KINDS, (True, False), (True, False), ("behind", "before", "")
    ):
        yield Block(kind, per_channel, narrow, norm)
    for kind, (activation, low), args in product(KINDS, ACTIVATIONS, (True, False)):
        yield Block(kind, activation=activation, low=low, args=args)


def named(block: Block) -> str:
    return "-".join(str(value) for value in vars(block).values())


def assert_stated(graph: Graph, layers: int, count: int = 32) -> Graph:
    """Compare both int8 forms of a graph with it, and both with each other; return the codes."""
    assert has_fake_quants(graph)
    stated = read_fake_quants(graph)
    plan = stated.plan()
    assert (len(plan.chains), plan.reasons) == (layers, {})
    codes, int8 = stated_codes_graph(stated), stated_int8_graph(stated)
    assert holds_codes(codes)
    assert sum(node.op in OPS.values() for node in int8) == layers
    assert not LAYER_OPS.keys() & set(ops(int8))
    feed = feeds(count)
    expected = run(graph, feed)
    again = onednn_graph(codes)
    assert ops(again) == ops(int8)
    for each in (stated.graph, codes, int8, again):
        found = run(each, feed)
        assert min(d.sqnr_db for d in compare(expected, found)) >= LEAST_DB
        step = np.diff(np.unique(np.concatenate([v.ravel() for v in expected]))).min(initial=1)
        for one, other in zip(expected, found, strict=True):
            assert np.mean(np.abs(one - other) > step / 2) <= FLIPPED * max(1, one.shape[-1] / 2)
    return codes


@pytest.mark.parametrize("block", list(blocks()), ids=named)
def test_every_block(block):
    assert_stated(one_block(block), 3)
