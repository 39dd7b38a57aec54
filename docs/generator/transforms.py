"""A page for each transform: its docstring, and golden graphs before and after."""

import re
from pathlib import Path
from typing import Any

from deploykit.pipelines.catalogue import describe
from deploykit.transforms.ir import pipeline
from docs.generator import defects
from docs.generator.markdown import code, docstring, fence, link, plain

GOLDEN = Path(__file__).parents[2] / "tests" / "golden"
_LONG = 40  # lines; longer graphs are collapsed
INTRODUCTION = """
A transform edits a graph. Run several in the order of a transform string:

```sh
deploykit transform --in_graph=model.pb --out_graph=out.pb --verify \\
  --transforms='strip_unused_nodes fold_constants(ignore_errors=true) fold_batch_norms'
```

Parameters are in parentheses; one that may be repeated is given several times. Every transform
takes `ignore_errors=true`: if it fails, it is skipped. `deploykit.transform(graph, "...")` does the
same in Python. [Your own transform](../own-transforms.md) is a function in a file.
"""


def pages() -> dict[str, str]:
    """Return the pages by their file names; README.md is the list."""
    found = {f"{name}.md": _page(name) for name in pipeline.names()}
    return {"README.md": _list(), **found}


def _list() -> str:
    rows = ["| transform | what it does | parameters |", "|---|---|---|"]
    for name in pipeline.names():
        described = describe(name)
        parameters = ", ".join(f"`{each['name']}`" for each in described["parameters"])
        summary = _linked(plain(described["summary"]), name)
        rows.append(f"| {link(f'`{name}`', f'{name}.md')} | {summary} | {parameters} |")
    aliases = [
        f"* `{alias}`: {', then '.join(link(f'`{name}`', f'{name}.md') for name in names)}."
        for alias, names in sorted(pipeline.ALIASES.items())
    ]
    parts = ["# Transforms", INTRODUCTION.strip(), "\n".join(rows)]
    return "\n\n".join([*parts, "Other names, from the Graph Transform Tool:", *aliases]) + "\n"


def _page(name: str) -> str:
    described = describe(name)
    text = docstring(pipeline.function(name)).text
    parts = [f"# {name}", _linked(text, name)]
    if described["parameters"]:
        rows = [_parameter(each, name) for each in described["parameters"]]
        head = ["| parameter | type | default | |", "|---|---|---|---|"]
        parts.append("\n".join([*head, *rows]))
    parts.append("## Before and after")
    for path in _golden(name):
        if path.parent != GOLDEN and len(_golden(name)) > 1:
            parts.append(f"### {path.stem.replace('_', ' ')}")
        before, after = path.read_text().split("---\n")
        parts += [_graph("before", before), _graph("after", after)]
    if name in defects.tables():
        where = f"../graph-transform-tool.md#{name}"
        parts.append(f"Defects of the Graph Transform Tool here: {link('the list', where)}.")
    return "\n\n".join([*parts, link("All transforms", "README.md")]) + "\n"


def _parameter(parameter: dict[str, Any], transform: str) -> str:
    repeatable = ", may be repeated" if parameter["repeatable"] else ""
    default = "required" if parameter["required"] else code(repr(parameter["default"]))
    text = _linked(plain(parameter["help"]), transform)
    return f"| `{parameter['name']}` | {parameter['type']}{repeatable} | {default} | {text} |"


def _golden(name: str) -> list[Path]:
    return [*GOLDEN.glob(f"{name}.txt"), *sorted((GOLDEN / name).glob("*.txt"))]


def _graph(when: str, text: str) -> str:
    count = len(text.splitlines())
    title, block = f"{when}, {count} {'node' if count == 1 else 'nodes'}", fence(text, "text")
    if count <= _LONG:
        return f"{title}:\n\n{block}"
    return f"<details><summary>{title}</summary>\n\n{block}\n\n</details>"


def _linked(text: str, here: str) -> str:
    """Return text in which the names of the other transforms lead to their pages."""
    names = "|".join(each for each in pipeline.names() if each != here)
    return re.sub(rf"`({names})`", r"[`\1`](\1.md)", text)
