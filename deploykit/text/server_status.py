"""How a server and its models are, in lines and tables for people."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from deploykit.text.tables import new_table
from deploykit.text.tensors import described

if TYPE_CHECKING:
    from deploykit.text.tables import Table


def health_lines(found: Mapping[str, Any]) -> list[str]:
    """Return the document of a server's health in words."""
    if "live" in found:
        live = "live" if found["live"] else "not live"
        ready = "ready" if found["health"] == "SERVING" else "not ready"
        return [f"{found['address']}: {found['server'] or 'the server'} is {live} and {ready}",
                "name a model to see its versions"]  # fmt: skip
    said = f"it says {found['health']}" if found["health"] else "it has no health service"
    return [
        f"{found['address']}: a server answers there; {said}",
        "name a model to see its versions; a server of deploykit lists its models over REST: "
        "deploykit status http://HOST:REST_PORT",
    ]


def model_lines(found: Mapping[str, Any]) -> "list[str | Table]":
    """Return the document of all models as a table of their versions, and the errors of these."""
    if not found["models"]:
        return [f"{found['address']}: the server has no models"]
    table, errors = new_table("model", "version", "state"), []
    for model in found["models"]:
        for each in model["versions"] or [{"version": "none", "state": "", "code": "OK"}]:
            table.add_row(model["model"], str(each["version"]), each["state"])
            if each["code"] != "OK":
                errors.append(f"{model['model']}, version {each['version']}: {each['code']}: "
                              f"{each['message']}")  # fmt: skip
    return [table, *errors]


def version_tables(found: Mapping[str, Any]) -> "list[str | Table]":
    """Return the document of a model's versions as a table of these, and one of signatures."""
    versions = new_table(found["model"], "state")
    for each in found["versions"]:
        versions.add_row(str(each["version"]) or "(no name)", each["state"])
    errors = [f"version {each['version']}: {each['code']}: {each['message']}"
              for each in found["versions"] if each["code"] != "OK"]  # fmt: skip
    if not found["signatures"]:
        return [versions, *errors]
    calls = new_table("signature", "takes", "gives", texts=("takes", "gives"))
    for name, each in found["signatures"].items():
        calls.add_row(name, _listed(each["inputs"]), _listed(each["outputs"]))
    refused = [f"signature '{name}' is not available: it {each['unavailable']}"
               for name, each in found["signatures"].items() if "unavailable" in each]  # fmt: skip
    return [versions, *errors, calls, *refused, *_photos(found["signatures"])]


def _photos(signatures: Mapping[str, Any]) -> list[str]:
    """Return which inputs take photos, in lines."""
    return [
        f"{name}: {alias} takes {tensor['photos']}"
        for name, each in signatures.items()
        for alias, tensor in each["inputs"].items()
        if tensor.get("photos")
    ]


def _listed(tensors: Mapping[str, Mapping[str, Any]]) -> str:
    named = (f"{name} {described(each['dtype'], each['shape'])}" for name, each in tensors.items())
    return ", ".join(named)
