"""What TensorFlow demands of a node by itself: a legal name, a known op, the op's attributes."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from deploykit.transforms.core.errors import GraphError, nearest
from deploykit.transforms.core.functions import functions_in
from deploykit.transforms.core.node import Node
from deploykit.transforms.core.ops import op_defs
from deploykit.transforms.core.protos import AttrValue, FunctionDef, OpDef
from deploykit.transforms.core.tensors import check_size, type_name

LEGAL_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*")  # TensorFlow's own rule
MAX_OUTPUTS = 1 << 20  # of one node; nothing honest comes near, TensorFlow takes all memory beyond

# The field of AttrValue that holds an attribute, by its type in the registry.
_FIELDS = {
    "string": "s",
    "int": "i",
    "float": "f",
    "bool": "b",
    "type": "type",
    "shape": "shape",
    "tensor": "tensor",
    "func": "func",
}
_TYPE_OF_FIELD = {field: type_ for type_, field in _FIELDS.items()}


@dataclass(frozen=True, slots=True)
class _Rule:
    """What an op's definition demands of a node."""

    op_def: OpDef
    fields: dict[str, str]
    required: tuple[str, ...]
    defaults: dict[str, AttrValue]
    inputs: int | None
    """How many, or None where attributes say."""
    outputs: int | None


class NodeRules:
    """The rules of the ops and functions that a graph may use."""

    def __init__(self, functions: Mapping[str, FunctionDef]) -> None:
        self.functions = functions
        self._rules: dict[str, _Rule] = {}

    def check(self, node: Node, in_function: bool = False) -> None:
        """Check a node by itself: name, op and attributes."""
        if not LEGAL_NAME.fullmatch(node.name):
            raise GraphError(
                f"node '{node.name[:80]}': its name is not legal; a name starts with a letter, a "
                "digit or a dot, and goes on with these and _ / \\ - >"
            )
        rule = self._rule(node)
        for name in rule.required:
            if name not in node.attrs:
                raise GraphError(
                    f"node '{node.name}' ({node.op}) lacks the attribute '{name}', which its op "
                    "demands"
                )
        for name, value in node.attrs.items():
            kind = value.WhichOneof("value")
            expected = rule.fields.get(name)
            if kind == "placeholder" and in_function:
                continue
            if expected is not None and kind != expected:
                raise GraphError(
                    f"node '{node.name}' ({node.op}): attribute '{name}' holds "
                    f"{_TYPE_OF_FIELD.get(kind or '', kind or 'nothing')}, but its op demands "
                    f"{_TYPE_OF_FIELD.get(expected, expected)}"
                )
            if kind == "shape":
                sizes = [dim.size for dim in value.shape.dim]
                if math.prod(max(size, 1) for size in sizes) >= 1 << 63:
                    raise GraphError(f"node '{node.name}': no tensor has the shape {sizes}")
            elif kind == "tensor":
                self._check_tensors(node, [value])
            elif kind == "list" and value.list.tensor:
                self._check_tensors(node, [AttrValue(tensor=t) for t in value.list.tensor])
            if expected in ("func", "list"):
                self._check_functions(node, name, value, name in rule.required)
        if node.op in ("Const", "HostConst"):
            declared, held = node.attrs["dtype"], node.attrs["value"].tensor.dtype
            if declared.WhichOneof("value") == "type" and declared.type != held:
                raise GraphError(
                    f"node '{node.name}': its type is {type_name(declared.type)}, but its tensor "
                    f"is of type {type_name(held)}"
                )
        if rule.outputs is None and not in_function:
            count = self.output_count(node)
            if not 0 <= count <= MAX_OUTPUTS:
                raise GraphError(
                    f"node '{node.name}' ({node.op}) asks for {count} outputs, but there can be at "
                    f"most {MAX_OUTPUTS}"
                )

    def _check_tensors(self, node: Node, values: Iterable[AttrValue]) -> None:
        for value in values:
            try:
                check_size(value.tensor)
            except GraphError as error:
                raise GraphError(f"node '{node.name}': {error}") from None

    def _check_functions(self, node: Node, attr: str, value: AttrValue, required: bool) -> None:
        for function in functions_in(value):
            known = function.name in self.functions or function.name in op_defs()
            if not known and (function.name or required):
                hint = nearest(function.name, tuple(self.functions))
                raise GraphError(
                    f"node '{node.name}' ({node.op}): the graph's library has no function "
                    f"'{function.name}', named by its attribute '{attr}'{hint}"
                )

    def input_count(self, node: Node) -> int:
        """Return how many data inputs a node must have."""
        rule = self._rule(node)
        return _count(node, rule, "input_arg") if rule.inputs is None else rule.inputs

    def output_count(self, node: Node) -> int:
        """Return how many outputs a node makes."""
        rule = self._rule(node)
        return _count(node, rule, "output_arg") if rule.outputs is None else rule.outputs

    def _rule(self, node: Node) -> _Rule:
        if node.op not in self._rules:
            op_def = op_defs().get(node.op)
            if op_def is None and node.op in self.functions:
                op_def = self.functions[node.op].signature
            if op_def is None:
                hint = nearest(node.op, (*self.functions, *op_defs()))
                raise GraphError(
                    f"node '{node.name}': {node.op} is neither an op of TensorFlow nor a function "
                    f"of the graph's library{hint}"
                )
            self._rules[node.op] = _make_rule(op_def)
        return self._rules[node.op]


def _make_rule(op_def: OpDef) -> _Rule:
    counts: list[int | None] = []
    for args in (op_def.input_arg, op_def.output_arg):
        is_fixed = not any(arg.number_attr or arg.type_list_attr for arg in args)
        counts.append(len(args) if is_fixed else None)
    return _Rule(
        op_def,
        {attr.name: _FIELDS.get(attr.type, "list") for attr in op_def.attr},
        tuple(attr.name for attr in op_def.attr if not attr.HasField("default_value")),
        {attr.name: attr.default_value for attr in op_def.attr},
        *counts,
    )


def _count(node: Node, rule: _Rule, side: str) -> int:
    """Return how many tensors a node reads or makes, without a list of them."""
    total = 0
    for arg in getattr(rule.op_def, side):
        name = arg.number_attr or arg.type_list_attr
        value = node.attrs.get(name) or rule.defaults.get(name, AttrValue())
        if arg.number_attr:
            total += value.i
        else:
            total += len(value.list.type) if arg.type_list_attr else 1
    return total
