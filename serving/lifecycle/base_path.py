"""What a folder holds: the versions of one model, or models with versions."""

import os
from pathlib import Path

from deploykit.serving.lifecycle.model_config import ModelSettings
from deploykit.serving.protocol.version_numbers import number_of
from deploykit.transforms.core.errors import FileError, GraphError


def models_in(folder: Path, name: str = "") -> tuple[ModelSettings, ...]:
    """Return the models of a folder: itself under `name`, or each child that holds versions.

    FileError: it cannot be read. GraphError: it holds neither.
    """
    folder = folder.absolute()
    children = _folders(folder)
    if any(number_of(child.name) is not None for child in children):
        return (ModelSettings(name or folder.name, folder),)
    models = [child for child in children if any(number_of(each.name) is not None
              for each in _folders(child))]  # fmt: skip
    if models and not name:
        return tuple(ModelSettings(model.name, model) for model in models)
    if models:
        raise GraphError(f"{folder}: it holds {len(models)} models, which have names of their own; "
                         f"--model_name cannot name them all {name}")  # fmt: skip
    if (folder / "saved_model.pb").exists():
        raise GraphError(f"{folder}: this is a version of a model, expected the folder that holds "
                         f"it under a number, as in {folder.parent / 'NAME' / '1'}")  # fmt: skip
    raise GraphError(f"{folder}: it holds no model, expected folders whose names are numbers, as "
                     f"in {folder / '1'} or {folder / 'NAME' / '1'}")  # fmt: skip


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(each.path) for each in entries
                          if each.is_dir() and not each.name.startswith("."))  # fmt: skip
    except OSError as error:
        raise FileError(f"{folder}: {error.strerror or error}, expected a folder") from None
