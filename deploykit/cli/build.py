"""Click commands, built from commands.json.

docs/generator/command_table.py generates that file from the public functions, which are the only
declaration of a command.
"""

import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deploykit.cli import completion
from deploykit.cli.call import run
from deploykit.cli.common_options import EVERYWHERE, LIMITS
from deploykit.cli.formats import FORMATS, WRITTEN, Spec
from deploykit.cli.help import Headed, Helped
from deploykit.cli.project_file import WithProjectFile
from deploykit.cli.serving_flags import Flags

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

TABLE = Path(__file__).with_name("commands.json")
_RESULT: Spec = {
    "owner": "command",
    "name": "output",
    "options": ["-o", "--output"],
    "help": "Also write the JSON document to this file; with -, print only JSON to stdout.",
    "heading": "Output",
    "format": "report",
}
_FORCE: Spec = {
    "owner": "command",
    "name": "force",
    "options": ["--force"],
    "help": "Replace an existing output file.",
    "heading": "Output",
    "format": "flag",
    "default": False,
}
_REST: Spec = {
    "hidden": [], "is_required": False, "default": None, "metavar": "", "beside": "", "choices": [],
    "at_least": None, "at_most": None, "above": None,
}  # fmt: skip


@functools.cache
def table() -> Mapping[str, Spec]:
    """Return the specification of each command, by its words."""
    specs: Mapping[str, Spec] = json.loads(TABLE.read_bytes())
    return specs


@functools.cache
def build(words: str) -> Helped:
    """Return the command with these words, such as `records convert`."""
    entry = table()[words]
    specs = [{**_REST, **spec} for spec in _complete(entry)]
    command = (Flags if words == "serve" else WithProjectFile)(
        words.split()[-1],
        params=[*map(_parameter, specs), *(LIMITS if entry["has_limits"] else ()), *EVERYWHERE],
        callback=functools.partial(run, words, entry, specs),
        help=entry["help"],
        examples=entry["examples"],
        requires=entry["requires"],
    )
    command.table, command.tables = words, tuple(table())
    return command


class _Subcommands(click.Group):
    """A group of subcommands; `records SOURCE DIR` means `records convert SOURCE DIR`."""

    def __init__(self, name: str, default: str, **attributes: Any) -> None:
        """Create the group; `default` is the subcommand to run if none is named."""
        super().__init__(name, **attributes)
        self._default = default

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the subcommands."""
        return [
            words.split()[1] for words in table() if words.split()[0] == self.name and " " in words
        ]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a subcommand by its name."""
        return build(f"{self.name} {cmd_name}") if cmd_name in self.list_commands(ctx) else None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Return matching subcommands, or files if the default subcommand accepts them."""
        result = super().shell_complete(ctx, incomplete)
        return result or completion.files(incomplete) if self._default else result

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the default subcommand if none is named."""
        is_named = not args or args[0] in (*self.list_commands(ctx), *ctx.help_option_names)
        if self._default and not is_named:
            args = [self._default, *args]
        return super().parse_args(ctx, args)


_GROUPS = {
    "input": ("", "Write input pipelines.\n\n`deploykit benchmark MODEL --data DIR --input all` "
              "compares input pipelines on a model."),
    "records": ("convert", "Write data as TFRecord shards, and check them.\n\n`deploykit records "
                "SOURCE... DIR` is short for `deploykit records convert SOURCE... DIR`."),
}  # fmt: skip
"""The default subcommand and the help text of each group."""


@functools.cache
def subcommands(name: str) -> click.Group | None:
    """Return the group of this name, or None if the name is a command."""
    if name not in _GROUPS:
        return None
    default, text = _GROUPS[name]
    return _Subcommands(name, default, help=text)


def summary(name: str) -> str:
    """Return the first sentence of the help of a command."""
    if name == "completion":
        return completion.SUMMARY
    text = _GROUPS[name][1] if name in _GROUPS else table()[name]["help"]
    return str(text).partition("\n\n")[0].replace("\n", " ").rstrip(".")


def _complete(entry: Spec) -> Iterator[Spec]:
    """Yield the parameters of a command, and -o and --force if it writes files."""
    yield from entry["parameters"]
    names = [spec["name"] for spec in entry["parameters"]]
    writes = any(spec.get("format") in WRITTEN for spec in entry["parameters"])
    if entry["writes_result"]:
        yield _RESULT
    if "force" not in names and (writes or entry["writes_result"]):
        yield _FORCE


def _parameter(spec: Spec) -> click.Parameter:
    """Return the click parameter of a specification."""
    written = FORMATS[spec["format"]]
    kind = written.type(spec)
    if not spec["options"]:
        return click.Argument(
            [spec["name"]],
            type=kind,
            required=spec["is_required"],
            nargs=-1 if written.repeats else 1,
            metavar=spec["metavar"] or None,
        )
    text = spec["help"]
    if spec["beside"]:
        stdout = ", - for standard output" if spec["format"] == "text output" else ""
        text = f"File to write{stdout} [default: NAME{spec['beside']} next to the model]."
    return Headed(
        [spec["name"], *dict.fromkeys((*spec["options"], *spec["hidden"]))],
        hidden_spellings=spec["hidden"],
        heading=spec["heading"],
        is_output=spec["format"] in (*WRITTEN, "log"),
        is_eager=spec["format"] == "report",
        type=kind,
        multiple=written.repeats,
        callback=written.convert,
        required=spec["is_required"],
        metavar=None if spec["format"] in ("flag", "choice") else spec["metavar"] or None,
        help=text,
        **_default(spec),
    )


def _default(spec: Spec) -> dict[str, Any]:
    """Return the arguments of click.Option for the default of an option, or for a flag."""
    written, value = FORMATS[spec["format"]], spec["default"]
    if spec["format"] == "flag":
        return {"is_flag": True, "flag_value": not value, "default": bool(value)}
    more = {"is_flag": False, "flag_value": "true"} if spec["format"] == "true or false" else {}
    if value is None or (written.repeats and not value):
        return more
    is_shown = value not in ("", []) and "[default" not in spec["help"]
    default = tuple(value) if isinstance(value, list) else value
    if written.show and value:
        default = written.show(value)
    return {**more, "default": default, "show_default": is_shown}
