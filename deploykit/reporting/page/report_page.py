"""A page as a value: its text, and how a notebook shows it."""

from dataclasses import dataclass
from html import escape
from typing import Any


@dataclass(frozen=True)
class ReportPage:
    """An HTML page that shows results."""

    html: str
    kinds: tuple[str, ...]
    """What was shown: `ship`, `benchmark`, `tuned` and the like, in order."""
    files: tuple[str, ...]
    """How each is called: the path of a file, `result.document()` of a value."""
    output: str | None = None
    """The file that it was written to."""

    def document(self) -> dict[str, Any]:
        """Return what was made as plain data."""
        return {"kinds": list(self.kinds), "files": list(self.files)}

    def _repr_html_(self) -> str:
        """Return the page in a frame, so that its rules change nothing of a notebook's."""
        return (
            f'<iframe sandbox title="report" srcdoc="{escape(self.html)}" '
            'style="width:100%;height:48rem;border:0"></iframe>'
        )
