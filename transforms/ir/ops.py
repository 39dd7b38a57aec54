"""The op definitions of TensorFlow's registry, read from a table without starting TensorFlow.

`ops.pb.gz` is an OpList of all ops since TensorFlow 2.16, without documentation, each as defined
in its newest release. `op_releases.json` contains the first release and the first release without
the op, for ops that are not in all releases. `make ops` updates both for each new release, in
`docs/generator/op_table.py`; a test compares them with the installed TensorFlow.
"""

import functools
import gzip
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from deploykit.transforms.engines.packages import tensorflow_wheel
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.protos import OpDef, OpList
from deploykit.transforms.ir.tensors import DType, type_name

PLACEHOLDER_OPS = frozenset({"Placeholder", "PlaceholderV2"})
FEEDABLE_OPS = PLACEHOLDER_OPS | {"PlaceholderWithDefault"}
LAST_VERSION_WITHOUT_SCALARS = 21  # up to here a placeholder's shape [] meant any shape
REF_VARIABLE_OPS = frozenset({"Variable", "VariableV2"})  # of TensorFlow 1, read without another op
VARIABLE_OPS = REF_VARIABLE_OPS | {"VarHandleOp"}

# The registry calls these stateful, but they have no effect outside of the graph.
_UNSEEN_OPS = re.compile(
    r"ReadVariableOp|ResourceGather(Nd)?|VarHandleOp|VarIsInitializedOp|VariableShape|Variable(V2)?"
    r"|(Anonymous)?(Mutable(Dense)?)?HashTable(OfTensors)?(V2)?|LookupTable(Find|Size|Export)V2"
    r"|Random\w+|TruncatedNormal|ParameterizedTruncatedNormal|Multinomial|Stateless\w+|(?!Save|Initialize)\w+Dataset\w*"
    r"|TensorArray\w*|Empty|GuaranteeConst|DeviceIndex|Timestamp|DtypeWithDefaultOp"
)

# The registry calls these stateless, but they end the process, run code, or expose their inputs.
_SEEN_OPS = frozenset(
    {
        "Abort", "DebugIdentity", "DebugNanCount", "DebugNumericSummary", "DebugNumericSummaryV2",
        "MatchingFiles", "PyFuncStateless", "ReadFile", "XlaCustomCall", "XlaCustomCallV2",
    }
)  # fmt: skip

MAX_PORTS = 1 << 20  # of one node; real models need far fewer, more exhaust TensorFlow's memory
GRAPH_VERSION = 2474  # graph version of that TensorFlow
TABLE = Path(__file__).with_name("ops.pb.gz")
RELEASES = Path(__file__).with_name("op_releases.json")

Release = tuple[int, int]
"""A release as (major, minor), such as (2, 16)."""
Span = tuple[Release | None, Release | None]
"""The first release with an op, and the first one without it; None: unknown to the table."""


@functools.cache
def op_defs() -> Mapping[str, OpDef]:
    """Return the definition of every op of the installed TensorFlow by name.

    Without TensorFlow, the ops of all releases.
    """
    wheel = tensorflow_wheel()
    ops = OpList.FromString(gzip.decompress(TABLE.read_bytes())).op
    return {op.name: op for op in ops if wheel is None or _has(wheel.numbers, spans().get(op.name))}


def other_release(op: str) -> str:
    """Return which release has an op that the installed TensorFlow lacks; '': none has it."""
    wheel, span = tensorflow_wheel(), spans().get(op)
    if wheel is None or span is None or _has(wheel.numbers, span):
        return ""
    since, until = span
    is_newer = since is not None and wheel.numbers < since
    which = f">= {release_text(since)}" if is_newer else f"< {release_text(until)}"
    return f"{op} needs TensorFlow {which}; this is {wheel.version}"


def _has(release: Release, span: Span | None) -> bool:
    since, until = span or (None, None)
    return (since is None or since <= release) and (until is None or release < until)


@functools.cache
def spans() -> Mapping[str, Span]:
    """Return the first and last releases of the ops that are not in all releases."""

    def release(text: str | None) -> Release | None:
        return None if text is None else (int(text.split(".")[0]), int(text.split(".")[1]))

    result = json.loads(RELEASES.read_text())
    return {op: (release(since), release(until)) for op, (since, until) in result.items()}


def release_text(release: Release | None) -> str | None:
    """Return a release as text, such as 2.16."""
    return None if release is None else "{}.{}".format(*release)


def acts(op: str) -> bool:
    """Return whether a node of this op has an effect outside of the graph when it runs."""
    op_def = op_defs().get(op)
    if op_def is None or op in _SEEN_OPS:
        return True
    return op_def.is_stateful and not _UNSEEN_OPS.fullmatch(op)


def input_types(node: Node, op_def: OpDef | None = None) -> list[DType] | None:
    """Return the type of each data input of a node; None: its op or its attributes are unknown."""
    return _types(node, op_def, "input_arg")


def output_types(node: Node, op_def: OpDef | None = None) -> list[DType] | None:
    """Return the type of each output of a node; None: its op or its attributes are unknown."""
    return _types(node, op_def, "output_arg")


def input_ports(node: Node, op_def: OpDef) -> dict[str, range]:
    """Return the ports of each named input of an op."""
    return _ports(node, op_def, "input_arg")


def output_ports(node: Node, op_def: OpDef) -> dict[str, range]:
    """Return the ports of each named output of an op (TopKV2: values 0, indices 1)."""
    return _ports(node, op_def, "output_arg")


def output_references(node: Node, op_def: OpDef) -> list[str]:
    """Return the references to the outputs of a node in a function."""
    ports = output_ports(node, op_def)
    return [f"{node.name}:{output}:{i}" for output in ports for i in range(len(ports[output]))]


def with_op(node: Node, op: str) -> Node:
    """Return a node with another op, and without attributes that the new op lacks."""
    known = {attr.name for attr in op_defs()[op].attr}
    attrs = {name: value for name, value in node.attrs.items() if name in known or name[:1] == "_"}
    return replace(node, op=op, attrs=attrs)


def _ports(node: Node, op_def: OpDef, side: str) -> dict[str, range]:
    ports, port = {}, 0
    for arg in getattr(op_def, side):
        types = _arg_types(node, op_def, arg)
        ports[arg.name] = range(port, port + (len(types) if types is not None else 1))
        port = ports[arg.name].stop
    return ports


def _types(node: Node, op_def: OpDef | None, side: str) -> list[DType] | None:
    op_def = op_def or op_defs().get(node.op)
    if op_def is None:
        return None
    result: list[DType] = []
    for arg in getattr(op_def, side):
        types = _arg_types(node, op_def, arg)
        if types is None:
            return None
        result += types
    return result


def _arg_types(node: Node, op_def: OpDef, arg: OpDef.ArgDef) -> list[DType] | None:
    if arg.type_list_attr:
        types = _attr(node, op_def, arg.type_list_attr)
        return list(types) if isinstance(types, list) else None
    type_ = type_name(arg.type) if arg.type else _attr(node, op_def, arg.type_attr)
    count = _attr(node, op_def, arg.number_attr) if arg.number_attr else 1
    if not isinstance(type_, DType) or not isinstance(count, int):
        return None
    if not 0 <= count <= MAX_PORTS:
        return None
    return [type_] * count


def _attr(node: Node, op_def: OpDef, name: str) -> object:
    if name in node.attrs:
        return node.attr(name)
    for attr in op_def.attr:
        if attr.name == name and attr.HasField("default_value"):
            return Node("", "", attrs={name: attr.default_value}).attr(name)
    return None
