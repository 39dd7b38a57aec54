"""How near a result has to come to its reference."""

from collections.abc import Collection
from dataclasses import dataclass

from deploykit.transforms.core.graph import Graph
from deploykit.verification.differences import Difference
from deploykit.verification.tolerance import default_tolerance

QUANTIZED_BAR_DB = 15.0  # below this a quantized graph's answers are noise (int8.md, rule 10)


@dataclass(frozen=True)
class QualityBar:
    """The largest relative error, or the smallest signal-to-noise ratio in dB."""

    tolerance: float | None = None
    min_sqnr: float | None = None

    @classmethod
    def between(
        cls, reference: Graph, result: Graph, tolerance: float | None, min_sqnr: float | None
    ) -> "QualityBar":
        """Return the bar that is given, or else what such a result is held to."""
        if tolerance is not None:
            return cls(tolerance)
        if min_sqnr is not None:
            return cls(None, min_sqnr)
        if _is_quantized(result) and not _is_quantized(reference):
            return cls(None, QUANTIZED_BAR_DB)
        return cls(default_tolerance(reference))

    def __str__(self) -> str:
        if self.tolerance is not None:
            return f"error <= {self.tolerance:.2g}"
        return f"SQNR >= {self.min_sqnr:g} dB"

    def failure(self, found: Difference, behind: Collection[str] = ()) -> str:
        """Return why an output fails, or an empty string.

        Whole numbers show no noise, so where the bar is one for noise they may have turned; not
        behind a choice, where what they are made of is the same (`behind`).
        """
        if not found.judged:
            return ""
        is_noise = self.tolerance is None
        if found.fault:
            excused = is_noise and found.output not in behind and "values differ" in found.fault
            return "" if excused else f"output '{found.output}': {found.fault}"
        error = max(found.max_relative_error, found.rms_relative_error)
        if self.tolerance is not None and not error <= self.tolerance:
            return f"output '{found.output}': error {error:.3g}, allowed {self.tolerance:.3g}"
        if self.min_sqnr is not None and not found.sqnr_db >= self.min_sqnr:
            return (
                f"output '{found.output}': SQNR {found.sqnr_db:.1f} dB, wanted {self.min_sqnr:g} dB"
            )
        return ""


def _is_quantized(graph: Graph) -> bool:
    return any("Quantize" in node.op or node.op == "Dequantize" for node in graph)
