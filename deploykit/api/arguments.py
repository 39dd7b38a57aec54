"""Checks of the arguments of public functions against their declared types and bounds.

The bounds in `Annotated[T, Flag(...)]` apply to the command line and to Python.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from inspect import Parameter
from numbers import Integral, Real
from typing import Any, Literal, get_args, get_origin

from deploykit.storage.parameters import option_fields
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.common.flag import Flag, alternatives, declared, is_range

_SEQUENCES = (Sequence, Collection, Iterable, list, tuple)
_NUMBER_FORMATS = ("", "whole", "number", "percent", "counts")


def check_arguments(
    function: str, parameters: Mapping[str, Parameter], values: Mapping[str, Any]
) -> None:
    """Raise an error for a value that its parameter does not accept.

    Args:
        function: the name of the function, for messages.
        parameters: the parameters of the function, by name.
        values: the arguments, by parameter. Each field of an option value is checked. Default
            values are always accepted.

    GraphError: a number is out of range. TypeError: a value is not a number, or a single string is
    passed instead of a sequence of strings.
    """
    for name, annotation, default, value in _flat(parameters, values):
        is_default = value is default or (isinstance(value, Real) and value == default)
        if value is not None and not is_default and not isinstance(annotation, str):
            _check(f"{function}()", name, annotation, value)


def _flat(
    parameters: Mapping[str, Parameter], values: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any, Any]]:
    """Yield name, type, default and value of each parameter and of each field of option values."""
    for name, value in values.items():
        if is_dataclass(value) and not isinstance(value, type):
            for field in option_fields(value):
                yield field.name, field.type, field.default, getattr(value, field.name)
        else:
            yield name, parameters[name].annotation, parameters[name].default, value


def _check(function: str, name: str, annotation: Any, value: Any) -> None:
    type_, flag = declared(annotation)
    types = alternatives(type_)
    several = any(get_origin(type_) in _SEQUENCES for type_ in types)
    alone = any(get_origin(type_) not in _SEQUENCES for type_ in types)
    words = _words(types)
    are_strings = any(
        get_origin(type_) in _SEQUENCES and get_args(type_)[:1] == (str,) for type_ in types
    )
    if isinstance(value, str) and several and not alone and (words or are_strings):
        raise TypeError(f"{function}: {name} must be a sequence of strings, got {value!r}")
    if types == (str,) and isinstance(value, list | tuple | Mapping):
        raise TypeError(f"{function}: {name} must be a string, got {value!r}")
    if flag.format == "range" and not _is_range(value):
        expected = "two finite numbers (low, high) with low < high"
        raise GraphError("out-of-range", name=name, expected=expected, got=value)
    for item in _each(value) if words else ():
        if item not in words:
            raise GraphError("not-one-of", what=name, known=words, got=item)
    numbers = _numbers(types)
    if numbers and flag.format in _NUMBER_FORMATS:
        for item in _each(value):
            is_whole = numbers == {int}
            if not isinstance(item, Real):
                raise TypeError(f"{function}: {name} must be a number, got {item!r}")
            if is_whole and (isinstance(item, bool) or not isinstance(item, Integral)):
                raise TypeError(f"{function}: {name} must be a whole number, got {item!r}")
            _check_number(name, flag, is_whole, item)


def _is_range(value: Any) -> bool:
    """Return whether a value consists of the two ends of a range."""
    ends = _each(value)
    return (
        len(ends) == 2
        and all(isinstance(end, Real) for end in ends)
        and is_range(*map(float, ends))
    )


def _each(value: Any) -> list[Any]:
    """Return the items of a collection, or the value itself; an empty list for an iterator."""
    if isinstance(value, Iterator):
        return []
    if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__"):
        return [value]
    return [value] if getattr(value, "ndim", 1) == 0 else list(value)


def _check_number(name: str, flag: Flag, is_whole: bool, value: Real) -> None:
    """Raise GraphError for a number that is not finite or out of range."""
    number, most = float(value), flag.at_most
    least: float | None = 1 if is_whole and flag.at_least is None else flag.at_least
    is_right = (
        math.isfinite(number)
        and (least is None or number >= least)
        and (flag.above is None or number > flag.above)
        and (most is None or number <= most)
    )
    if not is_right:
        bounds = _expected(least, flag.above, most)
        expected = bounds if math.isfinite(number) else f"finite and {bounds}"
        raise GraphError("out-of-range", name=name, expected=expected, got=value)


def _expected(least: float | None, above: float | None, most: float | None) -> str:
    parts = []
    if least is not None:
        parts.append(f"at least {least:g}")
    if above is not None:
        parts.append(f"above {above:g}")
    if most is not None:
        parts.append(f"at most {most:.15g}")
    return " and ".join(parts) or "a number"


def _words(types: Iterable[Any]) -> tuple[Any, ...]:
    """Return the values of Literal types or sequences of them; empty if there are other types."""
    results: tuple[Any, ...] = ()
    for type_ in types:
        inner = get_args(type_)[0] if get_origin(type_) in _SEQUENCES else type_
        if get_origin(inner) is not Literal:
            return ()
        results += get_args(inner)
    return tuple(dict.fromkeys(results))


def _numbers(types: Sequence[Any]) -> set[type]:
    """Return the number types, alone or in sequences; empty if there are other types."""
    result: set[type] = set()
    for type_ in types:
        inner = get_args(type_)[:1] if get_origin(type_) in _SEQUENCES else (type_,)
        if not inner or inner[0] not in (int, float) or get_origin(type_) is tuple:
            return set()
        result.add(inner[0])
    return result
