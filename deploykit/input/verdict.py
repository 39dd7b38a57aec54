"""What limits a run: its input, its computing, or the CPU cores that both need; and what to try.

From the compute-only rate c and the input-only rate i follow the ceiling min(c, i), which perfect
overlap reaches, and the serial floor 1 / (1/c + 1/i), where reading and computing take turns. The
floor is also all that can be had where either alone already takes every core.
"""

from dataclasses import dataclass
from typing import Any

INPUT, COMPUTE, SHARING = "input-bound", "compute-bound", "sharing cores"
NEAR = 0.9  # share of a rate from which on it is what limits
BUSY = 0.85  # share of the cores from which on none is left


@dataclass(frozen=True)
class Rates:
    """What was measured of one style. Rates are records a second."""

    both: float
    """The model on batches as they come."""
    compute: float
    """The model on a batch that lies ready."""
    input: float
    """Batches that nobody computes with."""
    cpu: float
    """Cores in use while both ran, 1.5 for one and a half."""
    cores: float
    """Cores that may be used."""

    @property
    def ceiling(self) -> float:
        """The rate of perfect overlap."""
        return min(self.compute, self.input)

    @property
    def floor(self) -> float:
        """The rate without any overlap."""
        return 1 / (1 / self.compute + 1 / self.input)

    @property
    def share(self) -> float:
        """The part of the ceiling that is reached."""
        return self.both / self.ceiling


@dataclass(frozen=True)
class Verdict:
    """What limits a run, why that is said, and the next thing to try."""

    limit: str
    reason: str
    advice: str

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"verdict": self.limit, "reason": self.reason, "next": self.advice}


def verdict(style: str, kind: str, rates: Rates, computes: str = "cpu") -> Verdict:
    """Return what limits a style over data of a kind (records, csv, images, arrays).

    `computes` says where: on the cpu, on a gpu, or nowhere, when an accelerator is simulated.
    """
    if rates.share >= NEAR:
        if rates.compute <= rates.input:
            reason = (
                f"it computes at {_percent(rates.both / rates.compute)} of the compute-only rate"
            )
            return Verdict(COMPUTE, reason, _faster_model(computes))
        reason = f"it runs at {_percent(rates.share)} of the input-only rate"
        return Verdict(INPUT, reason, _faster_input(style, kind, rates))
    busy = rates.cpu >= BUSY * rates.cores
    if busy:
        reason = (
            f"{rates.cpu:.1f} of {rates.cores:g} cores are busy, so reading and computing take "
            "them from each other"
        )
        return Verdict(SHARING, reason, _fewer_cores(style, kind))
    reason = (
        f"the model waits for batches: {_percent(rates.share)} of the ceiling, although cores are "
        "idle"
    )
    return Verdict(INPUT, reason, _faster_input(style, kind, rates))


def _faster_model(computes: str) -> str:
    """Return what to try where the input keeps up."""
    if computes == "simulated":
        return "the input keeps up with such an accelerator: simulate a faster one"
    if computes == "gpu":
        return "the input keeps up: try larger batches, or a faster graph (deploykit optimize)"
    return "the input keeps up: make the graph faster (deploykit optimize, quantize, tune)"


def _faster_input(style: str, kind: str, rates: Rates) -> str:
    """Return what to try where batches come too slowly."""
    if style == "feed":
        return "Python reads while nothing computes: try --input tfdata"
    if style == "queue":
        return "try --input tfdata, which parses whole batches at once"
    if kind in ("csv", "images"):
        return "write the data as TFRecords (deploykit records), which are cheaper to read"
    if rates.cpu >= BUSY * rates.cores:
        return "all cores read: cache what is parsed, or let other machines read"
    return "cache what is parsed, or read from a faster disk"


def _fewer_cores(style: str, kind: str) -> str:
    """Return what to try where reading and computing need the same cores."""
    if kind == "csv":
        return "write the data as TFRecords (deploykit records): parsing text takes the cores"
    if style == "feed":
        return "try --input tfdata, which takes less CPU than Python"
    if kind == "images":
        return "store images smaller, or already decoded, or cache them: decoding takes the cores"
    return "give tf.data a thread pool of its own and the model the other cores"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
