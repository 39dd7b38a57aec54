"""What TensorFlow demands of a node by itself: a legal name, a known op, the op's attributes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from deploykit.transforms.core.checks.attributes import AttrRule, content_fault
from deploykit.transforms.core.checks.ports import OpPorts, Ports
from deploykit.transforms.core.errors import GraphError, misspelt, nearest
from deploykit.transforms.core.functions import functions_in
from deploykit.transforms.core.node import Node
from deploykit.transforms.core.ops import MAX_PORTS, op_defs, other_release
from deploykit.transforms.core.protos import AttrValue, FunctionDef, OpDef
from deploykit.transforms.core.tensors import type_name

LEGAL_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*")  # TensorFlow's own rule

_DEVICE = re.compile(  # a part of a device's name
    r"|job:[^:]*|(replica|task):(\d+|\*)|(device:[A-Za-z]\w*|(?i:[CGT]PU|XLA_\w+))(:(\d+|\*))?"
)
_CLASS = AttrRule("list", "s")  # whatever the op


@dataclass(frozen=True, slots=True)
class _Rule:
    """What an op's definition demands of a node."""

    attrs: Mapping[str, AttrRule]
    required: tuple[str, ...]
    signature: OpPorts

    @classmethod
    def of(cls, op_def: OpDef) -> "_Rule":
        required = [attr.name for attr in op_def.attr if not attr.HasField("default_value")]
        rules = {attr.name: AttrRule.of(attr) for attr in op_def.attr}
        return cls({"_class": _CLASS, **rules}, tuple(required), OpPorts(op_def))


class NodeRules:
    """The rules of the ops and functions that a graph may use."""

    def __init__(self, functions: Mapping[str, FunctionDef]) -> None:
        """`functions` are those of the graph's library."""
        self.functions = functions
        self._rules: dict[str, _Rule] = {}

    def knows(self, op: str) -> bool:
        """Say whether an op is one of TensorFlow's or of the library."""
        return op in self._rules or op in op_defs() or op in self.functions

    def check(self, node: Node, in_function: bool = False) -> None:
        """Check a node by itself: name, op and attributes. GraphError: what is wrong."""
        self.check_name(node)
        rule = self._rule(node)
        for name in rule.required:
            if name not in node.attrs:
                raise GraphError("attribute-missing", node=node.name, op=node.op, attribute=name)
        for name, value in node.attrs.items():
            if in_function and value.WhichOneof("value") == "placeholder":
                continue
            self._check_attribute(node, name, value, rule)
        if node.op in ("Const", "HostConst"):
            declared, held = node.attrs["dtype"], node.attrs["value"].tensor.dtype
            if declared.WhichOneof("value") == "type" and declared.type != held:
                raise GraphError(
                    "constant-type",
                    node=node.name,
                    type=type_name(declared.type),
                    got=type_name(held),
                )
        if node.device and not all(map(_DEVICE.fullmatch, node.device.split("/"))):
            raise GraphError("device-unknown", node=node.name, device=node.device[:80])

    def check_name(self, node: Node) -> None:
        """Raise GraphError for a name that no node may bear."""
        if not LEGAL_NAME.fullmatch(node.name):
            raise GraphError("node-name-illegal", node=node.name[:80])

    def ports(self, node: Node) -> tuple[Ports, Ports]:
        """Return what a node reads and makes. GraphError: it asks for too much."""
        read, made = self._rule(node).signature.ports(node.attrs)
        if not 0 <= made.count <= MAX_PORTS:
            raise GraphError(
                "too-many",
                what=f"node '{node.name}' ({node.op})",
                count=made.count,
                unit="outputs",
                most=MAX_PORTS,
            )
        return read, made

    def _check_attribute(self, node: Node, name: str, value: AttrValue, rule: _Rule) -> None:
        demanded = rule.attrs.get(name)
        if demanded is not None and (fault := demanded.fault(value)):
            raise GraphError(
                "attribute-invalid", node=node.name, op=node.op, attribute=name, reason=fault
            )
        if demanded is not None and demanded.field == "type":
            return
        if fault := content_fault(value):
            raise GraphError("node-invalid", node=node.name, reason=fault)
        if demanded is None or demanded.field not in ("func", "list"):
            return
        for function in functions_in(value):
            known = function.name in self.functions or function.name in op_defs()
            if not known and (function.name or name in rule.required):
                hint = nearest(function.name, tuple(self.functions))
                raise GraphError(
                    "attribute-function-missing",
                    node=node.name,
                    op=node.op,
                    function=function.name,
                    attribute=name,
                    hint=hint,
                )

    def _rule(self, node: Node) -> _Rule:
        if node.op not in self._rules:
            op_def = op_defs().get(node.op)
            if op_def is None and node.op in self.functions:
                op_def = self.functions[node.op].signature
            if op_def is None and (why := other_release(node.op)):
                raise GraphError("node-invalid", node=node.name, reason=why)
            if op_def is None:
                hint = misspelt(node.op, (*self.functions, *op_defs()))
                raise GraphError("op-unknown", node=node.name, op=node.op, hint=hint)
            self._rules[node.op] = _Rule.of(op_def)
        return self._rules[node.op]
