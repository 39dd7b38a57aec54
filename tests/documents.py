"""The keys of every JSON document that a command prints, pinned: programs rely on them.

`tests/data/documents/COMMAND.txt` holds a path a line, such as `layers[].sqnr_db`; one that some
documents of the command lack ends in ` ?`. Whatever a test prints as JSON is held against it. To
write them anew: `DEPLOYKIT_DOCUMENTS=FOLDER make test`, then `python -m tests.documents FOLDER`.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PINS = Path(__file__).parent / "data" / "documents"
SAMPLES = os.environ.get("DEPLOYKIT_DOCUMENTS")

# Their keys are names of nodes, of models or of the user's; what is below each is pinned once.
MAPS = frozenset(
    {
        "by_output", "devices", "fed", "ops", "flops.by_op", "features", "sample", "signatures",
        "signatures.*.inputs", "signatures.*.outputs", "values", "models", "float",
        "preprocessing.inputs", "preprocessing.columns", "environment", "profiles",
        "seconds_by_step", "versions", "gpu.libraries", "columns", "changed[].attributes",
        "summary.ops", "settings.env", "latency.settings.env", "throughput.settings.env",
        "default.settings.env", "trials[].settings.env", "measurements[].settings.env",
        "measurements[].facts.environment", "not_stored",
        "lacking", "engine.left_to_tensorflow", "latency.environment", "throughput.environment",
        "ops_by_precision", "ops_by_precision.*", "ops_by_device", "ops_by_device.*",
    }
)  # fmt: skip


# What other commands print, which is pinned for these.
OTHERS = frozenset({"stages[].document", "figures", "options", "error.fields"})


def outline(value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of all keys of a document, `[]` for the elements of a list."""
    if isinstance(value, dict):
        for key, each in value.items():
            name = "*" if path in MAPS else key
            below = f"{path}.{name}" if path else name
            yield below
            if below not in OTHERS:
                yield from outline(each, below)
    elif isinstance(value, list):
        for each in value:
            yield from outline(each, f"{path}[]")


def pinned(document: dict[str, Any], folder: Path = PINS) -> dict[str, Any]:
    """Return a document. AssertionError: it lacks a key that is pinned, or has another one."""
    command = document["command"]
    if SAMPLES:
        record(document, Path(SAMPLES))
        return document
    always, sometimes = pins(command, folder)
    found = set(outline(document))
    new = found - always - sometimes
    assert not new, f"{command}: keys that are not pinned: {sorted(new)}"
    gone = {path for path in always - found if _has_keys_below(found, path.rpartition(".")[0])}
    assert not gone, f"{command}: keys that are pinned and gone: {sorted(gone)}"
    return document


def pins(command: str, folder: Path = PINS) -> tuple[set[str], set[str]]:
    """Return the paths that each document of a command has, and those that some have."""
    lines = (folder / f"{command}.txt").read_text().splitlines()
    always = {line for line in lines if not line.endswith(" ?")}
    return always, {line.removesuffix(" ?") for line in lines} - always


def record(document: dict[str, Any], folder: Path) -> None:
    """Keep a document, for `main`."""
    folder.mkdir(exist_ok=True, parents=True)
    with (folder / f"{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps(document) + "\n")


def main(folder: str) -> None:
    """Write the pins from the documents that the tests have printed."""
    by_command: dict[str, list[dict[str, Any]]] = {}
    for path in Path(folder).glob("*.jsonl"):
        for line in path.read_text().splitlines():
            document = json.loads(line)
            by_command.setdefault(document["command"], []).append(document)
    PINS.mkdir(exist_ok=True, parents=True)
    for command, documents in by_command.items():
        found = [set(outline(document)) for document in documents]
        lines = []
        for path in sorted(set().union(*found)):
            above = path.rpartition(".")[0]
            having = [paths for paths in found if _has_keys_below(paths, above)]
            lines.append(path if all(path in paths for paths in having) else f"{path} ?")
        (PINS / f"{command}.txt").write_text("\n".join(lines) + "\n")


def _has_keys_below(paths: set[str], above: str) -> bool:
    return not above or any(path.rpartition(".")[0] == above for path in paths)


if __name__ == "__main__":
    main(sys.argv[1])
