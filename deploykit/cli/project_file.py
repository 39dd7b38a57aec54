"""`deploykit.toml` in the current folder: default options of the commands."""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from deploykit.cli.dangerous_options import effect, suggestion
from deploykit.cli.failures import PROJECT_FILE as NAME
from deploykit.cli.help import Helped
from deploykit.transforms.common import removed
from deploykit.transforms.common.errors import FileError, GraphError, nearest

logger = logging.getLogger("deploykit")


class WithProjectFile(Helped):
    """A command whose options can be set in a table of `deploykit.toml`."""

    table = ""
    """The name of the table: the words of the command."""
    tables: Sequence[str] = ()
    """The tables allowed in the file, one for each command."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:  # fmt: skip
        """Use the values of the file as defaults for the command line."""
        is_help = bool({"-h", "--help"} & {*args}) or bool(extra.get("resilient_parsing"))
        if not is_help and Path(NAME).exists():
            extra["default_map"] = _values(self, self.table, self.tables)
        return super().make_context(info_name, args, parent, **extra)

    def check(self, ctx: click.Context) -> None:
        """Check the options, and print which of them come from the file."""
        super().check(ctx)
        used = [
            _names(parameter)[0]
            for parameter in self.params
            if ctx.get_parameter_source(str(parameter.name)) is ParameterSource.DEFAULT_MAP
        ]
        if used:
            logger.info("[%s] of %s sets %s", self.table, NAME, ", ".join(used))


def _values(command: click.Command, table: str, tables: Sequence[str]) -> dict[str, Any]:
    """Return the values of a table by parameter. GraphError: the named option is unknown."""
    known = {name: param for param in command.params for name in _names(param)}
    dashed = {_dashed(name): parameter for name, parameter in known.items()}
    results = {}
    for name, value in _table(table, tables).items():
        parameter = dashed.get(_dashed(name))
        if parameter is None:
            removed.check_option(table, f"--{_dashed(name)}", NAME)
            raise GraphError(
                "project-unknown-option",
                source=NAME,
                table=table,
                name=name,
                hint=suggestion(name, {item: str(param.name) for item, param in known.items()}),
            )
        if reason := effect(str(parameter.name), value):
            raise GraphError(
                "project-dangerous", source=NAME, table=table, name=name, effect=reason
            )
        if parameter.name == "env":
            _check_variables(value)
        if str(parameter.name) in results:
            raise GraphError("given-twice", source=NAME, what="the option", name=name)
        old = getattr(parameter, "hidden_spellings", ())
        today = _names(parameter)[0]
        if _dashed(name) != today and f"--{_dashed(name)}" in map(_dashed, old):
            logger.warning("%s: %s of [%s] is now called %s; rename it", NAME, name, table, today)
        results[str(parameter.name)] = _as_typed(parameter, name, value)
    return results


def _check_variables(value: object) -> None:
    """Raise GraphError for an environment variable that is not taken from a file."""
    from deploykit.benchmarking.process_variables import check_storable  # not needed by --help

    items = [item for item in (value if isinstance(value, list) else [value]) if "=" in str(item)]
    try:
        check_storable(item.partition("=")[0] for item in items if isinstance(item, str))
    except GraphError as error:
        raise error.within(NAME) from None


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _names(parameter: click.Parameter) -> Sequence[str]:
    """Return the names of a parameter in the file: options without dashes, or its name."""
    if isinstance(parameter, click.Argument):
        return [str(parameter.name)]
    return [opt.removeprefix("--") for opt in parameter.opts if opt.startswith("--")]


def _table(name: str, tables: Sequence[str]) -> Mapping[str, Any]:
    import tomllib

    from deploykit.transforms.untrusted.files import read_text

    try:
        document = tomllib.loads(read_text(NAME, "project file"))
    except tomllib.TOMLDecodeError as error:
        raise FileError("not-a", source=NAME, what="TOML", reason=error) from None
    for item, table in document.items():
        if item not in tables or not isinstance(table, Mapping):
            removed.check_command(item, NAME)
            raise GraphError(
                "project-table-expected", source=NAME, got=item, hint=nearest(item, [*tables])
            )
    results: Mapping[str, Any] = document.get(name, {})
    return results


def _as_typed(parameter: click.Parameter, name: str, value: Any) -> Any:
    """Return a value as the command line would pass it. GraphError: its type is not allowed."""
    is_flag = isinstance(parameter.type, click.types.BoolParamType)
    listed = value if isinstance(value, list) else [value]
    fits = (
        isinstance(value, bool)
        if is_flag
        else all(type(item) in (str, int, float) for item in listed)
    )
    if not fits:
        expected = "true or false" if is_flag else "a text, a number or a list"
        got = json.dumps(value, ensure_ascii=False, default=str)
        raise GraphError("project-value", source=NAME, name=name, got=got, expected=expected)
    if parameter.multiple or parameter.nargs == -1:
        return [*map(str, listed)]
    return value if is_flag else ",".join(map(str, listed))
