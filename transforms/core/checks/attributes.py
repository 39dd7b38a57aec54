"""What an op's definition demands of an attribute: its kind, and the values that it may have."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.protos import AttrValue, OpDef
from deploykit.transforms.core.tensors import check_size, is_type, type_name

MAX_RANK = 254  # of a shape, for TensorFlow

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
class AttrRule:
    """What is demanded of an attribute."""

    field: str
    """Of AttrValue."""
    element: str = ""
    """Of a list: the field of its elements; empty: of any."""
    minimum: int | None = None
    allowed: frozenset[object] = frozenset()
    """Empty: any value."""

    @classmethod
    def of(cls, attr: OpDef.AttrDef) -> "AttrRule":
        """Read it from an op's definition."""
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
        """Return what is wrong with a value, to follow the attribute's name; or an empty string."""
        kind = value.WhichOneof("value") or "nothing"
        if kind == "type" == self.field and value.type in self.allowed:
            return ""
        if kind != self.field:
            held, wanted = (_TYPE_OF_FIELD.get(each, each) for each in (kind, self.field))
            return f"holds {held}, but its op demands {wanted}"
        if kind == "list":
            return self._list_fault(value.list)
        if kind == "type":
            return self._type_fault(value.type)
        if kind == "s" and self.allowed and value.s not in self.allowed:
            return self._not_allowed(value.s)
        if kind == "i" and self.minimum is not None and value.i < self.minimum:
            return f"is {value.i}, but its op demands at least {self.minimum}"
        return ""

    def _list_fault(self, values: AttrValue.ListValue) -> str:
        count = 0
        for field, items in values.ListFields():
            if self.element and field.name != self.element:
                held, wanted = _TYPE_OF_FIELD[field.name], _TYPE_OF_FIELD[self.element]
                return f"is a list of {held}, but its op demands one of {wanted}"
            count = len(items)
        if self.minimum is not None and count < self.minimum:
            return f"has {count} elements, but its op demands at least {self.minimum}"
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
        def shown(each: Any) -> str:
            return type_name(each) if isinstance(each, int) else repr(each)[1:][:80]

        allowed = ", ".join(sorted(map(shown, self.allowed)))
        return f"is {shown(value)}, but its op takes {allowed}"


def content_fault(value: AttrValue) -> str:
    """Return what is wrong with the shapes and tensors that an attribute holds, by themselves."""
    kind = value.WhichOneof("value")
    if kind == "shape":
        return _shape_fault(value.shape)
    if kind == "tensor":
        return _tensor_fault([value.tensor])
    if kind == "list":
        return _tensor_fault(value.list.tensor) or next(
            filter(None, map(_shape_fault, value.list.shape)), ""
        )
    return ""


def _tensor_fault(tensors: Iterable[Any]) -> str:
    for tensor in tensors:
        try:
            check_size(tensor)
        except GraphError as error:
            return str(error)
    return ""


def _shape_fault(shape: Any) -> str:
    sizes = [dim.size for dim in shape.dim]
    if len(sizes) > MAX_RANK:
        return f"a shape has {len(sizes)} dimensions, but TensorFlow takes at most {MAX_RANK}"
    is_wrong = shape.unknown_rank and sizes
    if is_wrong or any(size < -1 for size in sizes):
        return f"no tensor has the shape {sizes}"
    if math.prod(max(size, 1) for size in sizes) >= 1 << 63:
        return f"no tensor has the shape {sizes}"
    return ""
