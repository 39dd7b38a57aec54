"""Which files that run a model elsewhere are asked for, as an option takes them."""

import click

from deploykit.exporting.manifests import KINDS


def kinds(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Return the kinds that are named; `all` stands for each. BadParameter: there is no such."""
    for kind in value:
        if kind not in (*KINDS, "all"):
            raise click.BadParameter(f"{kind!r} is none of: {', '.join(KINDS)}, all", ctx, param)
    return KINDS if "all" in value else value
