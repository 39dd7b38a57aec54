"""Command-line metadata of a parameter, in its annotation: `Annotated[T, Flag(...)]`.

It holds only what the type and the default of the parameter do not state.
"""

import math
import struct
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

MAX_INT64 = (1 << 63) - 1
"""The largest version number of a model."""


@dataclass(frozen=True)
class Flag:
    """How the command line spells, shows and limits a parameter."""

    spelling: str = ""
    """Option names, separated by spaces; help shows the first one. Default: `--the-name`."""
    hidden: str = ""
    """More option names that help does not show, such as old names."""
    formerly: str = ""
    """Old names of the Python parameter, separated by spaces: they work with a warning."""
    metavar: str = ""
    """Placeholder of the value in help; default: that of the format."""
    heading: str = ""
    """Section of help; default: that of the class or the command."""
    format: str = ""
    """How a value is written: a key of `deploykit.cli.formats.FORMATS`; default: by the type."""
    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    beside: str = ""
    """For output files: suffix that replaces the suffix of the model's name in the default path."""
    is_required: bool | None = None
    """Whether the command line requires it; default: whether the parameter has no default."""
    only: str = ""
    """For a class of options: the fields that the command line offers, separated by spaces."""
    is_python_only: bool = False
    """Whether the parameter is available in Python only."""
    help: str = ""
    """Help of a parameter that several functions share and whose docstrings do not describe it."""


def declared(annotation: Any) -> tuple[Any, Flag]:
    """Return the type of a parameter without its metadata, and its `Flag`."""
    if get_origin(annotation) is not Annotated:
        return annotation, Flag()
    type_, *metadata = get_args(annotation)
    return type_, next((item for item in metadata if isinstance(item, Flag)), Flag())


def alternatives(type_: Any) -> tuple[Any, ...]:
    """Return the member types of a union without None; for another type, that type alone."""
    kinds = get_args(type_) if get_origin(type_) in (Union, UnionType) else (type_,)
    return tuple(kind for kind in kinds if kind is not type(None))


def is_range(low: float, high: float) -> bool:
    """Return whether two numbers are the ends of a range of float32 values."""
    try:
        least, most = struct.unpack("2f", struct.pack("2f", low, high))
    except OverflowError:  # beyond float32
        return False
    return math.isfinite(least) and math.isfinite(most) and bool(least < most)


ALLOW_OP = Flag(
    "--allow-op",
    formerly="allowed_ops",
    metavar="OP",
    heading="Limits",
    help="Allow this op, which acts on files, the network or processes; may be repeated.",
)
FORCE = Flag(heading="Output", help="Replace an existing output file.")
LABELS = Flag(
    heading="Data",
    help="Class names, one per line, in the order of the model's scores. They map class names in "
    "the data, such as image folders, to class numbers [default: from the model metadata file].",
)
PREPROCESS = Flag(
    metavar="FILE.json|LO..HI",
    heading="Data",
    help="Preprocessing of file features into model inputs, such as image size and value range: a "
    "JSON file, JSON text, or only the range (0..1, -1..1, 0..255, photo=0..1) [default: from the "
    "model metadata file X.pb.json, or from the model itself].",
)
HEADER = Flag(
    heading="Data",
    help="Whether the first row of CSV files is a header; auto: if none of its cells is a number "
    "and none is empty. The columns of a file without one are named 0, 1 and so on.",
)
COLUMNS = Flag(
    metavar="INPUT=COLUMN,...",
    heading="Data",
    format="column",
    help="Column of a table for an input that has another name, or several columns of numbers for "
    "a vector; may be repeated [default: the column of the input's name, or the only one that "
    "fits; for one input of numbers, all columns of a CSV file, without the last one if it is one "
    "more].",
)


def output_flag(beside: str, format: str = "output") -> Flag:  # noqa: A002
    """Return the Flag of -o, whose default is a file next to the model."""
    return Flag("-o --output", format=format, heading="Output", beside=beside)
