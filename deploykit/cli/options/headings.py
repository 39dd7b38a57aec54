"""Help in sections: each option under a heading, and examples that can be copied at the end."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import click

from deploykit.cli.options.conditions import check_conditions
from deploykit.transforms.core.engines.extras import require

_FIRST = ("Model", "Data")
_LAST = ("Limits", "Output")


class Headed(click.Option):
    """An option that help lists under a heading."""

    def __init__(self, *arguments: Any, heading: str, **attributes: Any) -> None:
        """Take what click takes, and the heading."""
        super().__init__(*arguments, **attributes)
        self.heading = heading


class Helped(click.Command):
    """A command whose help lists options under headings, and examples."""

    def __init__(
        self,
        *arguments: Any,
        heading: str = "",
        examples: Sequence[str] = (),
        requires: Sequence[str] = (),
        runs_graph: bool = False,
        **attributes: Any,
    ) -> None:
        """Take what click takes, the heading of plain options, command lines, and packages.

        With `runs_graph`, the command runs a graph in TensorFlow whatever its options are.
        """
        super().__init__(*arguments, **attributes)
        self.heading = heading
        self.examples = tuple(examples)
        self.requires = tuple(requires)
        self.runs_graph = runs_graph

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, unless an option that was given has no effect beside the others."""
        require(*self.requires)
        check_conditions(ctx)
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options: model and data first, then the command's own, limits and output."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                own = _LAST[-1] if "--help" in parameter.opts else self.heading
                heading = parameter.heading if isinstance(parameter, Headed) else own
                sections.setdefault(heading, []).append(record)
        for heading in sorted(sections, key=_place):
            with formatter.section(heading):
                formatter.write_dl(sections[heading])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, each in one piece."""
        if self.examples:
            with formatter.section("Examples"):
                for each in self.examples:
                    formatter.write(f"  {each}\n")


def _place(heading: str) -> int:
    """Return where a section comes; those of one place keep the order of their options."""
    middle = len(_FIRST)
    if heading in _LAST:
        return middle + 1 + _LAST.index(heading)
    return _FIRST.index(heading) if heading in _FIRST else middle


def under(heading: str) -> Callable[..., Callable[[Any], Any]]:
    """Return what makes options as `click.option` does, under a heading."""
    return functools.partial(click.option, cls=Headed, heading=heading)


def command(
    heading: str = "",
    examples: Sequence[str] = (),
    requires: Sequence[str] = (),
    **attributes: Any,
) -> Callable[[Callable[..., Any]], Helped]:
    """Return a decorator that makes a command, whose own options come under this heading.

    `requires` names the optional packages without which the command cannot do anything.
    """
    return click.command(
        cls=Helped, heading=heading, examples=examples, requires=requires, **attributes
    )


model_option = under("Model")
data_option = under("Data")
limit_option = under("Limits")
output_option = under("Output")
