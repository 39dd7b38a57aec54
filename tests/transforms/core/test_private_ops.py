"""Private ops that run here are found; one that is missing, wrong or deadly is left out."""

import pytest

from transforms.core import private_ops
from transforms.core.ops import op_defs
from transforms.core.private_ops import probe
from transforms.use_onednn_kernels import KERNELS


@pytest.fixture(autouse=True)
def _forgotten():
    private_ops._running.cache_clear()
    yield
    private_ops._running.cache_clear()


def test_every_op_that_a_transform_writes_is_tried():
    assert {kernel.op for kernel in KERNELS.values()} <= set(private_ops._TRIALS)
    assert set(private_ops._TRIALS) <= set(op_defs())


def test_what_runs_here():
    ops = {kernel.op for kernel in KERNELS.values()}
    assert probe(ops) == ops
    assert probe(["Relu"]) == frozenset()


def test_what_is_missing_wrong_or_deadly_is_left_out(monkeypatch):
    conv, depthwise, matmul = private_ops._TRIALS
    trials = dict(private_ops._TRIALS)
    shapes, attrs, result = trials[matmul]
    deadly = attrs | {"fused_ops": [], "num_args": 0}  # ends the process, in TensorFlow 2.21
    trials[matmul] = (shapes[:2], deadly, result)
    trials["_NoSuchOp"] = trials[conv]
    trials[depthwise] = (*trials[depthwise][:2], 6.0)
    monkeypatch.setattr(private_ops, "_TRIALS", trials)
    assert probe(trials) == {conv}
