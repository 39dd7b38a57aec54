"""A JSON Schema of each result and file, from the types of its fields and marked properties."""

import dataclasses
import functools
import importlib
import json
import pkgutil
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Annotated, Any, ForwardRef, Literal, Union

import msgspec

import deploykit
from deploykit.transforms.common.documents import Documented, Member, members

_FILES = {
    "cli.output": "Report",
    "importers.metadata_file": "About",
    "data.preprocessing": "Preprocessing",
    "records.index": "Index",
    "transforms.engines.engine_manifest": "EngineManifest",
    "transforms.int8.ranges": "Ranges",
}
_UNWRITTEN = ("AsHtml", "Graph", "OpenedModel")  # they have no document


def pages() -> dict[str, str]:
    """Return the JSON Schema of each document, by file name."""
    found = {}
    for kind in _kinds():
        (schema,), components = msgspec.json.schema_components(
            [_struct(kind)], ref_template="#/$defs/{name}"
        )
        name = schema["$ref"].rpartition("/")[2]
        document = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            **components.pop(name),
            **({"$defs": components} if components else {}),
        }
        if not document.get("properties"):
            raise ValueError(f"the schema of {name} has no keys: type what is written of it")
        found[f"{kind.__name__}.json"] = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    return found


def _kinds() -> list[type]:
    """Return the classes of public results and of files that deploykit writes."""
    for module in pkgutil.walk_packages(deploykit.__path__, "deploykit."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    kinds: dict[str, type] = {
        name: getattr(importlib.import_module(f"deploykit.{module}"), name)
        for module, name in _FILES.items()
    }
    kinds |= {kind.__name__: kind for kind in _below(Documented)}
    return [kinds[name] for name in sorted(kinds) if name not in _UNWRITTEN]


def _below(kind: type) -> Iterator[type]:
    below: list[type] = kind.__subclasses__()
    for each in below:
        yield from ([each] if each.__module__.startswith("deploykit.") else ())
        yield from _below(each)


@functools.cache
def _struct(kind: type) -> Any:
    """Return a msgspec type with the keys of a class in its document."""
    fields: dict[str, tuple[Any, bool]] = {
        key: (Literal[value], False) for key, value in getattr(kind, "HEAD", {}).items()
    }
    for key, type_, is_optional in _written(kind):
        fields[key] = (type_, is_optional)  # a later key replaces an earlier one, as in `document`
    names = {key: f"field_{number}" for number, key in enumerate(fields)}
    return msgspec.defstruct(
        kind.__name__,
        [
            (names[key], type_ | msgspec.UnsetType, msgspec.UNSET) if is_optional
            else (names[key], type_)
            for key, (type_, is_optional) in sorted(fields.items(), key=lambda each: each[1][1])
        ],
        rename={name: key for key, name in names.items()},
        namespace={"__doc__": " ".join((kind.__doc__ or "").split("\n\n")[0].split())},
    )  # fmt: skip


def _written(kind: type) -> Iterator[tuple[str, Any, bool]]:
    """Yield key, type and whether it is optional, for each member of a class in its document."""
    for each in members(kind):
        type_ = _resolved(_type_of(each), _home(kind, each))
        if each.how.flat:
            if typing.is_typeddict(type_):
                yield from _typed_keys(type_)
                continue
            inner = _dataclass_in(type_)
            for key, below, is_optional in () if inner is None else _written(inner):
                yield key, below, is_optional or inner is not type_
            continue
        plain = _plain(type_)
        is_optional = each.how.if_set or getattr(kind, "OMIT_DEFAULTS", False)
        yield each.key, plain | None if each.how.or_null else plain, is_optional


def _typed_keys(kind: Any) -> Iterator[tuple[str, Any, bool]]:
    """Yield key, type and whether it is optional, for each key of a TypedDict."""
    for key, type_ in typing.get_type_hints(kind).items():
        yield key, _plain(type_), key not in kind.__required_keys__


def _type_of(member: Member) -> Any:
    if member.how.by is None:
        return member.type
    return getattr(member.how.by, "__annotations__", {}).get("return", Any)


def _home(kind: type, member: Member) -> dict[str, Any]:
    """Return the namespace for the annotations of a member."""
    homes = [each for each in kind.__mro__ if member.name in vars(each).get("__annotations__", {})]
    homes = homes or [each for each in kind.__mro__ if member.name in vars(each)] or [kind]
    return vars(sys.modules[homes[0].__module__])


def _resolved(type_: Any, names: Mapping[str, Any]) -> Any:
    """Return a type without quotes; Any where only type checkers import it."""
    if isinstance(type_, ForwardRef):
        type_ = type_.__forward_arg__
    if isinstance(type_, str):
        try:
            return _resolved(eval(type_, dict(names)), names)
        except NameError:
            return Any
    if typing.get_origin(type_) is Annotated:
        return _resolved(type_.__origin__, names)
    return type_


def _dataclass_in(type_: Any) -> type | None:
    """Return the one dataclass of a type that may be None."""
    parts = [each for each in typing.get_args(type_) or (type_,) if dataclasses.is_dataclass(each)]
    return parts[0] if len(parts) == 1 and isinstance(parts[0], type) else None


def _plain(type_: Any) -> Any:
    """Return the type of the result of `document` for values of a type."""
    origin, inner = typing.get_origin(type_), typing.get_args(type_)
    if origin is Annotated:
        return _plain(type_.__origin__)
    if type_ is float:
        return float | None  # None for NaN and Inf
    if typing.is_typeddict(type_):
        return type_
    if type_ in (str, int, bool, None, types.NoneType) or origin is Literal:
        return type_
    if isinstance(type_, type) and (dataclasses.is_dataclass(type_) or members(type_)):
        return _struct(type_)
    if origin in (Union, types.UnionType):
        return _union([_plain(each) for each in inner])
    if isinstance(type_, type) and issubclass(type_, PurePath):
        return str
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return dict[str, _plain(inner[1])]  # type: ignore[misc]
    if origin is tuple and Ellipsis not in inner:
        return tuple[tuple(map(_plain, inner))]  # type: ignore[misc]
    if isinstance(origin, type) and hasattr(origin, "__iter__"):
        return list[_plain(inner[0])]  # type: ignore[misc]
    return Any


def _union(parts: list[Any]) -> Any:
    """Return a union, or Any if msgspec cannot distinguish its members."""
    objects = [each for each in parts if isinstance(each, type(msgspec.Struct))
               or typing.get_origin(each) is dict]  # fmt: skip
    return Any if Any in parts or len(objects) > 1 else Union[tuple(parts)]  # noqa: UP007
