"""What models run on here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploykit.api.public import Command, public
from deploykit.hardware.doctor import examine
from deploykit.text.progress import working
from deploykit.transforms.core.display.as_html import AsHtml
from deploykit.transforms.core.display.documents import Flat


@dataclass(frozen=True)
class Diagnosis(AsHtml):
    """The machine, TensorFlow, the settings in force and the GPU."""

    facts: Flat[Mapping[str, Any]]

    @property
    def refusal(self) -> str | None:
        """Why TensorFlow sees no GPU, and what to do; None: it sees one."""
        reason: str | None = self.facts["gpu"]["refusal"]
        return reason


@public(
    Command(
        requires=(),
    ),
)
def doctor() -> Diagnosis:
    """Show the machine and the TensorFlow that models run on here.

    The machine and its limits, versions, how TensorFlow was built and is configured, the
    environment variables that change how it runs, and the GPU: its driver and the libraries that
    TensorFlow loads. If TensorFlow sees no GPU, the last line says why, and what to do.

    Commands:
        deploykit doctor
        deploykit doctor --json

    Example:
        >>> sorted(deploykit.doctor().document())
        ['environment', 'extras', 'gpu', 'machine', 'onednn', 'tensorflow', 'threads']
    """
    with working("doctor"):
        return Diagnosis(examine())
