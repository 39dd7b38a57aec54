"""The page of what the Graph Transform Tool does wrong, made of the tests that show it."""

import functools
import importlib
import pkgutil

from docs.generator.markdown import plain
from tests.differential import defects

INTRODUCTION = """
deploykit is the successor of TensorFlow's Graph Transform Tool, which TensorFlow no longer
ships: an old `transform_graph` command runs here, and old code that calls
`TransformGraph(graph_def, inputs, outputs, transforms)` imports it from `deploykit`.

The original is still inside the TensorFlow wheel, behind a private binding.
`tests/differential` runs both tools on the same graphs: where the original is right, the
results are equal but for a short list of intended deviations; where it is wrong, each line
below is a test that shows both.
"""


@functools.cache
def tables() -> dict[str, list[str]]:
    """Return the lines of a table for each transform that has any, in Markdown."""
    found: dict[str, list[str]] = {}
    for module in sorted(module.name for module in pkgutil.iter_modules(defects.__path__)):
        for each in getattr(importlib.import_module(f"{defects.__name__}.{module}"), "DEFECTS", ()):
            cells = map(plain, (each.what, each.original, each.deploykit))
            found.setdefault(each.transform, []).append(f"| {' | '.join(cells)} |")
    return found


def page() -> str:
    """Return the page."""
    parts = ["# Where the Graph Transform Tool was wrong", INTRODUCTION.strip()]
    for transform, rows in sorted(tables().items()):
        head = ["| where | what it did | what deploykit does |", "|---|---|---|"]
        parts += [f"## {transform}", "\n".join([*head, *rows])]
    return "\n\n".join(parts) + "\n"
