"""What limits a run: its input, its computing, or the CPU cores that both need; and what to try.

From the compute-only rate c and the input-only rate i follow the ceiling min(c, i), which perfect
overlap reaches, and the serial floor 1 / (1/c + 1/i), where reading and computing take turns. The
floor is also all that can be had where either alone already takes every core.

What cores and disks did is the kernel's own account: a core is idle where the machine says so, and
reading waits where none of its threads ran, or could have run had a core been free.
"""

from dataclasses import dataclass, field
from typing import Annotated

from deploykit.input.judging.advice import ReadingCost, faster_input, faster_model, fewer_cores
from deploykit.transforms.core.display.documents import Written

INPUT, COMPUTE, SHARING = "input-bound", "compute-bound", "sharing cores"
UNDECIDED = "undecided"
NEAR = 0.9  # share of a rate from which on it is what limits
BUSY = 0.85  # share of the cores from which on none is left
BEYOND = 1.03  # share of the ceiling from which on the rates contradict each other
FOREIGN = 0.25  # cores that others take, from which on it is said


@dataclass(frozen=True)
class Rates:
    """What was measured of one style. Rates are records a second; None: the kernel does not tell.

    Cores are those in use, or idle, while both ran.
    """

    both: float
    """The model on batches as they come."""
    compute: float
    """The model on a batch that lies ready."""
    input: float
    """Batches that nobody computes with."""
    cpu: float
    """Cores in use by one's own processes, 1.5 for one and a half."""
    cores: float
    """Cores that may be used."""
    idle: float | None = None
    """Cores without work, for any process."""
    iowait: float | None = None
    """Cores without work while a process waited for a disk."""
    foreign: float | None = None
    """Cores that other processes took."""
    wanted: float | None = None
    """Own threads that ran, or could have run had a core been free."""
    reading: ReadingCost = field(default_factory=ReadingCost)

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

    @property
    def unstable(self) -> str:
        """Why the rates contradict each other, in words; empty: they do not."""
        if self.share > BEYOND:
            return f"it ran at {_percent(self.share)} of what reading and computing each do alone"
        if self.floor >= NEAR * self.ceiling and self.both < NEAR * self.floor:
            return f"it ran at {_percent(self.both / self.floor)} of what taking turns would give"
        return ""

    @property
    def crowded(self) -> bool:
        """Whether other processes take so much that it matters."""
        return self.foreign is not None and self.foreign >= FOREIGN


@dataclass(frozen=True)
class Verdict:
    """What limits a run, why that is said, and the next thing to try."""

    limit: Annotated[str, Written("verdict")]
    reason: str
    advice: Annotated[str, Written("next")]


def verdict(style: str, kind: str, rates: Rates, computes: str = "cpu") -> Verdict:
    """Return what limits a style over data of a kind (records, csv, images, arrays).

    `computes` says where: on the cpu, on a gpu, or nowhere, when an accelerator is simulated.
    """
    limit, reason = _limit(rates, computes)
    if limit == COMPUTE:
        advice = faster_model(computes)
    elif limit == SHARING:
        advice = fewer_cores(style, kind)
    else:
        advice = faster_input(style, kind, rates.reading, rates.cores)
    said = [reason]
    if limit == INPUT and (waits := rates.reading.waits):
        said.append(waits)
    if rates.unstable:
        said.append(f"unstable: {rates.unstable}, so the speed of the machine changed meanwhile")
    if rates.crowded:
        said.append(
            f"other processes take {rates.foreign:.1f} of {rates.cores:g} cores, so this holds "
            "beside them only"
        )
    return Verdict(limit, "; ".join(said), advice)


def undecided(rates: Rates, limits: dict[str, int]) -> Verdict:
    """Return that the rounds contradict each other; `limits` is how many of them say what."""
    seen = ", ".join(f"{limit} in {count}" for limit, count in limits.items())
    taken = rates.foreign or 0.0
    reason = (
        f"the machine is busy: other processes take {taken:.1f} of {rates.cores:g} cores, and the "
        f"rounds are unstable: {seen}"
    )
    return Verdict(UNDECIDED, reason, "measure again when nothing else runs, or with --seconds 60")


def _limit(rates: Rates, computes: str) -> tuple[str, str]:
    """Return what limits a run, and by which figures."""
    by_compute = rates.compute <= rates.input
    alone = rates.compute if by_compute else rates.input
    # Where even taking turns would come near to a rate alone, the other one costs next to nothing.
    if rates.share >= NEAR or rates.floor >= NEAR * alone:
        limit, word = (COMPUTE, "compute") if by_compute else (INPUT, "input")
        verb = "computes" if by_compute else "runs"
        return limit, f"it {verb} at {_percent(rates.both / alone)} of the {word}-only rate"
    if computes != "simulated" and _takes_all(rates):
        foreign = f", {rates.foreign:.1f} by other processes" if rates.crowded else ""
        taken = rates.cpu + (rates.foreign or 0.0 if rates.crowded else 0.0)
        return SHARING, (
            f"{min(taken, rates.cores):.1f} of {rates.cores:g} cores are busy{foreign}, so reading "
            "and computing take them from each other"
        )
    reason = f"the model waits for batches: {_percent(rates.share)} of the ceiling"
    if rates.idle is not None and rates.idle >= (1 - BUSY) * rates.cores:
        reason += f", although {rates.idle:.1f} of {rates.cores:g} cores are idle"
    return INPUT, reason


def _takes_all(rates: Rates) -> bool:
    """Say whether one's own threads would take all cores, could they have them."""
    wanted = rates.cpu if rates.wanted is None else max(rates.cpu, rates.wanted)
    return wanted >= BUSY * rates.cores


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
