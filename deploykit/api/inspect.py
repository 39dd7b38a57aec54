"""What is in a model, and what it costs."""

from dataclasses import dataclass
from typing import Annotated

from deploykit.api.public import Command, public
from deploykit.freezing.open_model import OpenedModel, open_model
from deploykit.inspection.summary import InspectionFacts, inspect_graph
from deploykit.text.progress import working
from deploykit.transforms.core.display.as_html import AsHtml
from deploykit.transforms.core.display.documents import Flat, Hidden
from deploykit.transforms.core.display.flag import Flag
from deploykit.verification.public_types import ModelLike


@dataclass(frozen=True)
class Inspection(AsHtml):
    """What is in a model."""

    model: Hidden[OpenedModel]
    facts: Flat[InspectionFacts]


@public(Command(heading="What is shown", requires=()))
def inspect(
    model: ModelLike,
    *,
    top: Annotated[int, Flag(at_least=0)] = 10,
    structure: bool = False,
) -> Inspection:
    """Show what a model contains, and its FLOPs and memory.

    Shows inputs, outputs, variables, parameters, ops, devices and functions, and the batch norms
    that can be folded. FLOPs (a multiply-add counts as 2) and memory are estimated at batch 1, for
    nodes whose shapes are known without running the model.

    A GraphDef file is shown as it is. Any other model is frozen first, so it has no variables.

    Args:
        model: whatever `open_model` takes.
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
