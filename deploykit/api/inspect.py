"""What is in a model, and what it costs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploykit.freezing.open_model import OpenedModel, open_model
from deploykit.inspection.summary import inspect_graph
from deploykit.text.progress import working
from deploykit.transforms.core.display.as_html import AsHtml
from deploykit.transforms.core.display.documents import Flat, Hidden


@dataclass(frozen=True)
class Inspection(AsHtml):
    """What is in a model."""

    model: Hidden[OpenedModel]
    facts: Flat[Mapping[str, Any]]


def inspect(model: Any, *, top: int = 10, structure: bool = False) -> Inspection:
    """Say what is in a model, and what it costs at batch 1, as far as shapes are known.

    A GraphDef file is looked at as it stands; any other model is frozen first.

    Args:
        model: whatever `open_model` takes.
        top: how many of the nodes that take most memory are listed.
        structure: whether every node is listed, as a line of text.

    FileError, GraphError: the model cannot be read.

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
