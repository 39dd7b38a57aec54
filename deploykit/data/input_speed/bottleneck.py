"""The bottleneck of a run (input, model or CPU cores), and advice on what to try next."""

from dataclasses import dataclass, field
from typing import Annotated

from deploykit.transforms.common.documents import Written

WAITS = 0.3  # minimum idle share for "reading waits", if storage was read meanwhile
WAITS_UNSEEN = 0.6  # the same if the kernel counts no storage reads: FUSE, networks, pipes
SLEEPY = 0.1  # minimum cores in iowait for "storage is slow"
DECODING = 0.5  # minimum share of a record's CPU time for "decoding dominates"
_ALL = 0.7  # minimum share of the cores for "reading uses all of them"


@dataclass(frozen=True)
class ReadingCost:
    """The cost of reading batches without running the model; None if the kernel has no metric."""

    cpu: float = 0.0
    """CPU cores in use."""
    idle_share: float | None = None
    """Share of the time, from 0 to 1, in which no thread of it ran or was waiting for a core."""
    read: float | None = None
    """Bytes per second read from storage, also while the model ran."""
    asked: float | None = None
    """Bytes per second read from files, in memory or in storage."""
    iowait: float | None = None
    """Idle cores while a process waited for a disk."""
    decoding: float | None = None
    """Share of a record's CPU time spent decoding images; None if there are no images."""

    @property
    def bytes(self) -> float:
        """Bytes per second from storage, or from files if storage reads are not counted."""
        read, requested = self.read or 0.0, self.asked or 0.0
        return read if read >= requested / 10 else requested

    @property
    def waiting(self) -> bool:
        """Whether reading waits for something other than a core."""
        if self.idle_share is None:
            return (self.iowait or 0.0) >= SLEEPY and self.cpu < 1 - WAITS
        stored = (self.read or 0.0) >= (self.asked or 0.0) / 2 > 0 or (
            self.iowait or 0.0
        ) >= SLEEPY  # fmt: skip
        return self.idle_share >= (WAITS if stored else WAITS_UNSEEN)

    @property
    def slow_disk(self) -> bool:
        """Whether reading waits for the storage of the files."""
        return self.waiting and self.bytes > 0

    @property
    def waits(self) -> str:
        """What reading waits for, as text; empty if it does not wait."""
        if not self.waiting:
            return ""
        often = "" if self.idle_share is None else f" for {100 * self.idle_share:.0f} % of the time"
        if not self.slow_disk:
            return f"reading waits{often}, but not for files"
        return (
            f"reading waits for the disk{often}, which gives "
            f"{bytes_in_words(self.bytes)} per second"
        )


