"""A page as a value: its text, and how a notebook shows it."""

from dataclasses import dataclass
from html import escape

from deploykit.transforms.core.display.documents import Documented, Hidden


@dataclass(frozen=True)
class ReportPage(Documented):
    """An HTML page that shows results."""

    html: Hidden[str]
    kinds: tuple[str, ...]
    """What was shown: `ship`, `benchmark`, `tuned` and the like, in order."""
    files: tuple[str, ...]
    """How each is called: the path of a file, `result.document()` of a value."""
    output: Hidden[str | None] = None
    """The file that it was written to."""

    def _repr_html_(self) -> str:
        """Return the page in a frame, so that its rules change nothing of a notebook's."""
        return (
            f'<iframe sandbox title="report" srcdoc="{escape(self.html)}" '
            'style="width:100%;height:48rem;border:0"></iframe>'
        )
