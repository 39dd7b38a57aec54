"""The page of the Graph Transform Tool's defects, generated from the tests that show them."""

import functools
import importlib
import pkgutil

from docs.generator.markdown import plain
from tests.differential import defects

INTRODUCTION = """
Run an old `transform_graph` command with deploykit:

```sh
deploykit transform --in_graph=model.pb --out_graph=out.pb \\
  --transforms='strip_unused_nodes fold_constants fold_batch_norms'
```

deploykit is the successor of TensorFlow's Graph Transform Tool, which TensorFlow no longer ships.
Old code that calls `TransformGraph(graph_def, inputs, outputs, transforms)` imports it from
`deploykit`.

The TensorFlow wheel still contains the original, behind a private binding. `tests/differential`
runs both tools on the same graphs. Where the original is correct, the results are equal except for
a short list of intended deviations. Each line below is a test that shows a defect of the original
and the result of deploykit.
"""


@functools.cache
def tables() -> dict[str, list[str]]:
    """Return the table rows of each transform with defects, in Markdown."""
    found: dict[str, list[str]] = {}
    for module in sorted(module.name for module in pkgutil.iter_modules(defects.__path__)):
        for each in getattr(importlib.import_module(f"{defects.__name__}.{module}"), "DEFECTS", ()):
            cells = map(plain, (each.what, each.original, each.deploykit))
            found.setdefault(each.transform, []).append(f"| {' | '.join(cells)} |")
    return found


def page() -> str:
    """Return the page."""
    parts = ["# Defects of the Graph Transform Tool", INTRODUCTION.strip()]
    for transform, rows in sorted(tables().items()):
        head = ["| case | Graph Transform Tool | deploykit |", "|---|---|---|"]
        parts += [f"## {transform}", "\n".join([*head, *rows])]
    return "\n\n".join(parts) + "\n"
