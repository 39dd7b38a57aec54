"""Show results as an HTML page."""

import click

from deploykit.cli import options
from deploykit.cli.options.outputs import writes
from deploykit.cli.options.types import PathName


@options.command("Report", requires=("matplotlib",))
@click.argument("results", type=PathName(), metavar="DIR|RESULT.json...", nargs=-1, required=True)
@writes(
    options.output_option("-o", "--output", type=PathName("FILE.html"), help="File to write "
                          "[default: DIR/report.html, or RESULT.html beside RESULT.json]."),
)  # fmt: skip
@options.everywhere
def report(results: tuple[str, ...], output: str | None, force: bool, as_json: bool) -> None:
    """Show what was found as one HTML page.

    DIR is what deploykit ship wrote. RESULT.json is a document that a
    command wrote with --json or -o: of benchmark, tune, quantize, load-test, plan, placement,
    accuracy, verify, optimize, check or export. Several are shown one after another.

    The page is one file that loads nothing else. It is light or dark as its reader has it, it
    prints, and it is at most 2 MB: what it leaves out of long tables stands in the JSON, and it
    says where.
    """
    import os

    import deploykit
    from deploykit.api.report import default_page
    from deploykit.cli.report import Report, show
    from deploykit.text.tables import size

    report = Report("report", results[0], output or default_page(results[0]))
    found = deploykit.report(list(results), report.output_file, force)
    report.bytes_out, report.more = len(found.html.encode()), found.document()
    shown = ", ".join(dict.fromkeys(found.kinds))
    line = f"{os.fspath(found.output or '')}: {shown}, {size(report.bytes_out)}"
    show(report, as_json, text=[line])
