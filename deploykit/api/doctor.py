"""What models run on here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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


def doctor() -> Diagnosis:
    """Say what models run on here, and why TensorFlow sees no GPU.

    The machine and its limits, versions, how TensorFlow is built and set, the variables that change
    how it runs, and the GPU: its driver and the libraries that TensorFlow opens. Memory is in
    bytes. What is asked of TensorFlow is asked in a process of its own, so nothing is raised where
    it does not start: `document()["tensorflow"]["error"]` says why.

    Example:
        >>> sorted(deploykit.doctor().document())
        ['environment', 'extras', 'gpu', 'machine', 'onednn', 'tensorflow', 'threads']
    """
    with working("doctor"):
        return Diagnosis(examine())
