"""Deployment files for TensorFlow Serving, Docker, Kubernetes and KServe.

They are written next to the folders of the models and may be edited.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from deploykit.benchmarking.run_config import RunConfig

ManifestKind = Literal["config", "docker", "kubernetes", "kserve"]
KINDS: tuple[ManifestKind, ...] = get_args(ManifestKind)
OPENVINO_DOCKERFILE = "Dockerfile.openvino"
SERVING_IMAGE = "tensorflow/serving:2.20.0"
METRICS = "/monitoring/prometheus/metrics"
BATCH = 32  # maximum batch size without tuned settings
_QUEUE_OF_EACH_CORE = 4  # waiting batches; further requests are rejected
_LABEL = 50  # characters; Kubernetes allows 63 and appends to the name of a Deployment
_LISTENING = ["--host=0.0.0.0", "--port=8500", "--rest_api_port=8501"]


@dataclass(frozen=True)
class Deployment:
    """The contents of deployment files: models, a version for the image tag, and settings."""

    models: Sequence[str]
    version: int
    cores: int
    memory: int
    """Memory that the server needs, in MiB."""
    settings: RunConfig = field(default_factory=RunConfig)
    """Tuned settings."""
    batching: bool = False
    session: bool = False
    """Whether a session config makes TensorFlow Serving run ops sequentially."""
    openvino: bool = False
    """Whether OpenVINO runs at least one model, in deploykit's server."""
    openvino_alone: bool = False
    """Whether OpenVINO runs all models, so that an image without TensorFlow serves them."""
    environment: Mapping[str, str] = field(default_factory=dict)
    deploykit: str = "0"
    """Version of deploykit."""

    @property
    def app(self) -> str:
        """Name of the application, as a valid Kubernetes label."""
        return dns_label(self.models[0]) if len(self.models) == 1 else "models"


def names(
    kinds: Sequence[str], batching: bool, session: bool = False, openvino_alone: bool = False
) -> list[str]:
    """Return the file names of some kinds; every kind includes those of `config`."""
    results = ["models.config", "monitoring.config", "ssl.config"] if kinds else []
    results += ["batching.config"] if batching else []
    results += ["session.config"] if kinds and session else []
    if "docker" in kinds:
        results += ["Dockerfile", "Dockerfile.deploykit"]
        results += [OPENVINO_DOCKERFILE] if openvino_alone else []
        results += [".dockerignore", "compose.yaml"]
    return results + [f"{kind}.yaml" for kind in ("kubernetes", "kserve") if kind in kinds]


def manifests(deployment: Deployment, kinds: Sequence[str]) -> dict[str, str]:
    """Return the contents of the files of some kinds, by name."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"quoted": _quoted, "json": _quoted, "dns": dns_label}
    values = _values(deployment)
    return {
        name: environment.get_template(f"{name.removeprefix('.')}.jinja").render(values)
        for name in names(kinds, deployment.batching, deployment.session, deployment.openvino_alone)
    }


def _values(deployment: Deployment) -> dict[str, object]:
    """Return the variables of the templates."""
    batching = []
    if deployment.batching:
        batching = ["--enable_batching", "--batching_parameters_file=/models/batching.config"]
    configs = ["models.config", "monitoring.config"]
    configs += ["batching.config"] if deployment.batching else []
    common = [
        "--model_config_file=/models/models.config",
        "--monitoring_config_file=/models/monitoring.config",
        *batching,
    ]
    session = ["session.config"] if deployment.session else []
    settings = deployment.settings
    own_threads = _threads(settings.threads, settings.executor is not None)
    return {
        "models": sorted(deployment.models),
        "app": deployment.app,
        "version": deployment.version,
        "image": f"{deployment.app}:{deployment.version}",
        "serving_image": SERVING_IMAGE,
        "wheel": f"tf_deploykit-{deployment.deploykit}-py3-none-any.whl",
        "configs": [*configs, *session, "/models/"],
        "own_configs": [*configs, "/models/"],
        "flags": [
            *common,
            *_threads(settings.threads, False),
            *(f"--tensorflow_session_config_file=/models/{name}" for name in session),
        ],
        "own_flags": [*common, *own_threads],
        "listening": _LISTENING,
        "runtime_flags": own_threads,
        "openvino": deployment.openvino,
        "environment": dict(sorted(deployment.environment.items())),
        "cores": deployment.cores,
        "memory": deployment.memory,
        "batch": settings.batch or BATCH,
        "batch_threads": settings.concurrency if settings.concurrency > 1 else deployment.cores,
        "queue": _QUEUE_OF_EACH_CORE * deployment.cores,
        "metrics": METRICS,
        "probe": f"/v1/models/{sorted(deployment.models)[0]}/metadata",
    }


def _threads(threads: tuple[int, int] | None, in_turn: bool) -> list[str]:
    """Return flags for intra-op and inter-op threads; only deploykit accepts -1: sequential ops."""
    intra, inter = "tensorflow_intra_op_parallelism", "tensorflow_inter_op_parallelism"
    results = [] if threads is None else [f"--{intra}={threads[0]}"]
    if in_turn or threads is not None:
        results.append(f"--{inter}={-1 if in_turn or threads is None else threads[1]}")
    return results


def dns_label(name: str) -> str:
    """Return a name as a DNS label for Kubernetes: lower-case letters, digits and dashes."""
    label = re.sub(r"[^a-z0-9]+", "-", name.lower())[:_LABEL].strip("-")
    return label if label[:1].isalpha() else f"model-{label}".rstrip("-")


def _quoted(value: object) -> str:
    """Return a value as JSON, which YAML, Docker and protobuf's text format also accept."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)
