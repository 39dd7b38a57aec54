"""What the transforms say of themselves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deploykit.api.public import Command, public
from deploykit.rewriting.catalogue import describe
from deploykit.transforms.core import pipeline
from deploykit.transforms.core.display.as_html import AsHtml


@dataclass(frozen=True)
class TransformList(AsHtml):
    """Transforms: name, summary, text and parameters of each."""

    transforms: Sequence[Mapping[str, Any]]

    @property
    def names(self) -> tuple[str, ...]:
        """What they are called in a transform string."""
        return tuple(each["name"] for each in self.transforms)


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
    return TransformList([describe(each) for each in names])
