"""Say what became faster between two results of `deploykit benchmark`."""

import click

from deploykit.benchmarking.settings import CONFIDENCE
from deploykit.cli import options
from deploykit.cli.options.types import Finite, PathName


@options.command("Comparison")
@click.argument("a", type=PathName(), metavar="A.json")
@click.argument("b", type=PathName(), metavar="[B.json]", required=False)
@click.option("--baseline", type=PathName("FILE.json"), help="Compare A with earlier results of "
              "this machine in the file, and add it. The first makes the file.")  # fmt: skip
@click.option("--fail-below", type=Finite(above=0), metavar="RATIO", help="Exit with 5 if B is "
              "slower than this for sure, or nothing was compared. The first result of a new "
              "--baseline passes.")  # fmt: skip
@click.option("--confidence", type=Finite(0.5, 0.9999), default=CONFIDENCE, show_default=True,
              metavar="P", help="Confidence of the intervals, from 0.5 to 0.9999.")  # fmt: skip
@options.result_file
@options.everywhere
def compare(
    a: str,
    b: str | None,
    baseline: str | None,
    fail_below: float | None,
    confidence: float,
    output: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Compare the results of two benchmarks, or one with a baseline.

    The speed is the median latency of A divided by that of B: above 1, B is faster. Measurements
    with the same name and settings are compared, or else the only two with the same settings, or
    the only two.

    A verdict stands below the table. "slower": B takes more CPU time for a call, or more than 10 %
    longer by the wall clock. "faster": it is more than 10 % faster by the wall clock, because a
    machine itself varies by that much from one hour to the next. Two models that take turns in one
    `deploykit benchmark` need no such margin.

    --fail-below 0.95 fails only if B is slower than that for sure, so the upper end of an interval
    counts: 0.9 with an interval from 0.8 to 1.0 passes, one from 0.86 to 0.94 fails. With
    --baseline, a result that fails is not added.
    """
    import logging

    import deploykit
    from deploykit.cli.report import Report, show
    from deploykit.text.results.speedups import lines

    if (b is None) == (baseline is None):
        raise click.UsageError("give either B.json or --baseline to compare A.json with")
    report = Report("compare", a, b or baseline)
    found = deploykit.compare(a, b, baseline=baseline, confidence=confidence, fail_below=fail_below)
    for warning in found.warnings:
        logging.getLogger("deploykit").warning("%s", warning)
    report.more = found.document()
    if fail_below is not None:
        report.check(found.check, fail_below)
    show(report, as_json, text=lines(found), output=output, force=force)
