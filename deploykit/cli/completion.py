"""Shell completion: the script for a shell, and the completed values."""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from deploykit.cli.help import Helped

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

VARIABLE = "_DEPLOYKIT_COMPLETE"
"""The environment variable with which the shell's script requests completions."""
SHELLS = ("bash", "zsh", "fish")
SUMMARY = "Print the completion script of a shell"


def is_requested() -> bool:
    """Return whether a shell requests completions."""
    return VARIABLE in os.environ


def words(known: Iterable[str], incomplete: str, is_list: bool = False) -> "list[CompletionItem]":
    """Return the words that start with `incomplete`; in a list `a,b`, the last word counts."""
    from click.shell_completion import CompletionItem

    before, comma, last = incomplete.rpartition(",") if is_list else ("", "", incomplete)
    used = before.split(",")
    return [
        CompletionItem(f"{before}{comma}{item}")
        for item in known
        if item.startswith(last) and item not in used
    ]


def files(incomplete: str) -> "list[CompletionItem]":
    """Return a completion item that makes the shell complete file names."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def _show(shell: str) -> None:
    """Print the completion script of a shell."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    text = kind(click.get_current_context().command, {}, "deploykit", VARIABLE).source()
    click.echo(text.replace('string split ","', 'string split -m 1 ","'))  # values have commas


def completion() -> Helped:
    """Return the command `completion`."""
    return Helped(
        "completion",
        params=[click.Argument(["shell"], type=click.Choice(SHELLS))],
        callback=_show,
        help=f"{SUMMARY}.\n\nNew shells then complete commands, options, their values and files.",
        examples=(
            "deploykit completion bash >> ~/.bashrc",
            "deploykit completion zsh >> ~/.zshrc",
            "deploykit completion fish > ~/.config/fish/completions/deploykit.fish",
        ),
    )
