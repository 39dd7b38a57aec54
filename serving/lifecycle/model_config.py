"""The files that configure a server: protocol buffers as text, in TensorFlow Serving's format."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploykit.serving.lifecycle.version_folders import All, Latest, Policy, Specific
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.protos import ModelConfig, ModelServerConfig
from deploykit.serving.protocol.text_protos import ConfigError, parse

logger = logging.getLogger("deploykit")

TENSORFLOW = "tensorflow"
METRICS_PATH = "/monitoring/prometheus/metrics"
_PEM = "-----BEGIN "


@dataclass(frozen=True)
class ModelSettings:
    """What is served under a name."""

    name: str
    base_path: Path
    policy: Policy = field(default_factory=Latest)
    labels: Mapping[str, int] = field(default_factory=dict)
    platform: str = TENSORFLOW


@dataclass(frozen=True)
class Batching:
    """How requests are put together; threads: None is one a core."""

    max_batch_size: int = 1000
    batch_timeout_micros: int = 0
    max_enqueued_batches: int = 10
    num_batch_threads: int | None = None
    allowed_batch_sizes: tuple[int, ...] = ()
    pad_variable_length_inputs: bool = False
    enable_large_batch_splitting: bool = False
    max_execution_batch_size: int | None = None

    @property
    def largest(self) -> int:
        """The largest batch that is run at once."""
        split = self.enable_large_batch_splitting and self.max_execution_batch_size
        return split or self.max_batch_size


@dataclass(frozen=True)
class Monitoring:
    """Whether there is a page for Prometheus, and where."""

    enable: bool = False
    path: str = METRICS_PATH


@dataclass(frozen=True)
class Tls:
    """Key and certificates as PEM text."""

    server_key: str = field(repr=False)
    server_cert: str
    custom_ca: str = ""
    client_verify: bool = False
    source: str = field(default="--ssl_config_file", compare=False)
    """Where it was read."""


def read_models(path: Path) -> tuple[ModelSettings, ...]:
    """Read a `models.config`. FileError: it cannot be read. ConfigError: it is no such file."""
    config = parse(path, "ModelServerConfig", ModelServerConfig())
    if not config.WhichOneof("config"):
        raise ConfigError(f"{path}: it names no models, expected model_config_list {{...}}")
    try:
        return model_settings(config)
    except ServingError as error:
        raise ConfigError(f"{path}: {error}") from None


def model_settings(config: ModelServerConfig) -> tuple[ModelSettings, ...]:
    """Return the settings of the models that a config lists.

    ServingError: TensorFlow Serving would not take the list, or it needs what only that has.
    """
    if config.WhichOneof("config") != "model_config_list":
        raise _refusal(
            "ServerModelConfig type not supported by HandleReloadConfigRequest. "
            "Only ModelConfigList is currently supported"
        )
    models = config.model_config_list.config
    names: set[str] = set()
    for model in models:
        if model.name in names:
            raise _refusal(f"Illegal to list model {model.name} multiple times in config list")
        names.add(model.name)
    return tuple(_model(model) for model in models)


def read_batching(path: Path) -> Batching:
    """Read a file of BatchingParameters. FileError, ConfigError: as `read_models`."""
    proto = parse(path, "BatchingParameters")
    given = {field.name: getattr(value, "value", value) for field, value in proto.ListFields()}
    given.pop("thread_pool_name", None)  # there are no pools to name
    given["allowed_batch_sizes"] = tuple(proto.allowed_batch_sizes)
    batching = Batching(**given)
    for name in ("max_batch_size", "max_enqueued_batches", "num_batch_threads",
                 "max_execution_batch_size"):  # fmt: skip
        value = getattr(batching, name)
        if value is not None and value < 1:
            raise ConfigError(f"{path}: {name} is {value}, expected at least 1")
    if batching.batch_timeout_micros < 0:
        raise ConfigError(f"{path}: batch_timeout_micros is {batching.batch_timeout_micros}, "
                          "expected at least 0")  # fmt: skip
    if batching.largest > batching.max_batch_size:
        raise ConfigError(f"{path}: max_execution_batch_size is {batching.largest}, expected at "
                          f"most max_batch_size, which is {batching.max_batch_size}")  # fmt: skip
    _check_allowed(path, batching)
    return batching


def read_monitoring(path: Path) -> Monitoring:
    """Read a file of MonitoringConfig. FileError, ConfigError: as `read_models`."""
    proto = parse(path, "MonitoringConfig").prometheus_config
    page = proto.path or METRICS_PATH
    if not page.startswith("/"):
        raise ConfigError(f"{path}: the path of prometheus_config is {page!r}, expected one that "
                          f"begins with /, as {METRICS_PATH}")  # fmt: skip
    return Monitoring(proto.enable, page)


def read_tls(path: Path) -> Tls:
    """Read a file of SSLConfig. FileError, ConfigError: as `read_models`."""
    proto = parse(path, "SSLConfig")
    for name in ("server_key", "server_cert", "custom_ca"):
        text = getattr(proto, name)
        if not text and name != "custom_ca":
            raise ConfigError(f"{path}: {name} is missing, expected PEM text")
        if text and _PEM not in text:
            raise ConfigError(f"{path}: {name} is no PEM text ({_PEM}...); the file holds keys and "
                              "certificates themselves, not their paths")  # fmt: skip
    if proto.client_verify and not proto.custom_ca:
        raise ConfigError(f"{path}: client_verify needs custom_ca, the certificate that signed "
                          "those of the clients")  # fmt: skip
    return Tls(proto.server_key, proto.server_cert, proto.custom_ca, proto.client_verify, str(path))


def _model(config: ModelConfig) -> ModelSettings:
    name = config.name
    if not name:
        raise _refusal(f"A model in the config list has no name; its base_path is "
                       f"{config.base_path!r}")  # fmt: skip
    if "://" in config.base_path:
        raise _refusal(f"Model {name} has base_path {config.base_path}, expected a folder of this "
                       "machine; mount or copy it")  # fmt: skip
    if not config.base_path.startswith("/"):
        raise _refusal(f"Expected model {name} to have an absolute path or URI; got base_path()="
                       f"{config.base_path}")  # fmt: skip
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
    """Return the platform; the deprecated type says the same in a number."""
    if config.model_type and config.model_platform:
        raise _refusal(
            "Illegal setting both ModelServerConfig::model_type (deprecated) and "
            f"ModelServerConfig::model_platform, model name is {config.name}"
        )
    if config.model_type > 1:
        raise _refusal(f"ModelServerConfig::model_type choice {config.model_type} not supported.")
    platform = TENSORFLOW if config.model_type else str(config.model_platform)
    if not platform:
        raise _refusal(
            "Illegal setting neither ModelServerConfig::model_type (deprecated) nor "
            f"ModelServerConfig::model_platform, model name is {config.name}"
        )
    return platform


def _policy(proto: Any) -> Policy:
    match proto.WhichOneof("policy_choice"):
        case "all":
            return All()
        case "specific":
            return Specific(tuple(proto.specific.versions))
        case _:
            return Latest(max(proto.latest.num_versions, 1))


def _check_allowed(path: Path, batching: Batching) -> None:
    sizes = batching.allowed_batch_sizes
    if list(sizes) != sorted({size for size in sizes if size > 0}):
        raise ConfigError(f"{path}: allowed_batch_sizes are {list(sizes)}, expected positive "
                          "numbers in increasing order")  # fmt: skip
    if sizes and sizes[-1] != batching.largest:
        raise ConfigError(f"{path}: the last of allowed_batch_sizes is {sizes[-1]}, expected the "
                          f"largest batch, which is {batching.largest}")  # fmt: skip


def _refusal(message: str) -> ServingError:
    return ServingError("INVALID_ARGUMENT", message)
