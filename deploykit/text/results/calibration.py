"""The ranges of a calibration, the widest first."""

from collections.abc import Iterator

from deploykit.quantization.calibration import Calibration
from deploykit.text.tables import Table, table
from deploykit.text.templates import for_each


def lines(result: Calibration) -> Iterator[str | Table]:
    """Yield a table of the widest ranges, and a summary."""
    columns = {"widest ranges": "{0}", "min": "{1.min:.4g}", "max": "{1.max:.4g}"}
    yield table(result.widest, columns)
    yield from for_each(result.notes, "note: {}")
    yield (
        f"ranges of {len(result.ranges.tensors)} tensors on {result.ranges.samples} samples "
        f"({result.method}, {result.seconds:.1f} s)"
    )
