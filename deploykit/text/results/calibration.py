"""Ranges that were found, the widest first."""

from deploykit.quantization.calibration import Calibration
from deploykit.text.tables import Table, new_table


def lines(result: Calibration, target: str) -> list[str | Table]:
    """Return a table of the widest ranges, and what was found in words."""
    table = new_table("widest ranges", "min", "max")
    for name, found in result.widest:
        table.add_row(name, f"{found.min:.4g}", f"{found.max:.4g}")
    summary = (
        f"{target}: ranges of {len(result.ranges.tensors)} tensors on "
        f"{result.ranges.samples} samples ({result.method}, {result.seconds:.1f} s)"
    )
    return [table, *(f"note: {note}" for note in result.notes), summary]
