"""Options put together: several as one decorator, or as one value."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def all_of(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return a decorator that adds options to a command, in their order."""

    def apply(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return apply


def as_one(
    name: str, kind: Callable[..., object], *options: Callable[[Any], Any]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that hands the values of options to the command as one `kind`."""

    def apply(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def grouped(**values: Any) -> Any:
            values[name] = kind(**{each: values.pop(each) for each in names})
            return command(**values)

        names = add(grouped, options)
        return grouped

    return apply


def by_name(
    ctx: click.Context, param: click.Parameter, value: tuple[tuple[str, Any], ...]
) -> dict[str, Any]:
    """Return an option that may be repeated, `NAME=...`, as a mapping."""
    return dict(value)


def each_once(
    ctx: click.Context, param: click.Parameter, value: tuple[tuple[str, Any], ...]
) -> dict[str, Any]:
    """Return what `by_name` does; a name that is given twice is an error."""
    names = [name for name, _ in value]
    for name in names:
        if names.count(name) > 1:
            raise click.BadParameter(f"'{name}' is given twice; give each name once", ctx, param)
    return dict(value)


Option = Callable[[Any], Any]


def add(command: Command, options: Sequence[Option]) -> list[str]:
    """Add options to a command, and return what it calls their values, in the options' order."""
    before = len(getattr(command, "__click_params__", ()))
    for option in reversed(options):
        option(command)
    parameters: list[click.Parameter] = command.__click_params__[before:]  # type: ignore[attr-defined]
    return [str(parameter.name) for parameter in reversed(parameters)]
