"""How a command compares two graphs: on which inputs, and against which bar."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deploykit.transforms.core.graph import Graph
    from deploykit.verification.verify import Verification


@dataclass(frozen=True)
class Comparison:
    """The data, or the range of made-up inputs; ops that may act on files; and the bar."""

    data: str | None = None
    preprocess: str | None = None
    input_range: tuple[float, float] = (-1.0, 1.0)
    allowed_ops: Sequence[str] = ()
    tolerance: float | None = None
    min_sqnr: float | None = None

    def run(self, reference: "Graph", result: "Graph") -> "Verification":
        """Return what the comparison found. RefusedError: a graph acts on files or processes.

        FileError, GraphError: the data are damaged, or do not fit the inputs of the reference.
        """
        from deploykit.input.samples import load_samples
        from deploykit.transforms.core.checks.side_effects import refuse_side_effects
        from deploykit.transforms.core.errors import GraphError
        from deploykit.verification.verify import verify

        for graph in (reference, result):
            refuse_side_effects(graph, self.allowed_ops)
        if self.preprocess is not None and self.data is None:
            raise GraphError("--preprocess needs --data, which it is for")
        data = None
        if self.data is not None:
            data = load_samples(self.data, reference, self.preprocess)
        return verify(
            reference,
            result,
            data=data,
            input_range=self.input_range,
            tolerance=self.tolerance,
            min_sqnr=self.min_sqnr,
        )
