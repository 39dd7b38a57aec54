"""TensorFlow's requirements on a single node: a legal name, a known op, and valid attributes."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploykit.transforms.common.errors import GraphError, misspelt, nearest
from deploykit.transforms.ir.functions import functions_in
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.ops import MAX_PORTS, op_defs, other_release
from deploykit.transforms.ir.protos import AttrValue, FunctionDef, OpDef
from deploykit.transforms.ir.tensors import check_size, is_type, type_name
from deploykit.transforms.untrusted.edges import OpPorts, Ports

MAX_RANK = 254  # of a shape in TensorFlow

# The field of AttrValue for an attribute, by its type in the registry.
_FIELDS = {
    **{"string": "s", "int": "i", "float": "f", "bool": "b"},
    **{kind: kind for kind in ("type", "shape", "tensor", "func")},
}
_TYPE_OF_FIELD = {field: type_ for type_, field in _FIELDS.items()}


@dataclass(frozen=True, slots=True)
class AttrRule:
    """The requirements on an attribute."""

    field: str
    """Field of AttrValue."""
    element: str = ""
    """For a list: the field of its elements; empty: any field."""
    minimum: int | None = None
    allowed: frozenset[object] = frozenset()
    """The allowed values; empty: any value."""

    @classmethod
    def of(cls, attr: OpDef.AttrDef) -> "AttrRule":
        """Create the rule from an op's definition."""
        kind = str(attr.type)
        is_list = kind.startswith("list(")
        field = _FIELDS.get(kind.removeprefix("list(").removesuffix(")"), "")
        values = attr.allowed_values.list
        return cls(
            "list" if is_list else field,
            field if is_list else "",
            attr.minimum if attr.has_minimum else None,
            frozenset(values.type if field == "type" else values.s),
        )

    def fault(self, value: AttrValue) -> str:
        """Return the fault of a value, as the end of a sentence about the attribute; or ''."""
        kind = value.WhichOneof("value") or "nothing"
        if kind == "type" == self.field and value.type in self.allowed:
            return ""
        if kind != self.field:
            held, expected = (_TYPE_OF_FIELD.get(item, item) for item in (kind, self.field))
            return f"contains {held}, but its op requires {expected}"
        if kind == "list":
            return self._list_fault(value.list)
        if kind == "type":
            return self._type_fault(value.type)
        if kind == "s" and self.allowed and value.s not in self.allowed:
            return self._not_allowed(value.s)
        if kind == "i" and self.minimum is not None and value.i < self.minimum:
            return f"is {value.i}, but its op requires at least {self.minimum}"
        return ""

    def _list_fault(self, values: AttrValue.ListValue) -> str:
        count = 0
        for field, items in values.ListFields():
            if self.element and field.name != self.element:
                held, expected = _TYPE_OF_FIELD[field.name], _TYPE_OF_FIELD[self.element]
                return f"is a list of {held}, but its op requires one of {expected}"
            count = len(items)
        if self.minimum is not None and count < self.minimum:
            return f"has {count} elements, but its op requires at least {self.minimum}"
        if self.element == "type":
            return next(filter(None, map(self._type_fault, set(values.type))), "")
        if self.allowed:
            wrong = [text for text in values.s if text not in self.allowed]
            return self._not_allowed(wrong[0]) if wrong else ""
        return ""

    def _type_fault(self, number: int) -> str:
        if not is_type(number):
            return f"is the type {number}, which no tensor has"
        if self.allowed and number not in self.allowed:
            return self._not_allowed(number)
        return ""

    def _not_allowed(self, value: Any) -> str:
        def shown(item: Any) -> str:
            return type_name(item) if isinstance(item, int) else repr(item)[1:][:80]

        allowed = ", ".join(sorted(map(shown, self.allowed)))
        return f"is {shown(value)}, but its op takes {allowed}"


def content_fault(value: AttrValue) -> str:
    """Return the fault of the shapes and tensors in an attribute, independent of the op; or ''."""
    kind = value.WhichOneof("value")
    if kind == "shape":
        return _shape_fault(value.shape)
    if kind not in ("tensor", "list"):
        return ""
    for tensor in [value.tensor] if kind == "tensor" else value.list.tensor:
        try:
            check_size(tensor)
        except GraphError as error:
            return str(error)
    return next(filter(None, map(_shape_fault, value.list.shape if kind == "list" else ())), "")


def _shape_fault(shape: Any) -> str:
    sizes = [dim.size for dim in shape.dim]
    if len(sizes) > MAX_RANK:
        return f"a shape has {len(sizes)} dimensions, but TensorFlow takes at most {MAX_RANK}"
    is_wrong = (shape.unknown_rank and sizes) or any(size < -1 for size in sizes)
    if is_wrong or math.prod(max(size, 1) for size in sizes) >= 1 << 63:
        return f"no tensor has the shape {sizes}"
    return ""


LEGAL_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*")  # TensorFlow's own rule

_DEVICE = re.compile(  # one part of a device name
    r"|job:[^:]*|(replica|task):(\d+|\*)|(device:[A-Za-z]\w*|(?i:[CGT]PU|XLA_\w+))(:(\d+|\*))?"
)
_CLASS = AttrRule("list", "s")  # for any op


@dataclass(frozen=True, slots=True)
class _Rule:
    """The requirements of an op's definition on a node."""

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
        """Create the rules; `functions` are those of the graph's library."""
        self.functions = functions
        self._rules: dict[str, _Rule] = {}

    def knows(self, op: str) -> bool:
        """Return whether an op is one of TensorFlow's or of the library."""
        return op in self._rules or op in op_defs() or op in self.functions

    def check(self, node: Node, in_function: bool = False) -> None:
        """Check the name, op and attributes of a node. GraphError: one is invalid."""
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
        """Raise GraphError for an illegal node name."""
        if not LEGAL_NAME.fullmatch(node.name):
            raise GraphError("node-name-illegal", node=node.name[:80])

    def ports(self, node: Node) -> tuple[Ports, Ports]:
        """Return the inputs and outputs of a node. GraphError: there are too many."""
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
