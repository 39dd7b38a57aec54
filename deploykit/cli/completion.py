"""Shell completion: the script that a shell loads, and the values that it then offers."""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from deploykit.cli.help import Helped

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

VARIABLE = "_DEPLOYKIT_COMPLETE"
"""The shell's script sets it to ask for completions."""
SHELLS = ("bash", "zsh", "fish")
SUMMARY = "Print the completion script of a shell"


def is_requested() -> bool:
    """Return whether a shell asks for completions."""
    return VARIABLE in os.environ


def words(known: Iterable[str], incomplete: str, is_list: bool = False) -> "list[CompletionItem]":
    """Return the words that begin as typed; of a list such as `a,b`, its last word is completed."""
    from click.shell_completion import CompletionItem

    before, comma, last = incomplete.rpartition(",") if is_list else ("", "", incomplete)
    used = before.split(",")
    return [
        CompletionItem(f"{before}{comma}{item}")
        for item in known
        if item.startswith(last) and item not in used
    ]


def files(incomplete: str) -> "list[CompletionItem]":
    """Tell the shell to complete the name of a file."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def _show(shell: str) -> None:
    """Print the script that makes a shell complete command lines of deploykit."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    text = kind(click.get_current_context().command, {}, "deploykit", VARIABLE).source()
    click.echo(text.replace('string split ","', 'string split -m 1 ","'))  # values have commas


def completion() -> Helped:
    """Return the command."""
    return Helped(
        "completion",
        params=[click.Argument(["shell"], type=click.Choice(SHELLS))],
        callback=_show,
        help=f"{SUMMARY}.\n\nIt completes commands, options, their values and files in new shells.",
        examples=(
            "deploykit completion bash >> ~/.bashrc",
            "deploykit completion zsh >> ~/.zshrc",
            "deploykit completion fish > ~/.config/fish/completions/deploykit.fish",
        ),
    )
