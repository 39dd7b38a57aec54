"""Processes in which optional packages cannot be imported, as if they were not installed."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]
TENSORFLOW = ("tensorflow", "tensorflow_serving", "keras", "tf_keras")
_HIDING = """
from importlib.machinery import PathFinder

HIDDEN = {}
find_spec = PathFinder.find_spec
PathFinder.find_spec = classmethod(lambda cls, name, path=None, target=None: (
    None if name.partition(".")[0] in HIDDEN else find_spec(name, path, target)))
"""


def hiding(folder: Path, *packages: str) -> dict[str, str]:
    """Return the environment variables of such processes; `folder` gets a sitecustomize.py."""
    (folder / "sitecustomize.py").write_text(_HIDING.format(packages))
    return {"PYTHONPATH": os.pathsep.join((str(folder), str(ROOT)))}
