"""What reading alone costs, and the next thing to try where input, model or cores are the limit."""

from dataclasses import dataclass

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
        read, asked = self.read or 0.0, self.asked or 0.0
        return read if read >= asked / 10 else asked

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
