"""Which part of a model is wanted: its inputs and outputs by name, or those of a signature."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deploykit.transforms.core.graph import Graph


@dataclass(frozen=True)
class Interface:
    """Names of tensors that are fed and fetched; tags and signature of a SavedModel.

    What is empty or None defaults to the model's own: the graph for serving, its default
    signature, and that signature's inputs and outputs.
    """

    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    tags: Sequence[str] = ()
    signature: str | None = None

    def put_on(self, graph: "Graph") -> "Graph":
        """Give a graph the inputs and outputs that are named; it keeps its own otherwise."""
        graph.inputs = tuple(self.inputs) or graph.inputs
        graph.outputs = tuple(self.outputs) or graph.outputs
        graph.check()
        return graph
