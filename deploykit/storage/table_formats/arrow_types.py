"""Arrow types: whether their values are texts, numbers or lists, and how these are nested."""

from dataclasses import dataclass
from typing import Any

_MAX_LISTS = 31  # in each other: NumPy 1 has 32 axes, and the first one is the rows


@dataclass(frozen=True)
class ColumnKind:
    """What the values of an Arrow type are: texts or numbers, and how many lists are nested."""

    is_text: bool
    depth: int
    sizes: tuple[int, ...] = ()
    """The sizes of fixed-size lists, if all lists are."""


def kind_of(type_: Any) -> ColumnKind | None:
    """Return the kind of an Arrow type; None: no model takes such values."""
    import pyarrow as pa

    depth, sizes = 0, []
    while is_list(type_):
        depth += 1
        if pa.types.is_fixed_size_list(type_):
            sizes.append(type_.list_size)
        type_ = type_.value_type
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    is_number = (
        pa.types.is_integer(type_)
        or pa.types.is_floating(type_)
        or pa.types.is_boolean(type_)
        or pa.types.is_decimal(type_)
    )
    if depth > _MAX_LISTS or not (is_number or is_text(type_)):
        return None
    return ColumnKind(not is_number, depth, tuple(sizes) if len(sizes) == depth else ())


def is_list(type_: Any) -> bool:
    """Return whether an Arrow type is one of lists."""
    import pyarrow as pa

    kinds = pa.types
    return bool(
        kinds.is_list(type_) or kinds.is_large_list(type_) or kinds.is_fixed_size_list(type_)
    )


def element_type(type_: Any) -> Any:
    """Return the type of the values in an Arrow type of nested lists; another type unchanged."""
    while is_list(type_):
        type_ = type_.value_type
    return type_


def with_values(type_: Any, values: Any) -> Any:
    """Return an Arrow type of the same lists with values of another type."""
    import pyarrow as pa

    if not is_list(type_):
        return values
    inner = with_values(type_.value_type, values)
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(inner, type_.list_size)
    return pa.large_list(inner) if pa.types.is_large_list(type_) else pa.list_(inner)


def is_text(type_: Any) -> bool:
    """Return whether an Arrow type is one of strings or bytes."""
    import pyarrow as pa

    kinds = pa.types
    return bool(
        kinds.is_string(type_)
        or kinds.is_large_string(type_)
        or kinds.is_string_view(type_)
        or kinds.is_binary(type_)
        or kinds.is_large_binary(type_)
        or kinds.is_fixed_size_binary(type_)
    )


def stored_type(type_: Any) -> Any:
    """Return the type that an extension type stores or a view of texts shows, or the type itself.

    A tensor of several axes is not what it stores, which is one flat list in any order of the axes.
    """
    import pyarrow as pa

    views = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    if type_ in views:
        return views[type_]
    is_tensor = isinstance(type_, pa.FixedShapeTensorType) and len(type_.shape) > 1
    is_extension = isinstance(type_, pa.BaseExtensionType) and not is_tensor
    return type_.storage_type if is_extension else type_
