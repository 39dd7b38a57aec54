"""Reads the configuration files for monitoring and TLS."""

from dataclasses import dataclass, field
from pathlib import Path

from deploykit.serving.protocol.protos import ConfigError, parse

METRICS_PATH = "/monitoring/prometheus/metrics"


_PEM = "-----BEGIN "


@dataclass(frozen=True)
class Monitoring:
    """Whether and where the server provides Prometheus metrics."""

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
    """The file they were read from."""


def read_monitoring(path: Path) -> Monitoring:
    """Read a file of MonitoringConfig. FileError, ConfigError: as in `read_models`."""
    proto = parse(path, "MonitoringConfig").prometheus_config
    page = proto.path or METRICS_PATH
    if not page.startswith("/"):
        raise ConfigError(
            "unexpected",
            source=path,
            what="the path of prometheus_config",
            got=page,
            expected="a path that begins with /, such as /monitoring/prometheus/metrics",
        )
    return Monitoring(proto.enable, page)


def read_tls(path: Path) -> Tls:
    """Read a file of SSLConfig. FileError, ConfigError: as in `read_models`."""
    proto = parse(path, "SSLConfig")
    for name in ("server_key", "server_cert", "custom_ca"):
        text = getattr(proto, name)
        if not text and name != "custom_ca":
            raise ConfigError("pem-missing", source=path, name=name)
        if text and _PEM not in text:
            raise ConfigError("not-pem-text", source=path, name=name, begin=_PEM)
    if proto.client_verify and not proto.custom_ca:
        raise ConfigError(
            "option-needs",
            source=path,
            option="client_verify",
            needed="custom_ca, the certificate that signed those of the clients",
        )
    return Tls(proto.server_key, proto.server_cert, proto.custom_ca, proto.client_verify, str(path))
