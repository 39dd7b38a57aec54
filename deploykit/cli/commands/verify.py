"""Run two graphs on the same inputs and compare their outputs."""

from dataclasses import replace

import click

from deploykit.api.comparison import Comparison
from deploykit.cli import options
from deploykit.cli.options.types import PathName
from deploykit.freezing.interface import Interface, Source


@click.command()
@click.argument("reference", type=PathName())
@click.argument("result", type=PathName())
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
    import deploykit
    from deploykit.cli.report import Report, show
    from deploykit.transforms.core.errors import VerificationError

    report = Report("verify", reference, result)
    first, second = Source.of(reference, interface), Source.of(result, interface)
    how = replace(comparison, tolerance=tolerance)
    report.verification = found = deploykit.verify(first, second, how, min_sqnr=min_sqnr)
    assert found.models is not None
    report.between(*found.models)
    show(report, as_json, output=output, force=force)
    if found.verified and not found.passed:
        raise VerificationError(f"{result}: {found.reason}")
