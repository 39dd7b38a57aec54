"""Convert values to JSON documents and back by their field types, and to HTML in notebooks."""

import dataclasses
import functools
import importlib
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, get_origin

import msgspec

from deploykit.transforms.common.errors import GraphError

FORMAT = 1
"""Format version of all documents; it increases when a key is removed or changes its meaning."""

NOT_NEGATIVE = msgspec.Meta(ge=0.0, le=sys.float_info.max)
ABOVE_ZERO = msgspec.Meta(gt=0.0, le=sys.float_info.max)
"""Constraints on finite numbers that are read."""

T = TypeVar("T")
_MISSING = re.compile(r"Object missing required field (.*)")
_NAMES = re.compile(r"str matching regex '\\\\A\(([\w|-]*)\)\??\\\\Z'")
_STEPS = re.compile(r"([^.\[\]]+)|\[(\d+|\.\.\.)\]")


@dataclass(frozen=True)
class Written:
    """How a field or a property is written to a document."""

    key: str = ""
    """The key in the document; default: the name of the field."""
    digits: int | None = None
    """Number of decimals to round to."""
    hidden: bool = False
    """Whether the field is omitted from the document."""
    if_set: bool = False
    """Whether the field is omitted where it is empty."""
    or_null: bool = False
    """Whether an empty field is written as null."""
    flat: bool = False
    """Whether the keys of the value are merged into the document of the parent."""
    by: Callable[[Any], Any] | None = None
    """Function whose result is written instead of the value."""


Hidden = Annotated[T, Written(hidden=True)]
IfSet = Annotated[T, Written(if_set=True)]
OrNull = Annotated[T, Written(or_null=True)]
Flat = Annotated[T, Written(flat=True)]


@dataclass(frozen=True)
class Member:
    """A field or a property that is written."""

    name: str
    type: Any
    how: Written
    default: Any = ...

    @property
    def key(self) -> str:
        """Key in the document."""
        return self.how.key or self.name


def written(key: str = "", **how: Any) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Mark the function of a property to be written; the options are those of `Written`.

    Example:
        >>> class Square:
        ...     @property
        ...     @written()
        ...     def corners(self) -> int:
        ...         return 4
        >>> document(Square())
        {'corners': 4}
    """

    def marked(function: Callable[..., T]) -> Callable[..., T]:
        function.__written__ = Written(key, **how)  # type: ignore[attr-defined]
        return function

    return marked


def head(kind: str) -> dict[str, Any]:
    """Return the first keys of a file, its format and its kind, for a class attribute HEAD."""
    return {"format": FORMAT, "kind": kind}


def document(value: Any) -> Any:
    """Return a value as plain data: non-finite numbers become null, tuples become lists.

    A dataclass becomes a dictionary: the attribute HEAD of its class, then its fields, then the
    marked properties. OMIT_DEFAULTS of its class omits fields that have their default values.
    """
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): document(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [document(item) for item in value]
    if isinstance(value, AbstractSet):
        return sorted(map(document, value))
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    kind: Any = type(value)
    if dataclasses.is_dataclass(value) or members(kind):
        return dict(_items(value))
    if hasattr(value, "tolist"):  # of NumPy
        return document(value.tolist())
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")


class Documented:
    """A value that can be converted to a document."""

    def document(self) -> dict[str, Any]:
        """Return the plain data that `--json` prints. Non-finite numbers are null."""
        results: dict[str, Any] = document(self)
        return results


@functools.cache
def members(kind: Any) -> tuple[Member, ...]:
    """Return the written members of a class: fields that are not hidden, and marked properties."""
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    results = {field_.name: Member(field_.name, field_.type, _how(field_.type), field_.default)
             for field_ in fields if not field_.name.startswith("_")}  # fmt: skip
    for home in reversed(kind.__mro__):
        for name, value in vars(home).items():
            how = getattr(getattr(value, "fget", None), "__written__", None)
            if how is not None:
                results[name] = Member(name, value.fget.__annotations__.get("return", Any), how)
    return tuple(result for result in results.values() if not result.how.hidden)


def _how(type_: Any) -> Written:
    marks = type_.__metadata__ if get_origin(type_) is Annotated else ()
    return next((mark for mark in marks if isinstance(mark, Written)), Written())


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    kind: Any = type(value)
    yield from getattr(kind, "HEAD", {}).items()
    omits = getattr(kind, "OMIT_DEFAULTS", False)
    for member in members(kind):
        result, how = getattr(value, member.name), member.how
        result = result if how.by is None else how.by(result)
        is_empty = result is None or (hasattr(result, "__len__") and not len(result))
        if (how.if_set and is_empty) or (omits and result == member.default):
            continue
        if how.flat:
            yield from ({} if result is None else document(result)).items()
        elif how.or_null and is_empty:
            yield member.key, None
        else:
            yield member.key, _rounded(document(result), how.digits)


def _rounded(plain: Any, digits: int | None) -> Any:
    if digits is None:
        return plain
    if isinstance(plain, list):
        return [_rounded(item, digits) for item in plain]
    if isinstance(plain, dict):
        return {key: _rounded(item, digits) for key, item in plain.items()}
    return round(plain, digits) if isinstance(plain, float) else plain


def converted(plain: Any, kind: type[T]) -> T:
    """Return plain data as a value of a type, checked against the constraints of its fields.

    Keys that the type does not know are ignored. GraphError: the data does not fit (names the key).
    """
    try:
        return msgspec.convert(plain, kind)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise _in_words(str(error).replace("`", ""), plain) from None


def _in_words(message: str, plain: Any) -> GraphError:
    """Convert an error of msgspec, for example to `samples is 0, expected int >= 1`."""
    reason, _, path = message.partition(" - at $")
    path = path.removeprefix(".")
    if missing := _MISSING.fullmatch(reason):
        return GraphError("key-missing", what=path or "it", key=missing[1])
    reason = (reason[:1].lower() + reason[1:].partition(", got ")[0]).removeprefix("expected ")
    if names := _NAMES.search(reason):
        reason = f"one of {names[1].replace('|', ', ')}"
    if (got := _at(plain, path)) is not _MISSING:
        return GraphError("unexpected", what=path or "it", got=got, expected=reason)
    return GraphError("value-unexpected", what=path or "it", expected=reason)


def _at(plain: Any, path: str) -> Any:
    """Return the value at a path; _MISSING: msgspec does not name the keys of the path."""
    for name, number in _STEPS.findall(path):
        try:
            plain = plain[name] if name else plain[int(number)]
        except (LookupError, TypeError, ValueError):
            return _MISSING
    return plain


class AsHtml(Documented):
    """A result of an API function: in Jupyter it shows the tables of the command line.

    Formatters are in a higher layer of the package, so the formatter is imported by its name.
    """

    def __init_subclass__(cls) -> None:
        """Register the printer, as IPython would otherwise use the `repr` of a dataclass."""
        super().__init_subclass__()
        cls._repr_pretty_ = AsHtml._repr_pretty_  # type: ignore[method-assign]

    def _repr_html_(self) -> str:
        """Return HTML for a notebook; without a formatter, the `repr`."""
        html: str = _drawing().html_of(self)
        return html

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the value as text where it stands alone; a result may have a million latencies."""
        is_alone = len(getattr(printer, "stack", ())) < 2
        printer.text(_drawing().plain_of(self) if is_alone else repr(self))


def _drawing() -> Any:
    return importlib.import_module("deploykit.rendering.formatters.shown")
