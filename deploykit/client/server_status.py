"""Status of a server and its models: health, version states and signatures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from deploykit.serving.protocol.signatures import Signature, photos_in_words
from deploykit.serving.protocol.versions import AVAILABLE, NamedVersion, VersionStatus
from deploykit.transforms.common.documents import AsHtml, Hidden, OrNull, Written, document, written


@dataclass(frozen=True)
class ServerHealth(AsHtml):
    """Health that a server reports; empty if it has no health service."""

    address: str
    health: OrNull[str]
    live: Hidden[bool | None] = None
    """Whether the server is live; None: the protocol does not report it."""
    server: Hidden[str] = ""
    """Name and version that the server reports."""

    @property
    @written(flat=True)
    def _liveness(self) -> dict[str, Any]:
        return {} if self.live is None else {"live": self.live, "server": self.server}

    @property
    def problem(self) -> str:
        """Why the server is not ready, in a sentence; empty if it is."""
        down = self.health == "NOT_SERVING"
        return f"{self.address}: the server reports NOT_SERVING" if down else ""


def _listed(models: Mapping[str, Sequence[VersionStatus]]) -> list[dict[str, Any]]:
    return [{"model": name, "versions": versions} for name, versions in models.items()]


@dataclass(frozen=True)
class ServedModels(AsHtml):
    """All models that a server lists, with their versions."""

    address: str
    models: Annotated[Mapping[str, Sequence[VersionStatus]], Written(by=_listed)]

    @property
    def problem(self) -> str:
        """Models without an available version, in a sentence; empty if there are none."""
        down = [name for name, result in self.models.items() if not answers(result)]
        return f"{self.address}: no version is available of: {', '.join(down)}" if down else ""


def _described(signatures: Mapping[str, Signature]) -> dict[str, Any]:
    """Return signatures as plain data, including how image inputs take images."""
    results: dict[str, Any] = document(signatures)
    for name, item in signatures.items():
        for alias, tensor in item.inputs.items():
            if text := photos_in_words(tensor):
                results[name]["inputs"][alias]["photos"] = text
    return results


@dataclass(frozen=True)
class ModelVersions(AsHtml):
    """The versions of a model on a server, and the signatures of the available one."""

    address: str
    model: str
    versions: Sequence[NamedVersion]
    signatures: Annotated[Mapping[str, Signature], Written(by=_described)]

    @property
    def problem(self) -> str:
        """Why the model is not available, in a sentence; empty if it is."""
        if answers(self.versions):
            return ""
        return f"{self.address}: no version of {self.model} is available"


def answers(versions: Sequence[NamedVersion]) -> bool:
    """Return whether any version of a model is available."""
    return any(version.state == AVAILABLE for version in versions)
