"""What a model is run on where its speed or its course counts: data, or values made up."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from deploykit.storage.parameters import takes_former_names
from deploykit.transforms.core.display.flag import ALLOW_OP, Flag
from deploykit.verification.public_types import DataLike

if TYPE_CHECKING:
    from deploykit.transforms.core.graph import Graph
    from deploykit.transforms.core.tensors import Array


@takes_former_names
@dataclass(frozen=True)
class BenchmarkInputs:
    """What a model is run on. Without data, values are made up, seed 0."""

    HEADING: ClassVar = "Data"

    shapes: Annotated[Mapping[str, Sequence[int]], Flag("--shape", format="shape")] = field(
        default_factory=dict
    )
    """Shape of an input with unknown dimensions; may be repeated."""
    data: Annotated[DataLike | None, Flag(metavar="DATA")] = None
    """Samples to run on: a .npz file of arrays by input name [default: reproducible random values].
    benchmark also takes a folder of TFRecords, CSV files or images, which it reads while the model
    runs, or DIR/NAME if DIR contains records of several names."""
    input_range: Annotated[tuple[float, float], Flag(format="range")] = (-1.0, 1.0)
    """Range of the random values for float inputs if no data is given."""
    allow_ops: Annotated[Sequence[str], ALLOW_OP] = ()

    @property
    def path(self) -> str | None:
        """Where the data lie; None: they are in memory, or made up."""
        return os.fspath(self.data) if isinstance(self.data, str | os.PathLike) else None

    def read(self) -> "BenchmarkInputs":
        """Return it with its data in memory. FileError, GraphError: they cannot be read."""
        from deploykit.storage.arrays import load_data

        return self if self.path is None else replace(self, data=load_data(self.path))

    def batches(
        self, graph: "Graph", batch: int | None = None, *, everything: bool = False
    ) -> "tuple[tuple[Array, ...], ...]":
        """Return what is fed to a graph, batch by batch; `everything` means all data, not some.

        GraphError: an input has no known shape, or does not fit the data.
        """
        from deploykit.benchmarking.inputs import FROM_DATA, batches

        most = None if everything else FROM_DATA
        data: Any = self.read().data
        return batches(graph, batch, self.shapes, data, self.input_range, most=most)


MADE_UP = BenchmarkInputs()
