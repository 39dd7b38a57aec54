"""list_transforms and doctor: what is installed here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deploykit.api.public import Command, public
from deploykit.pipelines.catalogue import describe
from deploykit.rendering.progress import working
from deploykit.system.doctor import MachineFacts, examine
from deploykit.transforms.common.documents import AsHtml, Flat
from deploykit.transforms.ir import pipeline


@dataclass(frozen=True)
class TransformList(AsHtml):
    """Transforms: name, summary, text and parameters of each."""

    transforms: Sequence[Mapping[str, Any]]

    @property
    def names(self) -> tuple[str, ...]:
        """What they are called in a transform string."""
        return tuple(transform["name"] for transform in self.transforms)


@public(Command(name="transforms", requires=(), has_limits=False))
def list_transforms(
    name: str | None = None,
) -> TransformList:
    """List the transforms, or explain one.

    With NAME, its parameters are explained too. NAME may be your own transform,
    package.module:function.

    Args:
        name: a transform, or `package.module:function`, which is one of your own; default: all,
            their other names included.

    PipelineError: there is no such transform.

    Commands:
        deploykit transforms
        deploykit transforms fold_batch_norms

    Example:
        >>> found = deploykit.list_transforms("round_weights")
        >>> [each["name"] for each in found.transforms[0]["parameters"]]
        ['num_steps']
        >>> "fold_batch_norms" in deploykit.list_transforms().names
        True
    """
    names = [name] if name else sorted((*pipeline.names(), *pipeline.ALIASES))
    return TransformList([describe(name) for name in names])


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
