"""List the transforms, or explain one."""

import click

from deploykit.cli import options


@click.command()
@click.argument("name", required=False)
@options.result_file
@options.everywhere
def transforms(name: str | None, output: str | None, force: bool, as_json: bool) -> None:
    """List the transforms, or explain one.

    With NAME, its parameters are explained too; package.module:function is one of your own.
    """
    from deploykit.cli.report import Report, show
    from deploykit.rewriting.catalogue import describe, lines
    from deploykit.transforms.core import pipeline

    listed = sorted((*pipeline.names(), *pipeline.ALIASES))
    described = [describe(each) for each in ([name] if name else listed)]
    report = Report("transforms", more={"transforms": described})
    text = lines(described, whole=name is not None)
    show(report, as_json, text=text, output=output, force=force)
