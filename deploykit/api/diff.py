"""What two models do not have in common."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploykit.freezing.open_model import OpenedModel, open_model
from deploykit.inspection.diff import differences
from deploykit.text.progress import working
from deploykit.transforms.core.display.as_html import AsHtml
from deploykit.transforms.core.display.documents import Flat, Hidden


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


def diff(first: Any, second: Any) -> Differences:
    """Compare the nodes of two models, as `deploykit.verify` compares what they compute.

    The order of nodes does not matter, nor do attributes whose names start with an underscore, nor
    versions. A GraphDef file, which needs no output here, is taken as it stands; any other model is
    frozen first.

    Args:
        first, second: whatever `open_model` takes.

    FileError, GraphError: a model cannot be read.

    Example:
        >>> deploykit.diff("fashion.keras", "fashion.keras").equal
        True
    """
    with working("diff"):
        a, b = (open_model(each, needs_output=False) for each in (first, second))
        return Differences(a, b, differences(a.graph, b.graph))
