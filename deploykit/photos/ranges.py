"""The range that the values of a photo are brought into: `0..255`, `0..1`, `-1..1`."""

import re
from typing import NamedTuple

_NUMBER = r"-?\d+(?:\.\d+)?"
_RANGE = re.compile(rf"\s*({_NUMBER})\.\.({_NUMBER})\s*", re.ASCII)
_LARGEST = 255.0  # of a decoded photo


class PhotoRange(NamedTuple):
    """What black and white become."""

    low: float
    high: float

    @property
    def scale(self) -> float:
        """What each byte is multiplied by."""
        return (self.high - self.low) / _LARGEST

    @property
    def mean(self) -> tuple[float, ...]:
        """What is subtracted after that, if anything."""
        return (-self.low,) if self.low else ()

    def like(self, other: "PhotoRange") -> bool:
        """Say whether it is the same but for rounding, such as of 1/255 or 1/256."""
        slack = 0.02 * abs(other.high - other.low)
        return all(abs(a - b) <= slack for a, b in zip(self, other, strict=True))

    def __str__(self) -> str:
        return f"{self.low:g}..{self.high:g}"


BYTES = PhotoRange(0.0, 255.0)
UNIT = PhotoRange(0.0, 1.0)
SIGNED = PhotoRange(-1.0, 1.0)


def range_from(text: str) -> PhotoRange | None:
    """Return a range that is written as `0..1`; None: it is something else."""
    found = _RANGE.fullmatch(text)
    if found is None:
        return None
    low, high = map(float, found.groups())
    return PhotoRange(low, high) if low < high else None
