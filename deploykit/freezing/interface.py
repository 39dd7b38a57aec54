"""Which part of a model is wanted: its inputs and outputs by name, or those of a signature."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
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

    def open(self, model: str) -> "Graph":
        """Return the graph of a GraphDef file as it stands, and any other model frozen."""
        from deploykit.freezing.graph_files import load_graph
        from deploykit.freezing.model_path import locate

        if locate(model).kind == "graph":
            return load_graph(model, self.inputs, self.outputs)
        return self.frozen(model)

    def frozen(
        self,
        model: str | Path,
        *,
        graph: str | Path | None = None,
        pins: Mapping[str, str] | None = None,
    ) -> "Graph":
        """Return any model as a frozen graph; `graph` and `pins` are those of `freeze`."""
        from deploykit.freezing.freeze import freeze

        return freeze(
            model,
            graph=graph,
            inputs=self.inputs,
            outputs=self.outputs,
            tags=self.tags,
            signature=self.signature,
            pins=pins,
        )

    def put_on(self, graph: "Graph") -> "Graph":
        """Give a graph the inputs and outputs that are named; it keeps its own otherwise."""
        graph.inputs = tuple(self.inputs) or graph.inputs
        graph.outputs = tuple(self.outputs) or graph.outputs
        graph.check()
        return graph
