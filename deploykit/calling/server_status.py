"""How a server and its models are: its health, versions in their states, what they take."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from deploykit.calling.request_inputs import listed
from deploykit.serving.protocol.signatures import Signature
from deploykit.serving.protocol.version_status import VersionStatus
from deploykit.text.tables import new_table

if TYPE_CHECKING:
    from deploykit.text.tables import Table


@dataclass(frozen=True)
class ServerHealth:
    """What a server says of itself; empty where it has no health service."""

    address: str
    health: str

    @property
    def problem(self) -> str:
        """Why it is of no use now, in a sentence."""
        down = self.health == "NOT_SERVING"
        return f"{self.address}: the server says that it does not serve now" if down else ""

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"address": self.address, "health": self.health or None}

    def text(self) -> "list[str | Table]":
        """Return it in words."""
        said = f"it says {self.health}" if self.health else "it has no health service"
        return [
            f"{self.address}: a server answers there; {said}",
            "name a model to see its versions: the API has no call that lists the models",
        ]


@dataclass(frozen=True)
class Versions:
    """The versions of a model that a server knows of, and how the one that answers is called."""

    address: str
    model: str
    states: Sequence[VersionStatus]
    signatures: Mapping[str, Signature]

    @property
    def problem(self) -> str:
        """Why it is of no use now, in a sentence."""
        if any(each.state == "AVAILABLE" for each in self.states):
            return ""
        return f"{self.address}: no version of {self.model} answers now"

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "address": self.address,
            "model": self.model,
            "versions": [asdict(each) for each in self.states],
            "signatures": {
                name: {
                    "method": each.method,
                    "inputs": {alias: asdict(tensor) for alias, tensor in each.inputs.items()},
                    "outputs": {alias: asdict(tensor) for alias, tensor in each.outputs.items()},
                }
                for name, each in self.signatures.items()
            },
        }

    def text(self) -> "list[str | Table]":
        """Return a table of versions and one of signatures."""
        versions = new_table(self.model, "state", "error")
        for each in self.states:
            error = "" if each.code == "OK" else f"{each.code}: {each.message}"
            versions.add_row(str(each.version), each.state, error)
        if not self.signatures:
            return [versions]
        calls = new_table("signature", "takes", "gives")
        for name, signature in self.signatures.items():
            calls.add_row(name, listed(signature.inputs), listed(signature.outputs))
        return [versions, calls]
