"""What two models do not have in common."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploykit.api.public import INTERFACE, Command, public
from deploykit.freezing.open_model import OpenedModel, open_model
from deploykit.inspection.diff import differences
from deploykit.text.progress import working
from deploykit.transforms.core.display.as_html import AsHtml
from deploykit.transforms.core.display.documents import Flat, Hidden
from deploykit.verification.public_types import ModelLike


@dataclass(frozen=True)
class Differences(AsHtml):
    """The nodes and functions that two models do not share."""

    first: Hidden[OpenedModel]
    second: Hidden[OpenedModel]
    facts: Flat[Mapping[str, Any]]

    @property
    def equal(self) -> bool:
        """Whether there are none."""
        return bool(self.facts["equal"])


@public(
    Command(
        requires=(),
    ),
    models="first second",
    interface=INTERFACE,
)
def diff(
    first: ModelLike,
    second: ModelLike,
) -> Differences:
    """Show the nodes that two models do not share.

    Exits with 0 if the graphs are equal, and with 5 if they differ. A summary comes first: nodes,
    ops by count, weights, inputs and outputs. Then each difference follows. A line starts with -
    for a node that only FIRST has, with + for one that only SECOND has, and with ~ for a node whose
    op, inputs, device or attributes differ.

    The order of nodes, attributes whose names start with an underscore, and versions are not
    compared. `deploykit verify` compares what the models compute.

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
