"""List the transforms, or explain one."""

import click

from deploykit.cli import options


@options.command("")
@click.argument("name", required=False)
@options.result_file
@options.everywhere
def transforms(name: str | None, output: str | None, force: bool, as_json: bool) -> None:
    """List the transforms, or explain one.

    With NAME, its parameters are explained too; package.module:function is one of your own.
    """
    import deploykit
    from deploykit.cli.report import Report, show
    from deploykit.text.transform_list import lines

    found = deploykit.list_transforms(name)
    report = Report("transforms", more=found.document())
    text = lines(found.transforms, whole=name is not None)
    show(report, as_json, text=text, output=output, force=force)
