"""Defaults of a command beside those of a function's parameter objects."""

import importlib
from dataclasses import fields as of
from typing import Any

import click


def defaults_of(command: str) -> dict[str, Any]:
    """Return what a command takes each of its parameters for where it is not given."""
    module = importlib.import_module(f"deploykit.cli.commands.{command.replace('-', '')}")
    found = getattr(module, command.replace("-", "_"))
    context = click.Context(found)
    return {str(each.name): _default(each, context) for each in found.params}


def _default(parameter: click.Parameter, context: click.Context) -> Any:
    value = parameter.get_default(context)
    if value is None or "UNSET" in str(value):
        return () if parameter.multiple else None
    return parameter.type_cast_value(context, value)


def assert_same_defaults(command: str, *objects: Any, **renamed: str) -> None:
    """Compare the defaults of a command with the fields of a function's parameter objects."""
    defaults = defaults_of(command)
    fields = {field.name: getattr(each, field.name) for each in objects for field in of(each)}
    shared = {name: value for name, value in fields.items() if renamed.get(name, name) in defaults}
    assert len(shared) > 2
    assert {name: defaults[renamed.get(name, name)] for name in shared} == shared
