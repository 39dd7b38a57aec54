"""What a model over files of data has left, and how it went."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from deploykit.transforms.core.display.as_html import AsHtml
from deploykit.transforms.core.display.documents import Hidden, Written

_TOLD = ("name", "model", "data", "options", "columns", "rows", "bytes", "skipped", "shards")


@dataclass(frozen=True)
class InferRun:
    """How one run went; other runs may have computed other parts."""

    engine: str
    """What scheduled the work."""
    workers: int = 0
    """How many computed at once; 0: there was nothing to do."""
    rows: int = 0
    """That this run computed or left out."""
    kept: int = 0
    """Parts that were there already."""
    lost: int = 0
    """Workers that ended before their work."""
    seconds: float = 0.0
    """From the start of the workers, which load the model, to the end of the last part."""
    rows_per_second: float | None = None
    """Of all workers, from the first rows on; None: there was too little to tell."""
    cpus: float | None = None
    """That they took in the mean meanwhile."""


def _told(index: Mapping[str, Any]) -> dict[str, Any]:
    return {name: index[name] for name in _TOLD}


@dataclass(frozen=True)
class Inferred(AsHtml):
    """Results in a folder, as their index tells of them, and the run that ended with it."""

    path: Annotated[str, Written("index")]
    """Of the index."""
    index: Annotated[Mapping[str, Any], Written(flat=True, by=_told)]
    """What it says, which is the same on every run."""
    run: InferRun
    fed: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """What became of the data on the way to each input, in words."""

    @property
    def outputs(self) -> list[str]:
        """The tensors that were fetched."""
        return list(self.index["options"]["outputs"].values())

    @property
    def rows(self) -> int:
        """How many rows there are, in all parts."""
        return int(self.index["rows"])

    @property
    def parts(self) -> int:
        """How many files hold them."""
        return len(self.index["shards"])

    @property
    def skipped(self) -> list[dict[str, Any]]:
        """The `file`, the `row` and the `reason` of each row that was left out."""
        return list(self.index["skipped"])
