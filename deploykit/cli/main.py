"""The entry point: loads the module of a command when it runs, and sets the exit status."""

import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

import click

from deploykit import __version__
from deploykit.cli import completion, failures, standard_output
from deploykit.cli.progress import watcher
from deploykit.rendering.progress import watch_with
from deploykit.transforms.common.messages import log_to_stderr

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

GROUPS = {
    "Start here": ("ship",),
    "Build": ("freeze", "transform", "optimize", "calibrate", "sensitivity", "quantize"),
    "Verify": ("inspect", "check", "diff", "verify", "accuracy", "placement", "transforms"),
    "Measure": ("benchmark", "compare", "gate", "tune", "report"),
    "Serve": ("export", "serve", "predict", "status", "load-test"),
    "Data": ("label", "infer", "input", "records"),
    "Set up": ("doctor", "completion"),
}
"""Commands by the section of `deploykit --help` that lists them."""
COMMANDS = tuple(name for names in GROUPS.values() for name in names)

_READING_NOTHING = {"-h", "--help", "--version"}


class _Commands(click.Group):
    """The commands by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name == "completion":
            return completion.completion()
        from deploykit.cli.build import build, subcommands

        return subcommands(cmd_name) or build(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        is_unknown = bool(args) and not args[0].startswith("-") and args[0] not in COMMANDS
        if is_unknown and not ctx.resilient_parsing:
            from deploykit.cli import foreign_names
            from deploykit.cli.build import summary
            from deploykit.cli.dangerous_options import suggestion
            from deploykit.transforms.common import removed
            from deploykit.transforms.common.errors import Error

            removed.check_command(args[0])
            hint = suggestion(args[0], dict.fromkeys(COMMANDS, ""))
            if args[0] in foreign_names.COMMANDS:
                tools, name = foreign_names.COMMANDS[args[0]]
                hint = f": it is a name of {tools}; deploykit {name}: {summary(name)}"
            raise Error("missing", kind="command", name=args[0], hint=hint)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Return the matching commands, without building any of them."""
        from click.shell_completion import CompletionItem

        from deploykit.cli.build import summary

        names = [name for name in COMMANDS if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=summary(name)) for name in names), *options]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands under headings."""
        from deploykit.cli.build import summary

        for heading, names in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, summary(name)) for name in names])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def cli() -> None:
    """Optimize, verify, benchmark and serve trained TensorFlow models.

    \b
    freeze -> transform -> quantize -> verify -> benchmark -> export -> serve

    Start with `deploykit ship MODEL`, which runs all these steps. `deploykit COMMAND --help`
    explains a command.

    Exit status: 0 success; 1 a bug in deploykit; 2 wrong usage or an invalid model; 3 a model
    refused as unsafe; 4 a file or disk error; 5 a failed verification or comparison; 6 a time or
    memory limit was reached; 7 a gate is inconclusive.
    """  # noqa: D301  click reads the backslash


def main() -> NoReturn:
    """Run the command line and end the process."""
    arguments = sys.argv[1:]
    standard_output.open_missing()
    log_to_stderr(repeats=arguments[:1] == ["serve"])
    watch_with(watcher())
    if "--debug" not in arguments:
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    reads_nothing = _READING_NOTHING & {*arguments} or arguments[:1] == ["completion"]
    if arguments[:1] == ["serve"] or reads_nothing or completion.is_requested():
        # A server handles signals itself, so no supervisor is needed.
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        sys.exit(run(arguments))
    from deploykit.cli.supervisor import supervise

    supervise(lambda: run(arguments), arguments)


def run(arguments: list[str]) -> int:
    """Run the command line and return the exit status; an error prints one sentence on stderr."""
    failures.begin()
    if completion.is_requested():
        return _status(arguments)  # click writes bytes to the shell
    with standard_output.replaced() as output:
        status = _status(arguments)
        output.flush()
        if output.error is not None:
            status = failures.fail(output.error, arguments, status)
        return status


def _status(arguments: list[str]) -> int:
    """Run the command line, print its error, and return the exit status.

    click's `cli.main` would treat any BrokenPipeError as one of standard output.
    """
    try:
        if completion.is_requested():
            cli.main(arguments, prog_name="deploykit")
        with cli.make_context("deploykit", [*arguments]) as context:
            cli.invoke(context)
        return 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except (click.Abort, KeyboardInterrupt):
        failures.complain("interrupted")
        return 130
    except Exception as error:
        return failures.fail(error, arguments)
