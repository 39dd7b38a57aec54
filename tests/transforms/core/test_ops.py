"""The table of ops is that of the installed TensorFlow."""

from deploykit.transforms.core import ops
from deploykit.transforms.core.node import Node
from deploykit.transforms.core.running.child import call
from deploykit.transforms.core.tensors import DType


def registered() -> bytes:
    """Return the table as `make ops` would write it; this is done in a child process."""
    return ops._registered().SerializeToString(deterministic=True)


def test_the_table_equals_the_registry():
    """Not in this process: pytest's may have registered more."""
    installed = call("tests.transforms.core.test_ops:registered")
    table = ops.OpList(op=list(ops.op_defs().values())).SerializeToString(deterministic=True)
    assert table == installed, "run `make ops`"


def test_types_of_inputs_and_outputs():
    attrs = {"T": DType("float16"), "U": DType("float32")}
    norm = Node("n", "FusedBatchNormV3", ("x", "a", "b", "c", "d")).with_attrs(**attrs)
    assert ops.output_types(norm) == ["float16"] + ["float32"] * 5
    assert ops.input_types(norm) == ["float16"] + ["float32"] * 4
    split = Node("s", "Split", ("axis", "x")).with_attrs(T=DType("int32"), num_split=3)
    assert ops.output_types(split) == ["int32"] * 3
    assert ops.output_types(Node("s", "Split")) is None
