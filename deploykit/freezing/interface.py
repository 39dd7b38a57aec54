"""Which model is meant, and which part of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
        from deploykit.freezing.default_interface import check_outputs

        check_outputs(graph, self.outputs, graph.outputs)
        graph.inputs = tuple(self.inputs) or graph.inputs
        graph.outputs = tuple(self.outputs) or graph.outputs
        graph.check()
        return graph


@dataclass(frozen=True)
class Source:
    """A model, and what its user says of it. Every function that takes a model takes this too.

    `deploykit.Source("model.ckpt", outputs=["scores"])` is what `deploykit ... model.ckpt --outputs
    scores` means.
    """

    model: Any
    """A path, or a live model: whatever `open_model` takes."""
    inputs: Sequence[str] = ()
    """Tensors that are fed; default: the signature's, or else the placeholders."""
    outputs: Sequence[str] = ()
    """Tensors that are fetched; default: the signature's, or else what nobody reads."""
    tags: Sequence[str] = ()
    """Which graph of a SavedModel; `[""]` is the one without tags; default: `serve`, or the only
    one that can run here."""
    signature: str | None = None
    """Which signature; default: `serving_default`, or the only one."""
    pins: Mapping[str, str] = field(default_factory=dict)
    """Placeholders to turn into constants when the model is frozen."""
    graph: str | Path | None = None
    """What a file of values alone belongs to: the GraphDef of a checkpoint without a `.meta` file,
    or the JSON file of a Keras model whose weights are in an `.h5` file."""

    @property
    def interface(self) -> Interface:
        """The part of the model that is meant."""
        return Interface(tuple(self.inputs), tuple(self.outputs), tuple(self.tags), self.signature)

    @classmethod
    def of(cls, model: Any, interface: Interface) -> "Source":
        """Return a part of a model."""
        return cls(model, interface.inputs, interface.outputs, interface.tags, interface.signature)


def source_of(model: Any) -> Source:
    """Return a model as a `Source`, which it may be."""
    return model if isinstance(model, Source) else Source(model)
