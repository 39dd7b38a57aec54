"""Say what became faster between two results of `deploykit benchmark`."""

import click

from deploykit.benchmarking.settings import CONFIDENCE
from deploykit.cli import options
from deploykit.cli.options.types import Finite, PathName


@click.command()
@click.argument("a", type=PathName(), metavar="A.json")
@click.argument("b", type=PathName(), metavar="B.json")
@click.option("--fail-below", type=Finite(min=0, min_open=True), metavar="RATIO",
              help="Exit with 5 where a whole interval lies below this.")  # fmt: skip
@click.option("--confidence", type=Finite(0.5, 0.9999), default=CONFIDENCE,
              show_default=True, metavar="P", help="Confidence of the intervals.")  # fmt: skip
@options.result_file
@options.everywhere
def compare(
    a: str,
    b: str,
    fail_below: float | None,
    confidence: float,
    output: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Compare the results of two benchmarks.

    The speed is the median latency of A / that of B: above 1, B is faster. Measurements of the same
    name and settings are compared, or the only two, or the only ones with their settings.

    "Not significant" is a ratio unless its whole interval lies more than 10 % from 1: a machine
    itself differs by as much from one hour to another. Where two models take turns in one
    `deploykit benchmark`, 3 % will do.

    --fail-below 0.95 asks whether B is slower than that for sure: it judges each interval by its
    upper end. A ratio of 0.9 from 0.8 to 1.0 passes, one from 0.86 to 0.94 does not.
    """
    import logging

    import deploykit
    from deploykit.cli.report import Report, show
    from deploykit.text.results.speedups import lines

    report = Report("compare", a, b)
    found = deploykit.compare(a, b, confidence=confidence)
    for warning in found.warnings:
        logging.getLogger("deploykit").warning("%s", warning)
    report.more = found.document()
    show(report, as_json, text=lines(found), output=output, force=force)
    if fail_below is not None:
        found.check(fail_below)
