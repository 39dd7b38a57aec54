"""Memory that runs out is a limit that was reached, whoever says it and however."""

import numpy as np
import pytest

from deploykit.records.cifar import read_pickle
from deploykit.transforms.common.errors import GraphError, LimitError, failed, misspelt
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.ops import op_defs
from deploykit.transforms.ir.tensors import DType
from deploykit.transforms.runtime.session import Session
from tests.support import raises, showing


class ResourceExhaustedError(Exception):
    """As TensorFlow calls it."""


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        ResourceExhaustedError("OOM"),
        ValueError("OOM when allocating tensor with shape[1099511627776]"),
        RuntimeError("std::bad_alloc"),
        OSError(12, "Cannot allocate memory"),
        np.exceptions.AxisError("Unable to allocate 8.00 EiB for an array"),
        RuntimeError("can't start new thread"),
        ValueError("failed to allocate 4096 bytes"),
    ],
)
def test_memory_that_ran_out(error):
    found = failed("it cannot be loaded", error)
    assert type(found) is LimitError
    assert found.exit_status == 6
    assert "--memory-limit" in str(found)


@pytest.mark.parametrize("error", [ValueError("no such op"), KeyError("memory"), Exception()])
def test_what_is_no_matter_of_memory(error):
    assert type(failed("it cannot be loaded", error)) is GraphError


@pytest.mark.slow
def test_a_graph_that_asks_for_too_much():
    sizes = Node.constant("sizes", np.array([1 << 20, 1 << 20, 1 << 10], np.int64))
    value = Node.constant("value", np.float32(1))
    fill = Node("fill", "Fill", ("sizes", "value")).with_attrs(
        index_type=DType("int64"), T=DType("float32")
    )
    session = Session(b"".join(Graph([sizes, value, fill]).serialized()))
    with raises(
        LimitError, "not-enough-memory", reason=showing("runtime-failed", runtime="TensorFlow")
    ):
        session.run(["fill"])


def test_a_pickle_that_asks_for_too_much(tmp_path, monkeypatch):
    def load(self):
        raise MemoryError

    monkeypatch.setattr("deploykit.records.cifar._Unpickler.load", load)
    (tmp_path / "p").write_bytes(b"\x80\x02].")
    with pytest.raises(LimitError):
        read_pickle(tmp_path / "p")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("MyOp", ""),
        ("FancyMatMul", ""),
        ("SentencepieceOp", ""),
        ("Reluu", "Relu"),
        ("Conv2d", "Conv2D"),
        ("MatMull", "MatMul"),
        ("SoftMaxx", "Softmax"),
    ],
)
def test_a_hint_is_given_for_misspelt_ops_and_not_for_custom_ones(name, hint):
    said = misspelt(name, tuple(op_defs()))
    assert hint in said if hint else not said
