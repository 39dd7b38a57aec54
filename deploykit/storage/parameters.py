"""Option objects whose fields are also keyword arguments: `f(how)` or `f(isa="avx2")`."""

import functools
import warnings
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, replace
from typing import Any, TypeVar, TypeVarTuple

from deploykit.transforms.common import removed
from deploykit.transforms.common.errors import nearest
from deploykit.transforms.common.flag import declared

T = TypeVar("T")
Values = TypeVarTuple("Values")


def option_fields(kind: Any) -> list[Field[Any]]:
    """Return the option fields of a dataclass: those with a default."""
    return [
        field_ for field_ in fields(kind) if not field_.default is field_.default_factory is MISSING
    ]


def former_names(kind: Any) -> dict[str, str]:
    """Return the former names of an option class's fields, mapped to their current names."""
    return {
        old: field.name
        for field in fields(kind)
        for old in declared(field.type)[1].formerly.split()
    }


def renamed(
    function: str, keywords: Mapping[str, Any], names: Mapping[str, str], stack: int = 3
) -> dict[str, Any]:
    """Return keyword arguments under current names, with a DeprecationWarning per former name.

    TypeError: an argument is passed under both names.
    """
    results = dict(keywords)
    for old in names.keys() & keywords.keys():
        new = names[old]
        if new in keywords:
            raise TypeError(f"{function}() got '{old}', which is now '{new}', besides '{new}'")
        text = f"{function}({old}=...) is now {new}; the old name goes in the next release"
        warnings.warn(text, DeprecationWarning, stacklevel=stack)
        results[new] = results.pop(old)
    return results


def takes_former_names(kind: type[T]) -> type[T]:
    """Let the constructor of an option class accept the deprecated former names of its fields.

    Its TypeError for a removed field names the substitute.
    """
    made: Any = kind.__init__
    names = former_names(kind)

    @functools.wraps(made)
    def make(self: Any, *values: Any, **keywords: Any) -> None:
        for name in keywords:
            removed.check_field(kind.__name__, kind.__name__, name)
        made(self, *values, **renamed(kind.__name__, keywords, names))

    kind.__init__ = make  # type: ignore[method-assign]
    return kind


def with_options(function: str, options: Mapping[str, Any], *values: *Values) -> tuple[*Values]:
    """Return option objects with some fields replaced; field names are unique across the objects.

    TypeError: `function` has no such option; the message suggests the closest name, or the
    substitute of a removed option.
    """
    objects: tuple[Any, ...] = values
    own = [[field.name for field in option_fields(object_)] for object_ in objects]
    known = [name for names in own for name in names]
    for name in options:
        if name not in known:
            for item in values:
                removed.check_field(function, type(item).__name__, name)
            raise TypeError(
                f"{function}() got an unexpected keyword argument '{name}'{nearest(name, known)}"
            )
    results: Any = tuple(
        replace(item, **{name: options[name] for name in names if name in options})
        for item, names in zip(objects, own, strict=True)
    )
    return results  # type: ignore[no-any-return]
