"""How a server and its models are: its health, versions in their states, what they take."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from deploykit.serving.protocol.signatures import Signature, photos_in_words
from deploykit.serving.protocol.versions import AVAILABLE, NamedVersion, VersionStatus
from deploykit.transforms.common.documents import AsHtml, Hidden, OrNull, Written, document, written


@dataclass(frozen=True)
class ServerHealth(AsHtml):
    """What a server says of itself; empty where it has no health service."""

    address: str
    health: OrNull[str]
    live: Hidden[bool | None] = None
    """Whether it can answer at all; None: the protocol does not say it."""
    server: Hidden[str] = ""
    """What it calls itself, with its version."""

    @property
    @written(flat=True)
    def _liveness(self) -> dict[str, Any]:
        return {} if self.live is None else {"live": self.live, "server": self.server}

    @property
    def problem(self) -> str:
        """Why it is of no use now, in a sentence."""
        down = self.health == "NOT_SERVING"
        return f"{self.address}: the server says that it does not serve now" if down else ""


def _listed(models: Mapping[str, Sequence[VersionStatus]]) -> list[dict[str, Any]]:
    return [{"model": name, "versions": versions} for name, versions in models.items()]


@dataclass(frozen=True)
class ServedModels(AsHtml):
    """All models that a server lists, each with the versions that it knows of."""

    address: str
    models: Annotated[Mapping[str, Sequence[VersionStatus]], Written(by=_listed)]

    @property
    def problem(self) -> str:
        """Which models are of no use now, in a sentence."""
        down = [name for name, result in self.models.items() if not answers(result)]
        return f"{self.address}: no version answers now of: {', '.join(down)}" if down else ""


def _described(signatures: Mapping[str, Signature]) -> dict[str, Any]:
    """Return signatures as plain data, with what inputs of photos take."""
    results: dict[str, Any] = document(signatures)
    for name, item in signatures.items():
        for alias, tensor in item.inputs.items():
            if said := photos_in_words(tensor):
                results[name]["inputs"][alias]["photos"] = said
    return results


@dataclass(frozen=True)
class ModelVersions(AsHtml):
    """The versions of a model that a server knows of, and how the one that answers is called."""

    address: str
    model: str
    versions: Sequence[NamedVersion]
    signatures: Annotated[Mapping[str, Signature], Written(by=_described)]

    @property
    def problem(self) -> str:
        """Why it is of no use now, in a sentence."""
        if answers(self.versions):
            return ""
        return f"{self.address}: no version of {self.model} answers now"


def answers(versions: Sequence[NamedVersion]) -> bool:
    """Say whether a version of a model answers now."""
    return any(version.state == AVAILABLE for version in versions)
