"""Finds the served models: in a ModelServerConfig as text, or in a folder.

A folder contains the versions of one model, or several models with versions.
"""

import itertools
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploykit.serving.lifecycle.version_folders import All, Latest, Policy, Specific
from deploykit.serving.protocol.errors import ServingError, refused
from deploykit.serving.protocol.protos import ConfigError, ModelConfig, ModelServerConfig, parse
from deploykit.serving.protocol.versions import check_name, check_names, number_of
from deploykit.transforms.common.errors import FileError, GraphError

logger = logging.getLogger("deploykit")

TENSORFLOW = "tensorflow"
_LONGEST_PATH = 4096  # PATH_MAX of Linux
_EXPORTED = (".pb", ".pbtxt", ".keras", ".h5")
_LEVELS = 3  # above and below a folder, searched for models to suggest
_MAX_FOLDERS = 1000  # per level
_MAX_NAMED = 3
_MAX_BYTES = 4 << 20  # of a list, which stays in memory: enough for tens of thousands of models


@dataclass(frozen=True)
class ModelSettings:
    """The configuration of one served model."""

    name: str
    base_path: Path
    policy: Policy = field(default_factory=Latest)
    labels: Mapping[str, int] = field(default_factory=dict)
    platform: str = TENSORFLOW


def read_models(path: Path) -> tuple[ModelSettings, ...]:
    """Read a `models.config`. FileError: it cannot be read. ConfigError: its content is invalid."""
    config = parse(path, "ModelServerConfig", ModelServerConfig())
    if not config.WhichOneof("config"):
        raise ConfigError("model-config-without-models", source=path)
    try:
        return model_settings(config)
    except ServingError as error:
        raise error.within(path, ConfigError) from None


def model_settings(config: ModelServerConfig) -> tuple[ModelSettings, ...]:
    """Return the settings of the models in a config.

    ServingError: TensorFlow Serving would reject the list, or this server does not support it.
    """
    if config.WhichOneof("config") != "model_config_list":
        raise refused("reload-config-type")
    if config.ByteSize() > _MAX_BYTES:
        raise refused("config-list-too-large", most=_MAX_BYTES)
    models = config.model_config_list.config
    names: set[str] = set()
    for model in models:
        if model.name in names:
            raise refused("config-model-twice", name=model.name)
        names.add(model.name)
    return tuple(_model(model) for model in models)


def _model(config: ModelConfig) -> ModelSettings:
    name = config.name
    if not name:
        raise refused("config-model-without-name", base_path=config.base_path)
    check_name("the name of a model in the config list", name)
    check_names(f"a label of model {name}", config.version_labels)
    if len(config.base_path) > _LONGEST_PATH:
        raise refused("config-base-path-too-long", name=name, most=_LONGEST_PATH)
    if "://" in config.base_path:
        raise refused("config-base-path-remote", name=name, base_path=config.base_path)
    if not config.base_path.startswith("/"):
        raise refused("config-base-path-relative", name=name, base_path=config.base_path)
    if config.HasField("logging_config"):
        logger.warning("model %s: its logging_config has no effect here", name)
    return ModelSettings(
        name,
        Path(config.base_path),
        _policy(config.model_version_policy),
        dict(config.version_labels),
        _platform(config),
    )


def _platform(config: ModelConfig) -> str:
    """Return the platform. The deprecated `model_type` is the same as a number."""
    if config.model_type and config.model_platform:
        raise refused("config-type-and-platform", name=config.name)
    if config.model_type > 1:
        raise refused("config-type-unsupported", model_type=config.model_type)
    platform = TENSORFLOW if config.model_type else str(config.model_platform)
    if not platform:
        raise refused("config-no-platform", name=config.name)
    return platform


def _policy(proto: Any) -> Policy:
    match proto.WhichOneof("policy_choice"):
        case "all":
            return All()
        case "specific":
            return Specific(tuple(proto.specific.versions))
        case _:
            return Latest(max(proto.latest.num_versions, 1))


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
