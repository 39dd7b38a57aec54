"""Parses method and path of a REST request into the requested method and target."""

import re
from urllib.parse import unquote, urlsplit

from deploykit.serving.execution.data_plane import Target
from deploykit.serving.protocol.errors import ServingError, refused

# The same patterns as in TensorFlow Serving's http_rest_api_util.cc.
_WHOM = r"/v1/models{}(?:/versions/(\d+)|/labels/([^/:]+))?"
_CALL = re.compile(
    _WHOM.format("/([^/:]+)") + ":(classify|regress|predict)", re.IGNORECASE | re.ASCII
)
_READ = re.compile(_WHOM.format("(?:/([^/:]+))?") + "(?:/(metadata))?", re.IGNORECASE | re.ASCII)
_INT64 = 1 << 63
_READING = ("GET", "HEAD")
_METHODS = {"predict": "Predict", "classify": "Classify", "regress": "Regress",
            "status": "GetModelStatus", "metadata": "GetModelMetadata",
            "infer": "ModelInfer", "model_metadata": "ModelMetadata", "model_ready": "ModelReady",
            "server_metadata": "ServerMetadata"}  # fmt: skip

# The Open Inference Protocol: https://github.com/kserve/open-inference-protocol
_V2 = re.compile(r"/v2(?:/models/([^/?]+)(?:/versions/([^/?]+))?(?:/(ready|infer))?)?/?(?:\?.*)?")

V2_PROBES = {"/v2/health/ready": "ServerReady", "/v2/health/live": "ServerLive"}
"""The gRPC methods with the same response."""
PROBES = frozenset({"/healthz", "/readyz", "/health", "/ping", "/"})
"""Paths that load balancers probe: the status is 200 if the server is ready, otherwise 503."""


def path_of(target: str) -> str:
    """Return path and query of a request target; proxies send it with the host."""
    if target.startswith("/"):
        return target
    try:
        parts = urlsplit(target)
    except ValueError:
        return target
    return parts.path + (f"?{parts.query}" if parts.query else "")


def is_v2(path: str) -> bool:
    """Return whether a path belongs to the Open Inference Protocol, valid or not."""
    return re.match("/v2(?:[/?]|$)", path) is not None


def parse_path(method: str, path: str) -> tuple[str, Target]:
    """Return method (`predict`, ..., `status`, `metadata` or `models`) and target of a path.

    ServingError: the path does not exist, or not for this HTTP method.
    """
    if is_v2(path):
        return _parse_v2(method, path)
    if method == "POST" and (match := _CALL.fullmatch(path)):
        name, version, label, call = match.groups()
        return call.lower(), _target(name, version, label)
    if method == "GET" and (match := _READ.fullmatch(path)):
        name, version, label, metadata = match.groups()
        if name is not None:
            return "metadata" if metadata else "status", _target(name, version, label)
        if version or label or metadata:
            raise refused("rest-model-missing")
        return "models", Target("")
    raise refused("rest-malformed", method=method, path=path)


def _parse_v2(method: str, path: str) -> tuple[str, Target]:
    match = _V2.fullmatch(path)
    if match is None:
        raise ServingError("NOT_FOUND", "rest-path-missing", method=method, path=path)
    name, version, act = match.groups()
    asked_for = "server_metadata" if name is None else act or "metadata"
    requested = ("POST",) if asked_for == "infer" else _READING
    if method not in requested:
        raise refused(
            "rest-method", path=path.partition("?")[0], expected=requested[0], method=method
        )
    if name is None:
        return asked_for, Target("")
    return (
        asked_for if asked_for == "infer" else f"model_{asked_for}",
        Target.named(unquote(name), unquote(version or "")),
    )


def method_of(method: str, path: str) -> tuple[str, str]:
    """Return the equivalent gRPC method, or else the HTTP method, and the model's name."""
    probe = V2_PROBES.get(path.partition("?")[0])
    if probe and method in _READING:
        return probe, ""
    try:
        requested, target = parse_path(method, path)
    except ServingError:
        return method, ""
    return _METHODS.get(requested, method), target.name


def _target(name: str, version: str | None, label: str | None) -> Target:
    """Return the target of a path. ServingError: its version is not an int64."""
    number = None
    if version is not None:
        number = int(version) if len(version) < 40 else _INT64
        if number >= _INT64:
            raise refused("rest-version-not-number", version=version)
    return Target(unquote(name), number, unquote(label or ""))
