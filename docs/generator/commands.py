"""The page of commands: the --help of each, in the order of the workflow."""

from collections.abc import Iterator

import click

from deploykit.cli.main import COMMANDS, cli
from docs.generator.markdown import fence, link, plain

_WIDTH = 88  # click would use the width of the terminal
INTRODUCTION = """
Every command but `completion` takes `--json`, which prints one JSON document on stdout, and
`--debug`, which shows TensorFlow's log, and what was skipped and why. Files are written
atomically, and an existing one is replaced only with `--force`. If inputs and outputs are not
given, deploykit detects and logs them.

| exit status | what it means |
|---|---|
| 0 | done |
| 1 | a bug in deploykit |
| 2 | wrong usage or an invalid model |
| 3 | refused: code, or ops that act on files, the network or processes |
| 4 | a file cannot be read or written |
| 5 | a verification or comparison failed |
| 6 | time or memory limit reached |
| 7 | a gate is inconclusive |
"""


def page() -> str:
    """Return the page."""
    rows = [
        f"| {link(f'`{name}`', f'#{anchor(name)}')} | {_summary(c)} |" for name, c in contexts()
    ]
    parts = ["# Commands", INTRODUCTION.strip(), "\n".join(["| command | |", "|---|---|", *rows])]
    for name, context in contexts():
        parts += [f"## {name}", fence(context.get_help(), "text")]
    return "\n\n".join(parts) + "\n"


def names() -> list[str]:
    """Return the names of all commands, such as `freeze` and `records convert`."""
    return [name for name, _ in contexts()]


def anchor(name: str) -> str:
    """Return the anchor of a command's heading on the page."""
    return name.replace(" ", "-")


def contexts() -> list[tuple[str, click.Context]]:
    """Return the name and the click context of each command."""
    root = click.Context(cli, info_name="deploykit", terminal_width=_WIDTH, **cli.context_settings)
    return [each for name in COMMANDS for each in _with_subcommands(root, name)]


def _with_subcommands(parent: click.Context, name: str) -> Iterator[tuple[str, click.Context]]:
    group = parent.command
    assert isinstance(group, click.Group)
    command = group.get_command(parent, name)
    assert command is not None
    settings = command.context_settings
    context = click.Context(command, parent, name, terminal_width=_WIDTH, **settings)
    yield context.command_path.removeprefix("deploykit "), context
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            yield from _with_subcommands(context, inner)


def _summary(context: click.Context) -> str:
    return plain(context.command.get_short_help_str(limit=200))