def bytes_in_words(count: float) -> str:
    """Return a number of bytes as text, such as `2.1 MB`."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"


def faster_model(computes: str) -> str:
    """Return advice for a run in which the input is fast enough."""
    if computes == "simulated":
        return "the input is fast enough for this accelerator: simulate a faster one"
    if computes == "gpu":
        return "the input is fast enough: try larger batches, or run deploykit optimize"
    return "the input is fast enough: make the graph faster (deploykit optimize, quantize, tune)"


def faster_input(style: str, kind: str, reading: ReadingCost, cores: float) -> str:
    """Return advice for a run in which the input is too slow."""
    if reading.slow_disk:
        return (
            "the disk is the limit: use a faster one or smaller files, or cache the data in memory"
        )
    if reading.waiting:
        return "find out what reading waits for: it is neither a CPU core nor a file"
    decodes = _decodes(kind, reading)
    if style == "feed":
        what = "decodes" if decodes else "parses text" if kind == "csv" else "reads"
        return f"Python {what} while the model waits: try --input tfdata"
    if style == "queue":
        return "try --input tfdata, which parses whole batches at once"
    if decodes:
        return (
            f"{_share(reading)}: store the images smaller, or cache them decoded (--cache memory, "
            "if they fit), or decode on other machines"
        )
    if style == "pipeline" and reading.cpu < _ALL * cores:
        return (
            "it reads on few cores: set num_parallel_calls of its map and interleave, and "
            "prefetch; compare with --input tfdata"
        )
    if kind == "csv":
        return "write the data as TFRecords (deploykit records), which are cheaper to read"
    if kind == "images":
        return "write the data as TFRecords (deploykit records): opening files takes too long"
    if reading.cpu >= _ALL * cores:
        return "all cores read: cache parsed records, or read on other machines"
    return "cache parsed records, or read larger batches"


def fewer_cores(style: str, kind: str) -> str:
    """Return advice for a run in which reading and the model compete for cores."""
    if kind == "csv":
        return "write the data as TFRecords (deploykit records): parsing text uses the cores"
    if style == "feed":
        return "try --input tfdata, which uses less CPU than Python"
    if kind == "images":
        return "store images smaller or decoded, or cache them: decoding uses the cores"
    return "give tf.data a private thread pool (--private-threads), and the model the other cores"


def _decodes(kind: str, reading: ReadingCost) -> bool:
    if reading.decoding is None:
        return kind == "images"
    return reading.decoding >= DECODING


def _share(reading: ReadingCost) -> str:
    if reading.decoding is None:
        return "decoding takes most of the time"
    return f"decoding takes {100 * reading.decoding:.0f} % of the CPU time of reading an image"


INPUT, COMPUTE, SHARING = "input-bound", "compute-bound", "sharing cores"
UNDECIDED = "inconclusive"
NEAR = 0.9  # minimum share of a rate at which that rate is the limit
BUSY = 0.85  # minimum share of used cores for "no core is free"
_AGAIN = "measure again on an idle machine, or with --seconds 60"
BEYOND = 1.1  # multiple of the ceiling above which the rates are inconsistent
FOREIGN = 0.25  # minimum cores used by other processes that are reported


@dataclass(frozen=True)
class Rates:
    """The measurements of one input style; None if the kernel has no metric.

    Rates are in records per second. Cores are counted while reading and the model ran together.
    """

    both: float
    """The rate of the model with its input pipeline."""
    compute: float
    """The rate of the model on a batch in memory."""
    input: float
    """The rate of the input pipeline without the model."""
    cpu: float
    """Cores used by the processes of this run, such as 1.5."""
    cores: float
    """Cores that this run may use."""
    idle: float | None = None
    """Idle cores of the machine."""
    iowait: float | None = None
    """Idle cores while a process waited for a disk."""
    foreign: float | None = None
    """Cores used by other processes."""
    wanted: float | None = None
    """Threads of this run that ran or were waiting for a core, in the mean."""
    reading: ReadingCost = field(default_factory=ReadingCost)

    @property
    def ceiling(self) -> float:
        """The rate if reading and the model overlap perfectly."""
        return min(self.compute, self.input)

    @property
    def floor(self) -> float:
        """The rate if reading and the model alternate."""
        return 1 / (1 / self.compute + 1 / self.input)

    @property
    def share(self) -> float:
        """The measured rate as a share of the ceiling."""
        return self.both / self.ceiling

    @property
    def unstable(self) -> str:
        """Why the rates are inconsistent, as text; empty if they are consistent."""
        if self.share > BEYOND:
            return f"it ran at {_percent(self.share)} of the ceiling of reading and model alone"
        if self.floor >= NEAR * self.ceiling and self.both < NEAR * self.floor:
            return f"it ran at {_percent(self.both / self.floor)} of the rate of taking turns"
        return ""

    @property
    def crowded(self) -> bool:
        """Whether other processes use enough cores to affect the result."""
        return self.foreign is not None and self.foreign >= FOREIGN


@dataclass(frozen=True)
class Verdict:
    """The bottleneck of a run, the reason for this verdict, and advice."""

    limit: Annotated[str, Written("verdict")]
    reason: str
    advice: Annotated[str, Written("next")]


def verdict(style: str, kind: str, rates: Rates, computes: str = "cpu") -> Verdict:
    """Return the bottleneck of an input style for data of a kind (records, csv, images, arrays).

    `computes` is the device of the model: cpu, gpu, or simulated for a simulated accelerator.
    """
    if rates.unstable:
        reason = f"{rates.unstable}, so the machine's speed changed during the run"
        return Verdict(UNDECIDED, "; ".join([reason, *_load(rates)]), _AGAIN)
    limit, reason = _limit(rates, computes)
    if limit == COMPUTE:
        advice = faster_model(computes)
    elif limit == SHARING:
        advice = fewer_cores(style, kind)
    else:
        advice = faster_input(style, kind, rates.reading, rates.cores)
    reasons = [reason]
    if limit == INPUT and (waits := rates.reading.waits):
        reasons.append(waits)
    return Verdict(limit, "; ".join([*reasons, *_load(rates)]), advice)


def _load(rates: Rates) -> list[str]:
    """Return what to say about other processes."""
    if not rates.crowded:
        return []
    used = f"other processes take {rates.foreign:.1f} of {rates.cores:g} cores"
    return [f"{used}, so this result is only valid with that load"]


def undecided(rates: Rates, limits: dict[str, int]) -> Verdict:
    """Return a verdict for inconsistent rounds; `limits` counts the rounds by their limit."""
    seen = ", ".join(f"{limit} in {count}" for limit, count in limits.items())
    used = rates.foreign or 0.0
    reason = (
        f"the machine is loaded: other processes take {used:.1f} of {rates.cores:g} cores, and the "
        f"rounds are unstable: {seen}"
    )
    return Verdict(UNDECIDED, reason, _AGAIN)


def _limit(rates: Rates, computes: str) -> tuple[str, str]:
    """Return the limit of a run, and the reason with its numbers."""
    by_compute = rates.compute <= rates.input
    alone = rates.compute if by_compute else rates.input
    # If the rate of alternating is near one of the rates, the other part is almost free.
    if rates.share >= NEAR or rates.floor >= NEAR * alone:
        limit, word = (COMPUTE, "compute") if by_compute else (INPUT, "input")
        verb = "computes" if by_compute else "runs"
        return limit, f"it {verb} at {_percent(rates.both / alone)} of the {word}-only rate"
    if computes != "simulated" and _takes_all(rates):
        foreign = f", {rates.foreign:.1f} by other processes" if rates.crowded else ""
        used = rates.cpu + (rates.foreign or 0.0 if rates.crowded else 0.0)
        return SHARING, (
            f"{min(used, rates.cores):.1f} of {rates.cores:g} cores are used{foreign}, so reading "
            "and the model compete for them"
        )
    reason = f"the model waits for batches: {_percent(rates.share)} of the ceiling"
    if rates.idle is not None and rates.idle >= (1 - BUSY) * rates.cores:
        reason += f", although {rates.idle:.1f} of {rates.cores:g} cores are idle"
    return INPUT, reason


def _takes_all(rates: Rates) -> bool:
    """Return whether the threads of this run would use all cores if these were free."""
    expected = rates.cpu if rates.wanted is None else max(rates.cpu, rates.wanted)
    return expected >= BUSY * rates.cores


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
