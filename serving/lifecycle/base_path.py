"""Finds the models of a folder: the versions of one model, or several models with versions."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from deploykit.serving.lifecycle.model_config import ModelSettings
from deploykit.serving.protocol.versions import number_of
from deploykit.transforms.common.errors import FileError, GraphError

_EXPORTED = (".pb", ".pbtxt", ".keras", ".h5")
_LEVELS = 3  # above and below a folder, searched for models to suggest
_MAX_FOLDERS = 1000  # per level
_MAX_NAMED = 3


def models_in(folder: Path, name: str = "") -> tuple[ModelSettings, ...]:
    """Return the models of a folder: itself under `name`, or each child that contains versions.

    FileError: it cannot be read. GraphError: it contains neither; the message suggests a path.
    """
    folder = folder.absolute()
    if folder.is_file():
        raise FileError("base-path-not-folder", source=folder, advice=_instead(folder))
    models = _models(folder)
    if not models:
        raise GraphError("base-path-empty", source=folder, advice=_instead(folder))
    if models == [folder]:
        return (ModelSettings(name or folder.name, folder),)
    if name:
        raise GraphError("base-path-several-models", source=folder, count=len(models), name=name)
    return tuple(ModelSettings(model.name, model) for model in models)


def _models(folder: Path) -> list[Path]:
    """Return the folder itself if it contains versions, or its children that do."""
    children = _folders(folder)
    if any(number_of(child.name) is not None for child in children):
        return [folder]
    return [child for child in children if _versions(child)]


def _versions(folder: Path) -> list[Path]:
    return [item for item in _folders(folder) if number_of(item.name) is not None]


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(entry.path) for entry in entries
                          if entry.is_dir() and not entry.name.startswith("."))  # fmt: skip
    except OSError as error:
        raise FileError(
            "base-path-unreadable", source=folder, reason=error.strerror or error
        ) from None


def _instead(path: Path) -> str:
    """Return advice for a path without models, such as another path that works."""
    saved = next(filter(_is_saved_model, [path, *path.parents[:_LEVELS]]), None)
    if saved is not None and number_of(saved.name) is not None:
        return f"this belongs to version {saved.name} of a model: give {saved.parent}"
    if saved is not None or path.suffix in _EXPORTED:
        model = path if saved is None else saved
        return f"deploykit export {model} BASE_DIR makes a version of it; then give BASE_DIR"
    folder = path if path.is_dir() else path.parent
    below = list(itertools.islice(_below(folder), _MAX_NAMED))
    if below:
        return f"give {' or '.join(map(str, below))}"
    return f"as in {folder / '1'} or {folder / 'NAME' / '1'}"


def _is_saved_model(path: Path) -> bool:
    return (path / "saved_model.pb").is_file()


def _below(folder: Path) -> Iterator[Path]:
    """Yield the nearest subfolders with models that can be loaded."""
    level = [folder]
    for _ in range(_LEVELS):
        level = list(itertools.islice(
            (child for item in level for child in _readable_folders(item)), _MAX_FOLDERS
        ))  # fmt: skip
        results = [item for item in level if _serves(item)]
        if results:
            yield from results
            return


def _serves(folder: Path) -> bool:
    """Return whether `models_in` accepts a folder and one of its versions is a SavedModel."""
    try:
        versions = [version for model in _models(folder) for version in _versions(model)]
    except FileError:
        return False
    return any(map(_is_saved_model, versions))


def _readable_folders(folder: Path) -> list[Path]:
    try:
        return _folders(folder)
    except FileError:
        return []
