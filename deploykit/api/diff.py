"""What two models do not have in common."""

from dataclasses import dataclass

from deploykit.api.public import Command, public
from deploykit.freezing.open_model import OpenedModel, open_model
from deploykit.inspection.diff import GraphDifferences, differences
from deploykit.text.progress import working
from deploykit.transforms.core.display.as_html import AsHtml
from deploykit.transforms.core.display.documents import Flat, Hidden
from deploykit.verification.public_types import ModelLike


@dataclass(frozen=True)
class Differences(AsHtml):
    """The nodes and functions that two models do not share."""

    first: Hidden[OpenedModel]
    second: Hidden[OpenedModel]
    facts: Flat[GraphDifferences]

    @property
    def equal(self) -> bool:
        """Whether there are none."""
        return self.facts["equal"]


@public(Command(requires=()))
def diff(
    first: ModelLike,
    second: ModelLike,
) -> Differences:
    """Show the nodes that two models do not share.

    Exits with 0 if the graphs are equal, and with 5 if they differ. Prints a summary of nodes, ops,
    weights, inputs and outputs, then each difference. Lines with - are nodes only in FIRST, + only
    in SECOND, and ~ nodes whose op, inputs, device or attributes differ.

    The order of nodes, attributes whose names start with an underscore, and versions are not
    compared. `deploykit verify` compares the outputs of the models.

    Args:
        first: whatever `open_model` takes.
        second: likewise.

    FileError, GraphError: a model cannot be read.

    Commands:
        deploykit diff model.pb optimized.pb
        deploykit diff models/fashion/fashion.keras model.pb --json

    Example:
        >>> deploykit.diff("fashion.keras", "fashion.keras").equal
        True
    """
    with working("diff"):
        a, b = (open_model(each, needs_output=False) for each in (first, second))
        return Differences(a, b, differences(a.graph, b.graph))
