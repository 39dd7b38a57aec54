"""list_transforms and doctor: the installed transforms, and the machine's configuration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deploykit.api.public import Command, public
from deploykit.pipelines.catalogue import describe
from deploykit.rendering.progress import working
from deploykit.system.doctor import MachineMetadata, examine
from deploykit.transforms.common.documents import AsHtml, Flat
from deploykit.transforms.ir import pipeline


@dataclass(frozen=True)
class TransformList(AsHtml):
    """A list of transforms, each with its name, summary, text and parameters."""

    transforms: Sequence[Mapping[str, Any]]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the transforms in a transform string."""
        return tuple(transform["name"] for transform in self.transforms)


@public(Command(name="transforms", requires=(), has_limits=False))
def list_transforms(name: str | None = None) -> TransformList:
    """List the transforms, or explain one.

    With NAME, also shows its parameters. NAME may be your own transform, written as
    package.module:function.

    Args:
        name: the name of a transform, or `package.module:function` for your own. Default: all
            transforms, including aliases.

    PipelineError: the transform does not exist.

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
    """The machine, the TensorFlow installation, its settings and the GPU."""

    facts: Flat[MachineMetadata]

    @property
    def refusal(self) -> str | None:
        """Why TensorFlow sees no GPU, and how to fix it; None if it sees one."""
        reason: str | None = self.facts["gpu"]["refusal"]
        return reason


@public(Command(requires=()))
def doctor() -> Diagnosis:
    """Show the machine and the TensorFlow installation that run models here.

    Shows the machine with its resource limits, package versions, and the GPU with its driver and
    libraries. Also shows TensorFlow's build and configuration, and the environment variables that
    affect it. If TensorFlow sees no GPU, the last line states the reason and the fix.

    Commands:
        deploykit doctor
        deploykit doctor --json

    Example:
        >>> sorted(deploykit.doctor().document())
        ['environment', 'extras', 'gpu', 'machine', 'onednn', 'tensorflow', 'threads']
    """
    with working("doctor"):
        return Diagnosis(examine())
