"""How the command line writes a parameter: metadata in its annotation, `Annotated[T, Flag(...)]`.

The type and the default say most of it. This says what they cannot.
"""

from dataclasses import dataclass

MOST_INT64 = (1 << 63) - 1
"""The largest version of a model."""


@dataclass(frozen=True)
class Flag:
    """How the command line spells, shows and limits a parameter."""

    spelling: str = ""
    """Its options, separated by spaces, the one that help shows first; default: `--the-name`."""
    hidden: str = ""
    """More options, which help does not show: old names."""
    formerly: str = ""
    """Names that the Python parameter had, separated by spaces: they still work, with a warning."""
    metavar: str = ""
    """What help shows for the value; default: that of the format."""
    heading: str = ""
    """The section of help; default: that of the class or the command."""
    format: str = ""
    """How a value is written: a key of `deploykit.cli.formats.FORMATS`; default: by the type."""
    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    beside: str = ""
    """Of a file to write, its default: the model's name with this in place of its suffix."""
    is_required: bool | None = None
    """Whether the command line needs it; default: if it has no default."""
    only: str = ""
    """Of a class of options: the fields that the command line has, separated by spaces."""
    is_python_only: bool = False
    """Whether the command line does not have it."""


ALLOW_OP = Flag("--allow-op", formerly="allowed_ops", metavar="OP", heading="Limits")
"""Of an op that acts on files or processes and may run; the option may be repeated."""
