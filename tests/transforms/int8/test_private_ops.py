"""Private ops that run here are found; one that is missing, wrong or deadly is left out."""

import pytest

from deploykit.transforms.common.errors import CrashError
from deploykit.transforms.fuse_layer_norms import OP as LAYER_NORM
from deploykit.transforms.int8 import int8_kernels
from deploykit.transforms.int8.int8_kernels import probe
from deploykit.transforms.int8.plan import OPS
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.ops import op_defs
from deploykit.transforms.ir.protos import GraphDef
from deploykit.transforms.use_onednn_kernels import KERNELS

WRITTEN = {op for op, _ in KERNELS.values()} | set(OPS.values()) | {LAYER_NORM}


@pytest.fixture(autouse=True)
def _forgotten():
    int8_kernels._running.cache_clear()
    yield
    int8_kernels._running.cache_clear()


def test_every_op_that_a_transform_writes_is_tried():
    tried = set(map(int8_kernels._op, int8_kernels._TRIALS))
    assert tried == WRITTEN
    assert tried <= set(op_defs())


def test_what_runs_here():
    assert probe(WRITTEN) == WRITTEN
    assert probe(["Relu"]) == frozenset()


@pytest.mark.sampled
def test_what_is_missing_wrong_or_deadly_is_left_out(monkeypatch):
    conv, depthwise, norm, matmul, conv8, depthwise8, matmul8, _ = int8_kernels._TRIALS
    trials = dict(int8_kernels._TRIALS)
    values, attrs, result = trials[matmul]
    deadly = attrs | {"fused_ops": [], "num_args": 0}  # ends the process, in TensorFlow 2.21
    trials[matmul] = (values[:2], deadly, result)
    trials["_NoSuchOp"] = trials[conv]
    for op in (depthwise, depthwise8, matmul8):
        trials[op] = (*trials[op][:2], trials[op][2] + 1)
    trials[norm] = (*trials[norm][:2], (0.0, 2.5))
    monkeypatch.setattr(int8_kernels, "_TRIALS", trials)
    assert probe(map(int8_kernels._op, trials)) == {conv, conv8}


def test_an_op_that_cannot_do_all_that_is_written_is_left_out(monkeypatch):
    trials = dict(int8_kernels._TRIALS)
    values, attrs, result = trials["_QuantizedMatMul GeluExact"]
    trials["_QuantizedMatMul GeluExact"] = (values, attrs | {"output_quant_mode": "SCALED"}, result)
    monkeypatch.setattr(int8_kernels, "_TRIALS", trials)
    assert probe(WRITTEN) == WRITTEN - {"_QuantizedMatMul"}


def test_what_dies_of_an_empty_batch_is_left_out(monkeypatch):
    """No private op does, in TensorFlow 2.21."""
    deadly, real = OPS["MatMul"], int8_kernels.call

    def mortal(function, content, names):
        graph = Graph.from_graph_def(GraphDef.FromString(content))
        for node in graph:
            empty = node.op == deadly and not graph[node.inputs[0]].value.size
            if empty and node.name in names:
                raise CrashError("TensorFlow died of SIGABRT on this graph")
        return real(function, content, names)

    monkeypatch.setattr(int8_kernels, "call", mortal)
    assert probe(WRITTEN) == WRITTEN - {deadly}
