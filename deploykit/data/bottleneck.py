"""What limits a run: input, computation, or CPU cores, and what to try next."""

from dataclasses import dataclass, field
from typing import Annotated

from deploykit.transforms.common.documents import Written

WAITS = 0.3  # share of the time from which on reading waits, where storage was read meanwhile
WAITS_UNSEEN = 0.6  # the same where the kernel tells of no storage: FUSE, networks, pipes
SLEEPY = 0.1  # cores in iowait, from which on storage is slow
DECODING = 0.5  # share of a record's cost from which on decoding is what takes the time
_ALL = 0.7  # share of the cores from which on reading takes all of them


@dataclass(frozen=True)
class ReadingCost:
    """What batches cost that nobody computes with; None: the kernel does not tell."""

    cpu: float = 0.0
    """Cores in use."""
    idle_share: float | None = None
    """Share of the time in which none of its threads ran, or could have run had a core been free,
    from 0 to 1."""
    read: float | None = None
    """Bytes a second that came from storage, also while the model computed."""
    asked: float | None = None
    """Bytes a second that were asked of files, wherever they lay."""
    iowait: float | None = None
    """Cores without work while a process waited for a disk."""
    decoding: float | None = None
    """Share of a record's CPU time that goes into decoding an image; None: there is none."""

    @property
    def bytes(self) -> float:
        """Bytes a second of files: from storage, or, where that is not counted, all."""
        read, requested = self.read or 0.0, self.asked or 0.0
        return read if read >= requested / 10 else requested

    @property
    def waiting(self) -> bool:
        """Whether reading waits for something that is no core."""
        if self.idle_share is None:
            return (self.iowait or 0.0) >= SLEEPY and self.cpu < 1 - WAITS
        stored = (self.read or 0.0) >= (self.asked or 0.0) / 2 > 0 or (
            self.iowait or 0.0
        ) >= SLEEPY  # fmt: skip
        return self.idle_share >= (WAITS if stored else WAITS_UNSEEN)

    @property
    def slow_disk(self) -> bool:
        """Whether what it waits for is a disk, or whatever files lie on."""
        return self.waiting and self.bytes > 0

    @property
    def waits(self) -> str:
        """What it waits for, in words; empty: it does not."""
        if not self.waiting:
            return ""
        often = "" if self.idle_share is None else f" for {100 * self.idle_share:.0f} % of the time"
        if not self.slow_disk:
            return f"reading waits{often}, though not for files"
        return (
            f"reading waits for the disk{often}, which gives {bytes_in_words(self.bytes)} a second"
        )


def bytes_in_words(count: float) -> str:
    """Return a number of bytes as people say it, such as `2.1 MB`."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"


def faster_model(computes: str) -> str:
    """Return what to try where the input keeps up."""
    if computes == "simulated":
        return "the input keeps up with such an accelerator: simulate a faster one"
    if computes == "gpu":
        return "the input keeps up: try larger batches, or a faster graph (deploykit optimize)"
    return "the input keeps up: make the graph faster (deploykit optimize, quantize, tune)"


def faster_input(style: str, kind: str, reading: ReadingCost, cores: float) -> str:
    """Return what to try where batches come too slowly."""
    if reading.slow_disk:
        return (
            "the disk is the limit: read from a faster one, or smaller files, or keep the data in "
            "memory"
        )
    if reading.waiting:
        return "find out what reading waits for: it is neither a core nor a file"
    decodes = _decodes(kind, reading)
    if style == "feed":
        what = "decodes" if decodes else "parses text" if kind == "csv" else "reads"
        return f"Python {what} while nothing computes: try --input tfdata"
    if style == "queue":
        return "try --input tfdata, which parses whole batches at once"
    if decodes:
        return (
            f"{_share(reading)}: store the images smaller, or keep them decoded (--cache memory, "
            "where they fit), or let other machines decode"
        )
    if style == "pipeline" and reading.cpu < _ALL * cores:
        return (
            "it reads on few cores: give its map and interleave num_parallel_calls, and prefetch; "
            "compare with --input tfdata"
        )
    if kind == "csv":
        return "write the data as TFRecords (deploykit records), which are cheaper to read"
    if kind == "images":
        return "write the data as TFRecords (deploykit records): opening files takes the time"
    if reading.cpu >= _ALL * cores:
        return "all cores read: cache what is parsed, or let other machines read"
    return "cache what is parsed, or read larger batches"


def fewer_cores(style: str, kind: str) -> str:
    """Return what to try where reading and computing need the same cores."""
    if kind == "csv":
        return "write the data as TFRecords (deploykit records): parsing text takes the cores"
    if style == "feed":
        return "try --input tfdata, which takes less CPU than Python"
    if kind == "images":
        return "store images smaller, or already decoded, or cache them: decoding takes the cores"
    return "give tf.data a thread pool of its own and the model the other cores"


def _decodes(kind: str, reading: ReadingCost) -> bool:
    if reading.decoding is None:
        return kind == "images"
    return reading.decoding >= DECODING


def _share(reading: ReadingCost) -> str:
    if reading.decoding is None:
        return "decoding takes the time"
    return f"decoding takes {100 * reading.decoding:.0f} % of what reading an image costs"


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
    used = rates.foreign or 0.0
    reason = (
        f"the machine is busy: other processes take {used:.1f} of {rates.cores:g} cores, and the "
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
        used = rates.cpu + (rates.foreign or 0.0 if rates.crowded else 0.0)
        return SHARING, (
            f"{min(used, rates.cores):.1f} of {rates.cores:g} cores are busy{foreign}, so reading "
            "and computing take them from each other"
        )
    reason = f"the model waits for batches: {_percent(rates.share)} of the ceiling"
    if rates.idle is not None and rates.idle >= (1 - BUSY) * rates.cores:
        reason += f", although {rates.idle:.1f} of {rates.cores:g} cores are idle"
    return INPUT, reason


def _takes_all(rates: Rates) -> bool:
    """Say whether one's own threads would take all cores, could they have them."""
    expected = rates.cpu if rates.wanted is None else max(rates.cpu, rates.wanted)
    return expected >= BUSY * rates.cores


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
