"""The table of ops is that of the installed TensorFlow."""

import pytest

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.engines.packages import Wheel
from deploykit.transforms.ir import ops
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from deploykit.transforms.runtime.child_process import call
from deploykit.transforms.untrusted.validate import validate
from docs.generator import op_table
from tests.support import raises


def registered() -> bytes:
    """Return the ops of the installed TensorFlow; this is done in a child process."""
    return ops.OpList(op=op_table.registered()).SerializeToString()


def test_the_table_is_that_of_the_registry():
    """Not in this process: pytest's may have registered more."""
    found = call("tests.transforms.ir.test_ops:registered")
    installed = {op.name: op for op in ops.OpList.FromString(found).op}
    table = ops.op_defs()
    assert set(table) == set(installed), "run `make ops`"
    for name, op in installed.items():
        attrs = {attr.name: attr for attr in table[name].attr}
        assert list(table[name].input_arg) == list(op.input_arg)
        assert list(table[name].output_arg) == list(op.output_arg)
        assert all(attrs[attr.name] == attr for attr in op.attr)  # a later release may have more
        newer = attrs.keys() - {attr.name for attr in op.attr}
        assert all(attrs[each].HasField("default_value") for each in newer)


@pytest.mark.parametrize(
    ("version", "op", "said"),
    [
        ("2.16.2", "CheckPinned", "CheckPinned needs TensorFlow >= 2.18; this is 2.16.2"),
        ("2.18.1", "CheckPinned", ""),
        ("2.20.0", "DecodeJxl", "DecodeJxl needs TensorFlow >= 2.21; this is 2.20.0"),
        ("2.22.0rc0", "TpuHandleToProtoKey",
         "TpuHandleToProtoKey needs TensorFlow < 2.22; this is 2.22.0rc0"),
        ("2.21.0", "TfLiteSubgraphExecute",
         "TfLiteSubgraphExecute needs TensorFlow < 2.19; this is 2.21.0"),
        ("2.18.1", "TfLiteSubgraphExecute", ""),
        ("2.16.2", "Relu", ""),
        ("2.16.2", "MyOp", ""),
    ],
)  # fmt: skip
def test_ops_of_other_releases_are_told(version, op, said, monkeypatch):
    monkeypatch.setattr(ops, "tensorflow_wheel", lambda: Wheel("tensorflow-cpu", version))
    ops.op_defs.cache_clear()
    try:
        assert ops.other_release(op) == said
        assert (op in ops.op_defs()) is (not said and op != "MyOp")
        if said:
            with raises(GraphError, "node-invalid", node="x", reason=said):
                validate(Graph([Node("x", op)]))
    finally:
        ops.op_defs.cache_clear()


def test_a_new_release_adds_and_ends_ops(tmp_path, monkeypatch):
    monkeypatch.setattr(ops, "TABLE", tmp_path / "ops.pb.gz")
    monkeypatch.setattr(ops, "RELEASES", tmp_path / "releases.json")
    for release, names in (((2, 16), "ab"), ((2, 17), "bc"), ((2, 18), "bc"), ((2, 19), "bd")):
        ops.spans.cache_clear()
        op_table.merge([ops.OpDef(name=name) for name in names], release)
    ops.spans.cache_clear()
    try:
        assert ops.spans() == {
            "a": (None, (2, 17)), "c": ((2, 17), (2, 19)), "d": ((2, 19), None),
        }  # fmt: skip
    finally:
        monkeypatch.undo()
        ops.spans.cache_clear()


@pytest.mark.sampled
def test_types_of_inputs_and_outputs():
    attrs = {"T": DType("float16"), "U": DType("float32")}
    norm = Node("n", "FusedBatchNormV3", ("x", "a", "b", "c", "d")).with_attrs(**attrs)
    assert ops.output_types(norm) == ["float16"] + ["float32"] * 5
    assert ops.input_types(norm) == ["float16"] + ["float32"] * 4
    split = Node("s", "Split", ("axis", "x")).with_attrs(T=DType("int32"), num_split=3)
    assert ops.output_types(split) == ["int32"] * 3
    assert ops.output_types(Node("s", "Split")) is None
