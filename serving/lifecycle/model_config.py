"""Reads the list of served models: a ModelServerConfig as text, in TensorFlow Serving's format."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploykit.serving.lifecycle.version_folders import All, Latest, Policy, Specific
from deploykit.serving.protocol.errors import ServingError, refused
from deploykit.serving.protocol.protos import ConfigError, ModelConfig, ModelServerConfig, parse
from deploykit.serving.protocol.versions import check_name, check_names

logger = logging.getLogger("deploykit")

TENSORFLOW = "tensorflow"
_LONGEST_PATH = 4096  # PATH_MAX of Linux
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
