"""How a server and its models are: its health, versions in their states, what they take."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from deploykit.serving.protocol.photo_names import photos_in_words
from deploykit.serving.protocol.signatures import Signature
from deploykit.serving.protocol.version_status import AVAILABLE, NamedVersion, VersionStatus
from deploykit.transforms.core.display.as_html import AsHtml


@dataclass(frozen=True)
class ServerHealth(AsHtml):
    """What a server says of itself; empty where it has no health service."""

    address: str
    health: str
    live: bool | None = None
    """Whether it can answer at all; None: the protocol does not say it."""
    server: str = ""
    """What it calls itself, with its version."""

    @property
    def problem(self) -> str:
        """Why it is of no use now, in a sentence."""
        down = self.health == "NOT_SERVING"
        return f"{self.address}: the server says that it does not serve now" if down else ""

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        found = {"address": self.address, "health": self.health or None}
        return found if self.live is None else found | {"live": self.live, "server": self.server}


@dataclass(frozen=True)
class ServedModels(AsHtml):
    """All models that a server lists, each with the versions that it knows of."""

    address: str
    models: Mapping[str, Sequence[VersionStatus]]

    @property
    def problem(self) -> str:
        """Which models are of no use now, in a sentence."""
        down = [name for name, found in self.models.items() if not answers(found)]
        return f"{self.address}: no version answers now of: {', '.join(down)}" if down else ""

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "address": self.address,
            "models": [
                {"model": name, "versions": [asdict(each) for each in found]}
                for name, found in self.models.items()
            ],
        }


@dataclass(frozen=True)
class ModelVersions(AsHtml):
    """The versions of a model that a server knows of, and how the one that answers is called."""

    address: str
    model: str
    versions: Sequence[NamedVersion]
    signatures: Mapping[str, Signature]

    @property
    def problem(self) -> str:
        """Why it is of no use now, in a sentence."""
        if answers(self.versions):
            return ""
        return f"{self.address}: no version of {self.model} answers now"

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "address": self.address,
            "model": self.model,
            "versions": [asdict(each) for each in self.versions],
            "signatures": {
                name: {
                    "method": each.method,
                    "inputs": {
                        alias: asdict(tensor)
                        | ({"photos": said} if (said := photos_in_words(tensor)) else {})
                        for alias, tensor in each.inputs.items()
                    },
                    "outputs": {alias: asdict(tensor) for alias, tensor in each.outputs.items()},
                    **({"unavailable": each.unavailable} if each.unavailable else {}),
                }
                for name, each in self.signatures.items()
            },
        }


def answers(versions: Sequence[NamedVersion]) -> bool:
    """Say whether a version of a model answers now."""
    return any(each.state == AVAILABLE for each in versions)
