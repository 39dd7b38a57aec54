"""How 8-bit codes stand for the values of a tensor."""

from dataclasses import dataclass

from deploykit.transforms.core.int8.ranges import TensorRange
from deploykit.transforms.core.int8.weights import LARGEST

CODES = 255  # above zero; 127 with a sign
_NOTHING = 1e-3  # of a step: what is left of it where numbers are stored as float32


@dataclass(frozen=True)
class Form:
    """How codes stand for a tensor: value = code * step + offset."""

    signed: bool
    peak: float
    """What the largest code stands for, without the offset."""
    offset: float = 0.0
    top: int = CODES
    """The largest code in use, of codes without a sign: fewer where fake-quants state so."""

    @property
    def type(self) -> str:
        """TensorFlow's type of the codes."""
        return "qint8" if self.signed else "quint8"

    @property
    def step(self) -> float:
        """How far two codes without a sign are apart."""
        return self.peak / CODES

    @property
    def zero(self) -> int:
        """The code that is nearest to zero, which may lie outside of what 8 bits hold."""
        return round(-self.offset / self.step)

    @property
    def of_zero(self) -> float:
        """What the code that is nearest to zero stands for; nothing where zero has its own code."""
        stands_for = self.zero * self.step + self.offset
        return 0.0 if abs(stands_for) < _NOTHING * self.step else stands_for

    @property
    def low(self) -> float:
        """The lower end of the range, without the offset; one of a sign is symmetric."""
        return -self.peak if self.signed else 0.0

    @property
    def lowest(self) -> float:
        """What the lowest code stands for: with a sign it is -128, and the largest is 127."""
        return -self.peak * (LARGEST + 1) / LARGEST if self.signed else self.offset


def form_of(found: TensorRange) -> Form:
    """Return the form of a range; what is below zero by less than half a code is rounding."""
    signed = found.min < -found.max / CODES / 2
    return Form(signed, max(-found.min, found.max) if signed else found.max)


def with_offset(found: TensorRange, zero_is_exact: bool) -> Form:
    """Return the unsigned form of a range below zero.

    With `zero_is_exact`, zero has a code of its own. Else the lowest value has, as the pixels of a
    photo that were scaled to -1..1 are then codes but for rounding.
    """
    high, low = max(found.max, 0.0), min(found.min, 0.0)
    step = (high - low) / CODES
    return Form(False, high - low, -round(-low / step) * step if zero_is_exact else low)
