"""How a command compares two graphs: on which inputs, and against which bar."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deploykit.verification import Verification
    from transforms.core.graph import Graph


@dataclass(frozen=True)
class Comparison:
    """The data, or the range of made-up inputs; ops that may act on files; and the bar."""

    data: str | None = None
    input_range: tuple[float, float] = (-1.0, 1.0)
    allowed_ops: Sequence[str] = ()
    tolerance: float | None = None
    min_sqnr: float | None = None

    def run(self, reference: "Graph", result: "Graph") -> "Verification":
        """Return what the comparison found. RefusedError: a graph acts on files or processes."""
        from deploykit.files import load_data
        from deploykit.verification import verify
        from transforms.core.side_effects import refuse_side_effects

        for graph in (reference, result):
            refuse_side_effects(graph, self.allowed_ops)
        return verify(
            reference,
            result,
            data=None if self.data is None else load_data(self.data),
            input_range=self.input_range,
            tolerance=self.tolerance,
            min_sqnr=self.min_sqnr,
        )
