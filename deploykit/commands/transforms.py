"""List the transforms, or explain one."""

import click

from deploykit import options


@click.command()
@click.argument("name", required=False)
@options.everywhere
def transforms(name: str | None, as_json: bool) -> None:
    """List the transforms, or explain one.

    With NAME, its parameters are explained too.
    """
    import json

    from deploykit.catalogue import describe, lines
    from transforms.core import pipeline

    described = [describe(each) for each in ([name] if name else pipeline.names())]
    if as_json:
        print(json.dumps({"command": "transforms", "transforms": described}, indent=2))
    else:
        print("\n".join(lines(described, whole=name is not None)))
