"""What a model is run on where its speed or its course counts: data, or values made up."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deploykit.transforms.core.graph import Graph
    from deploykit.transforms.core.tensors import Array


@dataclass(frozen=True)
class Feeding:
    """What a model is run on. Without data, values are made up, seed 0."""

    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Sizes of inputs that the model leaves open, by name; the first one is the batch."""
    data: Any = None
    """Arrays by input name, the samples along the first axis; the path of an `.npz` file of such;
    or `Samples`. `deploykit.benchmark` also takes a folder of TFRecords, CSV files or images."""
    input_range: tuple[float, float] = (-1.0, 1.0)
    """Of made-up floats."""
    allowed_ops: Sequence[str] = ()
    """Ops that are run although they act on files or processes."""

    @property
    def path(self) -> str | None:
        """Where the data lie; None: they are in memory, or made up."""
        return os.fspath(self.data) if isinstance(self.data, str | os.PathLike) else None

    def read(self) -> "Feeding":
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
        return batches(graph, batch, self.shapes, self.read().data, self.input_range, most=most)


MADE_UP = Feeding()
