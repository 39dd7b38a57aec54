"""Conversion of weights and .keras archives of Keras 2.12 and 2.13 to the later layout.

These versions store layers below `_layer_checkpoint_dependencies` and count each layer with weights
twice (`dense`, `dense_2`). Later versions use `layers`, count each layer once, and read only that.
"""

import io
import re
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

_OLD, _NEW = "_layer_checkpoint_dependencies", "layers"
WEIGHTS = "model.weights.h5"
_NUMBERED = re.compile(r"(.*?)(?:_(\d+))?")


def has_old_layout(weights: BinaryIO) -> bool:
    """Return whether an HDF5 file of weights has the old layout."""
    import h5py

    with h5py.File(weights, "r") as file:
        return _OLD in file


def write_weights(source: BinaryIO, target: BinaryIO) -> dict[str, str]:
    """Convert weights from the old layout to the new one; return new paths by old path."""
    import h5py

    moved = {"": ""}
    with h5py.File(source, "r") as old, h5py.File(target, "w") as new:
        waiting = [""]
        while waiting:
            path = waiting.pop()
            group = old[path] if path else old
            renamed = _counted_once(group) if path.rpartition("/")[2] == _OLD else {_OLD: _NEW}
            for name, child in group.items():
                inner = f"{path}/{name}".lstrip("/")
                moved[inner] = f"{moved[path]}/{renamed.get(name, name)}".lstrip("/")
                if isinstance(child, h5py.Group):
                    new.create_group(moved[inner])
                    waiting.append(inner)
                else:
                    old.copy(child, new, name=moved[inner])
    return moved


def write_archive(archive: zipfile.ZipFile, target: Path) -> None:
    """Convert an archive from the old layout to the new one."""
    weights = io.BytesIO()
    moved = write_weights(io.BytesIO(archive.read(WEIGHTS)), weights)
    with zipfile.ZipFile(target, "w") as written:
        for name in archive.namelist():
            if name == WEIGHTS:
                written.writestr(name, weights.getvalue())
            elif not name.endswith("/"):
                written.writestr(_asset(name, moved), archive.read(name))


def _counted_once(names: Iterable[str]) -> dict[str, str]:
    """Return new layer names by old names, which count layers with weights twice."""
    by_class: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        assert match is not None  # it matches anything
        by_class.setdefault(match[1], []).append((int(match[2] or 0), name))
    return {
        name: f"{kind}_{place}" if place else kind
        for kind, numbered in by_class.items()
        for place, (_, name) in enumerate(sorted(numbered))
    }


def _asset(name: str, moved: dict[str, str]) -> str:
    """Return the new path of a file, such as a vocabulary, in the folder of its layer."""
    top, _, rest = name.partition("/")
    folder, _, file = rest.rpartition("/")
    return f"{top}/{moved[folder]}/{file}" if folder in moved and folder else name
