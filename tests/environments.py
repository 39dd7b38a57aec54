"""Environments of their own for what must not share ours; where they cannot be made, tests skip.

They lie in a folder that git ignores, so the next run finds them there.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ENVIRONMENTS = Path(__file__).parents[1] / "benchmark-results"


def python_with(name: str, *requirements: str) -> Path:
    """Return the interpreter of an environment that has these packages, from PyPI."""
    folder = ENVIRONMENTS / name
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        folder.parent.mkdir(exist_ok=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        _install(folder, [str(python), "-m", "pip", "install", "--quiet", *requirements])
    return python


def answers_of(python: Path, script: Path, *arguments: str) -> Any:
    """Run a script that asks a server; return the JSON in the last line that it writes."""
    command = [str(python), str(script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def node_with(name: str, *packages: str) -> Path:
    """Return a folder whose node_modules has these packages, from npm."""
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("there is no node, or no npm")
    folder = ENVIRONMENTS / name
    if not (folder / "ready").exists():
        folder.mkdir(parents=True, exist_ok=True)
        _install(folder, ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts",
                          "--prefix", str(folder), *packages])  # fmt: skip
    return folder


def _install(folder: Path, command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "error" in line.lower()]
        reason = "; ".join(said[:2]) or "nothing was said"
        pytest.skip(f"{folder.name} cannot be installed: {reason}")
    (folder / "ready").touch()
