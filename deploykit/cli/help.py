"""Help in sections: options under headings, and examples at the end."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from deploykit.cli.conditions import check_conditions
from deploykit.cli.dangerous_options import suggestion
from deploykit.cli.failures import note_context, note_options, see_help
from deploykit.transforms.common import removed
from deploykit.transforms.common.errors import Error
from deploykit.transforms.engines.packages import require

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_LAST = "Output"
_PLACES = {"Model": 0, "Data": 1, "Limits": 3, _LAST: 4}
"""The places of headings; the others are at 2, in the order of the options."""
_SINGLE_DASH = re.compile(r"-[A-Za-z]\w+$")
"""Options such as -niter of tools that do not join short options; deploykit has none of these."""


class Headed(click.Option):
    """An option that help lists under a heading, without its deprecated spellings."""

    def __init__(
        self,
        *arguments: Any,
        heading: str,
        hidden_spellings: Sequence[str] = (),
        is_output: bool = False,
        **attributes: Any,
    ) -> None:
        """Create an option with the arguments of click.Option, a heading and hidden spellings.

        `is_output` marks an option that names a file to write.
        """
        super().__init__(*arguments, **attributes)
        self.heading, self.is_output = heading, is_output
        self.hidden_spellings = frozenset(hidden_spellings)
        self.hidden = self.hidden or self.hidden_spellings >= {*self.opts}

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the help record without hidden spellings."""
        every = self.opts
        self.opts = [item for item in every if item not in self.hidden_spellings]
        try:
            return super().get_help_record(ctx) if self.opts else None
        finally:
            self.opts = every


def refuse_foreign(ctx: click.Context, args: Sequence[str]) -> None:
    """Raise Error for an option of other tools that the command lacks; it names the one here."""
    from deploykit.cli.foreign_names import replacement

    name, text = replacement(ctx.command, ctx.command_path, args)
    if name:
        raise Error("missing", kind="option", name=name, hint=f": {text}{see_help(ctx)}")


class Helped(click.Command):
    """A command whose help lists options under headings, and examples."""

    def __init__(
        self,
        *arguments: Any,
        examples: Sequence[str] = (),
        requires: Sequence[str] = (),
        **attributes: Any,
    ) -> None:
        """Create a command with the arguments of click.Command, examples and required packages."""
        super().__init__(*arguments, **attributes)
        self.examples = tuple(examples)
        self.requires = tuple(requires)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. Error: an option for an output file is given twice."""
        note_context(ctx)
        given = [*args]
        rest = self._parsed(ctx, args)
        order = [] if ctx.resilient_parsing else self.make_parser(ctx).parse_args(args=given)[2]
        for option in order:
            if isinstance(option, Headed) and option.is_output and order.count(option) > 1:
                raise Error("given-twice", what="the option", name=option.opts[0])
        return rest

    def _parsed(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. Error: an option is unknown; the message names the right one."""
        given = [*args]
        try:
            if not ctx.resilient_parsing and any(map(_SINGLE_DASH.match, args)):
                refuse_foreign(ctx, args)  # click would read -hint as -h
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            removed.check_option(ctx.command_path.partition(" ")[2], error.option_name)
            refuse_foreign(ctx, given)
            options = {
                spelling: str(parameter.name)
                for parameter in self.get_params(ctx)
                for spelling in parameter.opts
                if spelling.startswith("--")
                and spelling not in getattr(parameter, "hidden_spellings", ())
            }
            hint = suggestion(error.option_name, options) + see_help(ctx)
            raise Error("missing", kind="option", name=error.option_name, hint=hint) from None

    def check(self, ctx: click.Context) -> None:
        """Check the options together. Error: one has no effect in combination with the others."""
        note_options()
        require(*self.requires)
        check_conditions(ctx)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Error: an option has no effect in combination with the others."""
        self.check(ctx)
        return super().invoke(ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Return the matching options, without deprecated spellings."""
        old = {
            spelling
            for parameter in self.get_params(ctx)
            if isinstance(parameter, Headed)
            for spelling in parameter.hidden_spellings
        }
        result = super().shell_complete(ctx, incomplete)
        return [item for item in result if item.value not in old]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options: model and data first, then the command's own, limits and output."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                heading = parameter.heading if isinstance(parameter, Headed) else _LAST
                sections.setdefault(heading, []).append(record)
        for heading in sorted(sections, key=lambda heading: _PLACES.get(heading, 2)):
            with formatter.section(heading):
                formatter.write_dl(sections[heading])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples without wrapping their lines."""
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"  {example}\n")
