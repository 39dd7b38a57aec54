"""ModelSource: a model with the options that select a part of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from deploykit.transforms.common.flag import Flag

if TYPE_CHECKING:
    from deploykit.transforms.ir.graph import Graph


@dataclass(frozen=True)
class Interface:
    """Names of tensors to feed and fetch; tags and signature of a SavedModel.

    Empty values and None select the defaults of the model: the graph for serving, its default
    signature, and that signature's inputs and outputs.
    """

    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    tags: Sequence[str] = ()
    signature: str | None = None

    def put_on(self, graph: "Graph") -> "Graph":
        """Set the inputs and outputs of a graph if they are specified, and check the graph."""
        from deploykit.importers.signature import check_outputs

        check_outputs(graph, self.outputs, graph.outputs)
        graph.inputs = tuple(self.inputs) or graph.inputs
        graph.outputs = tuple(self.outputs) or graph.outputs
        graph.check()
        return graph


@dataclass(frozen=True)
class ModelSource:
    """A model with import options. Every function that takes a model also accepts this.

    `deploykit.ModelSource("model.ckpt", outputs=["scores"])` corresponds to `deploykit ...
    model.ckpt --outputs scores`.
    """

    HEADING: ClassVar = "Model"

    model: Any
    """A path or an in-memory model: any model that `open_model` accepts."""
    inputs: Annotated[
        Sequence[str], Flag(format="names", hidden="--input_layer --input-layer")
    ] = ()
    """Tensors to feed, separated by commas [default: those of the signature, or the
    placeholders]."""
    outputs: Annotated[
        Sequence[str], Flag(format="names", hidden="--output_layer --output-layer")
    ] = ()
    """Tensors to compute, separated by commas [default: those of the signature, or the nodes that
    no other node reads]. To keep a constant or variable that no other node reads, name it here."""
    tags: Annotated[Sequence[str], Flag(format="tags")] = ()
    """Tags of the graph to use from a SavedModel with several graphs, separated by commas; ""
    selects the graph without tags [default: serve, or the only graph]."""
    signature: Annotated[str | None, Flag(metavar="NAME")] = None
    """Signature of the model [default: serving_default, or the only one]."""
    pins: Annotated[Mapping[str, str], Flag("--pin", format="pin")] = field(default_factory=dict)
    """Replace a placeholder with this constant; may be repeated."""
    graph: Annotated[str | Path | None, Flag(format="path")] = None
    """The GraphDef of a checkpoint without a .meta file, or the JSON file of a Keras model whose
    weights are in an .h5 file."""

    @property
    def interface(self) -> Interface:
        """The selected inputs, outputs, tags and signature."""
        return Interface(tuple(self.inputs), tuple(self.outputs), tuple(self.tags), self.signature)

    @classmethod
    def of(cls, model: Any, interface: Interface) -> "ModelSource":
        """Return a source that selects a part of a model."""
        return cls(model, interface.inputs, interface.outputs, interface.tags, interface.signature)


def source_of(model: Any) -> ModelSource:
    """Return a model as a `ModelSource`; one is returned unchanged."""
    return model if isinstance(model, ModelSource) else ModelSource(model)
