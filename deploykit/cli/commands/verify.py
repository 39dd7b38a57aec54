"""Run two graphs on the same inputs and compare their outputs."""

from dataclasses import replace

import click

from deploykit.cli import options
from deploykit.cli.comparison import Comparison
from deploykit.freezing.interface import Interface


@click.command()
@click.argument("reference")
@click.argument("result")
@options.interface
@click.option("--tolerance", type=click.FloatRange(min=0), metavar="T", help="Largest error, "
              "relative to the largest value [default: 1e-6 * (5 + layers), <= 1e-4].")  # fmt: skip
@click.option("--min-sqnr", type=float, metavar="DB", help="Smallest signal to noise ratio instead "
              "[default for a quantized RESULT: 15].")  # fmt: skip
@options.comparison
@options.result_file
@options.limits
@options.everywhere
def verify(
    reference: str,
    result: str,
    interface: Interface,
    tolerance: float | None,
    min_sqnr: float | None,
    comparison: Comparison,
    output: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Compare what two models compute.

    Exits with 5 where the outputs of RESULT differ too much from those of REFERENCE.

    Both run on the same inputs with TensorFlow's own graph optimizer off. Where an output is a
    Softmax, what it reads is compared too. In --json, a figure without bound (no difference at
    all) is null, and a model whose inputs cannot be made up gives "verified": false.
    """
    from deploykit.cli.report import Report, show
    from deploykit.freezing.interface import Source
    from deploykit.freezing.open_model import open_model
    from deploykit.text.progress import working
    from deploykit.transforms.core.errors import VerificationError

    report = Report("verify", reference, result)
    first = open_model(Source.of(reference, interface)).graph
    second = open_model(Source.of(result, interface)).graph
    report.of(first)
    report.nodes_out = len(second)
    pass
    with working("verify"):
        check = replace(comparison, tolerance=tolerance, min_sqnr=min_sqnr)
        report.verification = check.run(first, second)
    show(report, as_json, output=output, force=force)
    if report.verification.verified and not report.verification.passed:
        raise VerificationError(f"{result}: {report.verification.reason}")
