"""Parameter objects, whose fields may also be given one by one: `f(how)` or `f(isa="avx2")`."""

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, replace
from typing import Any, TypeVarTuple

from deploykit.transforms.core.errors import nearest

Values = TypeVarTuple("Values")


def option_fields(kind: Any) -> list[Field[Any]]:
    """Return the fields of a class that are options: those with a default."""
    return [each for each in fields(kind) if not each.default is each.default_factory is MISSING]


def with_options(function: str, options: Mapping[str, Any], *values: *Values) -> tuple[*Values]:
    """Return parameter objects with some of their fields replaced; no two have one of a name.

    TypeError, as Python raises it: `function` takes no such option; it names the nearest.
    """
    objects: tuple[Any, ...] = values
    own = [[field.name for field in option_fields(each)] for each in objects]
    known = [name for names in own for name in names]
    for name in options:
        if name not in known:
            raise TypeError(
                f"{function}() got an unexpected keyword argument '{name}'{nearest(name, known)}"
            )
    found: Any = tuple(
        replace(each, **{name: options[name] for name in names if name in options})
        for each, names in zip(objects, own, strict=True)
    )
    return found  # type: ignore[no-any-return]
