"""The status of a server and its models."""

from collections.abc import Iterator, Mapping
from typing import Any

from deploykit.text.tables import Table, table
from deploykit.text.templates import for_each, said
from deploykit.text.tensors import described

_NO_VERSION = {"version": "none", "state": "", "code": "OK"}


def health_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the document of a server's health in words."""
    if "live" in found:
        live = "live" if found["live"] else "not live"
        ready = "ready" if found["health"] == "SERVING" else "not ready"
        yield f"{found['address']}: {found['server'] or 'the server'} is {live} and {ready}"
        yield "name a model to see its versions"
        return
    yield f"{found['address']}: the server responds, health: {found['health'] or 'no such service'}"
    yield (
        "name a model to see its versions; a deploykit server lists its models over REST: "
        "deploykit status http://HOST:REST_PORT"
    )


def model_lines(found: Mapping[str, Any]) -> Iterator[str | Table]:
    """Yield the document of all models as a table of their versions, and the errors of these."""
    if not found["models"]:
        yield f"{found['address']}: the server has no models"
        return
    rows = [
        {"model": model["model"], **version}
        for model in found["models"]
        for version in model["versions"] or [_NO_VERSION]
    ]
    yield table(rows, {"model": "{model}", "version": "{version}", "state": "{state}"})
    yield from for_each(_failed(rows), "{model}, version {version}: {code}: {message}")


def version_tables(found: Mapping[str, Any]) -> Iterator[str | Table]:
    """Yield the document of a model's versions as a table of these, and one of signatures."""
    versions, signatures = found["versions"], found["signatures"] or {}
    name = found["model"]
    yield table(
        versions, {name: lambda row: str(row["version"]) or "(no name)", "state": "{state}"}
    )
    yield from for_each(_failed(versions), "version {version}: {code}: {message}")
    if not signatures:
        return
    yield table(
        signatures.items(),
        {
            "signature": "{0}",
            "inputs": lambda row: _tensors(row[1]["inputs"]),
            "outputs": lambda row: _tensors(row[1]["outputs"]),
        },
    )
    yield from for_each(signatures.items(), "signature '{0}' is not available: it {1.unavailable}")
    for name, signature in signatures.items():
        for alias, tensor in signature["inputs"].items():
            yield from said((name, alias, tensor.get("photos")), "{0}: {1} takes {2}")


def _failed(versions: Any) -> Iterator[Mapping[str, Any]]:
    return (version for version in versions if version["code"] != "OK")


def _tensors(tensors: Mapping[str, Mapping[str, Any]]) -> str:
    return ", ".join(f"{k} {described(v['dtype'], v['shape'])}" for k, v in tensors.items())
