"""inspect and diff: the contents of a model, and the differences between two."""

from dataclasses import dataclass
from typing import Annotated

from deploykit.api.public import Command, public
from deploykit.importers.open_model import ModelLike, OpenedModel, open_model
from deploykit.inspection.diff import GraphDifferences, differences
from deploykit.inspection.summary import InspectionMetadata, inspect_graph
from deploykit.rendering.progress import working
from deploykit.transforms.common.documents import AsHtml, Flat, Hidden
from deploykit.transforms.common.flag import Flag


@dataclass(frozen=True)
class Inspection(AsHtml):
    """The contents of a model, with its FLOPs and memory."""

    model: Hidden[OpenedModel]
    facts: Flat[InspectionMetadata]


@public(Command(heading="Display", requires=()))
def inspect(
    model: ModelLike, *, top: Annotated[int, Flag(at_least=0)] = 10, structure: bool = False
) -> Inspection:
    """Show what a model contains, and its FLOPs and memory.

    Shows inputs, outputs, variables, parameters, ops, devices and functions, and the batch norms
    that can be folded. FLOPs (a multiply-add counts as 2) and memory in bytes are estimated at
    batch 1, for nodes whose shapes are known without running the model.

    A GraphDef file is shown as it is. Any other model is frozen first, so it has no variables.

    Args:
        model: any model that `open_model` accepts.
        top: Number of the largest nodes to list.
        structure: Also print every node, one per line.

    FileError, GraphError: the model cannot be read.

    Commands:
        deploykit inspect models/fashion/fashion.keras
        deploykit inspect model.pb --structure

    Example:
        >>> deploykit.inspect("fashion.keras").facts["layers"]
        12
    """
    with working("inspect"):
        opened = open_model(model)
        facts = inspect_graph(opened.graph, top)
        if structure:
            facts["structure"] = str(opened.graph).splitlines()
    return Inspection(opened, facts)


@dataclass(frozen=True)
class Differences(AsHtml):
    """The nodes and functions that differ between two models."""

    first: Hidden[OpenedModel]
    second: Hidden[OpenedModel]
    facts: Flat[GraphDifferences]

    @property
    def equal(self) -> bool:
        """Whether the models have no differences."""
        return self.facts["equal"]


@public(Command(requires=()))
def diff(first: ModelLike, second: ModelLike) -> Differences:
    """Show the nodes that differ between two models.

    Exits with 0 if the graphs are equal, and with 5 if they differ. Prints a summary of nodes, ops,
    weights, inputs and outputs, then each difference. Lines with - are nodes only in FIRST, + only
    in SECOND, and ~ nodes whose op, inputs, device or attributes differ.

    The order of nodes, attributes whose names start with an underscore, and versions are not
    compared. `deploykit verify` compares the outputs of the models.

    Args:
        first: any model that `open_model` accepts.
        second: the model to compare with it.

    FileError, GraphError: a model cannot be read.

    Commands:
        deploykit diff model.pb optimized.pb
        deploykit diff models/fashion/fashion.keras model.pb --json

    Example:
        >>> deploykit.diff("fashion.keras", "fashion.keras").equal
        True
    """
    with working("diff"):
        a, b = (open_model(item, needs_output=False) for item in (first, second))
        return Differences(a, b, differences(a.graph, b.graph))
