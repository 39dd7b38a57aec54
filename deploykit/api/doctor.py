"""What models run on here."""

from dataclasses import dataclass

from deploykit.api.public import Command, public
from deploykit.hardware.doctor import MachineFacts, examine
from deploykit.text.progress import working
from deploykit.transforms.core.display.as_html import AsHtml
from deploykit.transforms.core.display.documents import Flat


@dataclass(frozen=True)
class Diagnosis(AsHtml):
    """The machine, TensorFlow, the settings in force and the GPU."""

    facts: Flat[MachineFacts]

    @property
    def refusal(self) -> str | None:
        """Why TensorFlow sees no GPU, and what to do; None: it sees one."""
        reason: str | None = self.facts["gpu"]["refusal"]
        return reason


@public(Command(requires=()))
def doctor() -> Diagnosis:
    """Show the machine and the TensorFlow installation that run models here.

    Shows the machine and its limits, versions, TensorFlow's build and configuration, the
    environment variables that affect it, and the GPU with its driver and libraries. If TensorFlow
    sees no GPU, the last line gives the reason and the fix.

    Commands:
        deploykit doctor
        deploykit doctor --json

    Example:
        >>> sorted(deploykit.doctor().document())
        ['environment', 'extras', 'gpu', 'machine', 'onednn', 'tensorflow', 'threads']
    """
    with working("doctor"):
        return Diagnosis(examine())
