"""The README is true: its table of transforms is generated, its commands exist."""

import os
import re
from pathlib import Path

from deploykit.catalogue import describe
from deploykit.cli import COMMANDS
from transforms.core import pipeline

README = Path(__file__).parents[1] / "README.md"
START, END = "<!-- transforms: written by make golden -->\n", "<!-- end -->"
TABLE = re.compile(f"(?<={START}).*?(?={END})", re.DOTALL)


def table() -> str:
    """Return the table of transforms in Markdown."""
    rows = ["| transform | what it does | parameters |", "|---|---|---|"]
    for name in pipeline.names():
        described = describe(name)
        parameters = ", ".join(f"`{p['name']}`" for p in described["parameters"])
        rows.append(f"| `{name}` | {described['summary']} | {parameters} |")
    return "\n".join(rows) + "\n"


def test_the_table_of_transforms():
    text = README.read_text()
    if os.environ.get("DEPLOYKIT_GOLDEN") == "write":
        README.write_text(TABLE.sub(lambda _: table(), text))
        text = README.read_text()
    found = TABLE.search(text)
    assert found is not None
    assert found.group() == table(), "run `make golden`"


def test_commands_in_the_readme_exist():
    used = set(re.findall(r"(?:^|[^.\w])deploykit ([a-z]+)", README.read_text()))
    assert used & set(COMMANDS) == used - {"takes"}
    assert {"quantize", "verify", "freeze"} <= used


def test_the_two_commands_are_the_first_ones():
    block = re.search(r"```sh\n(.*?)```", README.read_text(), re.DOTALL)
    assert block is not None
    assert [line.split()[:2] for line in block.group(1).splitlines()] == [
        ["make", "demo"],
        ["make", "test"],
    ]
