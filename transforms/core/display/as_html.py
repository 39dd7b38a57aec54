"""Values that show themselves in a notebook."""

import importlib


class AsHtml:
    """What functions of the API return: in Jupyter it shows the tables of the command line.

    Those are drawn far above the rooms where values live, so the drawing is looked up by its name.
    """

    def _repr_html_(self) -> str:
        """Return HTML for a notebook; what cannot be drawn shows as `repr` does."""
        drawing = importlib.import_module("deploykit.text.results.notebook_html")
        found: str = drawing.html_of(self)
        return found
