"""Run two graphs on the same inputs and compare their outputs."""

from dataclasses import replace

import click

from deploykit.api.comparison import Comparison
from deploykit.cli import options
from deploykit.cli.options.types import Finite, PathName
from deploykit.freezing.interface import Interface, Source


@options.command(
    "Check",
    requires=("tensorflow",),
    runs_graph=True,
    examples=(
        "deploykit verify fashion.pb optimized.pb --data models/fashion/test_1000.npz",
        "deploykit verify fashion.pb weights.pb --min-sqnr 20",
    ),
)
@click.argument("reference", type=PathName())
@click.argument("result", type=PathName())
@options.interface
@click.option("--tolerance", type=Finite(0), metavar="T", help="Largest difference allowed, "
              "relative to the largest value [default: in float32 1e-6 * (5 + layers), at most "
              "1e-4; in float16 and bfloat16 4 + layers / 2 roundings of the type, at most "
              "16].")  # fmt: skip
@click.option("--min-sqnr", type=float, metavar="DB", help="Instead, the smallest signal-to-noise "
              "ratio allowed [default for a quantized RESULT: 15].")  # fmt: skip
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

    Exits with 5 if the outputs of RESULT differ too much from those of REFERENCE, and if nothing
    was compared: REFERENCE cannot be run, or gives the same value whatever it is fed.

    Both run on the same inputs, with TensorFlow's own graph optimizer switched off. If an output is
    a Softmax, its input is compared too. In --json, an infinite figure (there is no difference at
    all) is null, and "verified" is false if nothing was compared.
    """
    import deploykit
    from deploykit.cli.report import Report, show
    from deploykit.transforms.core.errors import UnverifiedError, VerificationError

    report = Report("verify", reference, result)
    first, second = Source.of(reference, interface), Source.of(result, interface)
    how = replace(comparison, tolerance=tolerance)
    report.verification = found = deploykit.verify(first, second, how, min_sqnr=min_sqnr)
    assert found.models is not None
    report.between(*found.models)
    if found.differs:
        report.error = VerificationError("outputs-differ", source=result, reason=found.reason)
    elif not found.verified and not how.allow_unverified:
        from deploykit.verification.verify import ADVICE

        report.error = UnverifiedError(
            "not-verified", source=result, reason=found.reason, advice=ADVICE
        )
    show(report, as_json, output=output, force=force)
