"""Values that show themselves in a notebook."""

import importlib
from typing import Any

from deploykit.transforms.core.display.documents import Documented


class AsHtml(Documented):
    """What functions of the API return: in Jupyter it shows the tables of the command line.

    Those are drawn far above the rooms where values live, so the drawing is looked up by its name.
    """

    def __init_subclass__(cls) -> None:
        """Let IPython find how a class prints before it finds what a dataclass has for `repr`."""
        super().__init_subclass__()
        cls._repr_pretty_ = AsHtml._repr_pretty_  # type: ignore[method-assign]

    def _repr_html_(self) -> str:
        """Return HTML for a notebook; what cannot be drawn shows as `repr` does."""
        found: str = _drawing().html_of(self)
        return found

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the same as text, where it stands alone; a result may hold a million latencies."""
        is_alone = len(getattr(printer, "stack", ())) < 2
        printer.text(_drawing().plain_of(self) if is_alone else repr(self))


def _drawing() -> Any:
    return importlib.import_module("deploykit.text.results.shown")
