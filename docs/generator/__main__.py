"""Write the generated pages of docs/, or with --check list those that are out of date.

python -m docs.generator [--check]
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from docs.generator import (
    api,
    command_table,
    commands,
    defects,
    errors,
    removals,
    schemas,
    stub,
    transforms,
)

DOCS = Path(__file__).parents[1]
SCHEMAS = "schemas"
MARK = "<!-- Written by `make docs` from the code: change that instead. -->\n"


def pages() -> dict[str, str]:
    """Return the text of each generated page, by its path in docs/."""
    found = {
        "commands.md": commands.page(),
        "errors.md": errors.page(),
        "removed.md": removals.page(),
        "python-api.md": api.page(),
        "graph-transform-tool.md": defects.page(),
        **{f"transforms/{name}": text for name, text in transforms.pages().items()},
    }
    marked = {path: MARK + text for path, text in found.items()}
    return marked | {f"{SCHEMAS}/{name}": text for name, text in schemas.pages().items()}


def outdated(wanted: dict[str, str], docs: Path) -> list[str]:
    """Return the pages that differ, are missing, or are no longer generated."""
    paths = [*docs.rglob("*.md"), *(docs / SCHEMAS).glob("*.json")]
    there = {str(path.relative_to(docs)): path.read_text() for path in paths}
    old = {path for path, text in there.items() if path.endswith(".json") or text.startswith(MARK)}
    old -= wanted.keys()
    return sorted(old | {path for path, text in wanted.items() if there.get(path) != text})


def write(wanted: dict[str, str], docs: Path) -> None:
    """Write the pages, and remove those that are no longer generated."""
    for path in outdated(wanted, docs):
        if path in wanted:
            (docs / path).parent.mkdir(parents=True, exist_ok=True)
            (docs / path).write_text(wanted[path])
        else:
            (docs / path).unlink()
        print(f"docs/{path}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or compare the pages, and return the exit status."""
    parser = argparse.ArgumentParser(prog="docs.generator", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    is_check = parser.parse_args(arguments).check
    for made in (command_table, stub):
        path, text = made.PATH, made.text()
        if path.exists() and path.read_text() == text:
            continue
        if is_check:
            print(f"{path.name} is out of date; run `make docs`")
            return 1
        path.write_text(text)  # the pages are generated from the table of commands
    if not is_check:
        write(pages(), DOCS)
        return 0
    differing = outdated(pages(), DOCS)
    for name in differing:
        print(f"docs/{name} is out of date; run `make docs`")
    return 1 if differing else 0


if __name__ == "__main__":
    raise SystemExit(main())
