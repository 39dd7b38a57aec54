"""`deploykit records` with a process for each core, beside the same encoder in one process.

Both write the same bytes, synced to disk, and have their turns in one process. The 20 files of 100
lines are the articles'; as they are a third of a second of work, most of a command is its start, so
the conversion alone is timed. A command as a whole is timed on ten times as much.
"""

import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

from deploykit.records.conversion import Options, convert
from deploykit.records.images import Images
from deploykit.records.record_source import RecordSource
from deploykit.records.tables import Numbers
from deploykit.system.machine import usable_cores
from deploykit.transforms.runtime.child_process import Worker
from tests.benchmarks.figures import Figure
from tests.benchmarks.measuring import ROUNDS, deploykit, in_turn

FILES, LINES, COLUMNS, TIMES = 20, 100, 1025, 10
IMAGES, CLASSES, SIZE = 10_000, 10, 32
RATIO = 1 / 1.7


class Conversions:
    """What converts in a process that never starts TensorFlow, as the command does."""

    def seconds(self, kind: str, where: str, processes: int, out: str) -> float:
        """Return how long a conversion takes, from listing the source to the index."""
        shutil.rmtree(out, ignore_errors=True)
        start = time.perf_counter()
        convert(_source(kind, Path(where)), Path(out), Options(processes=processes))
        return time.perf_counter() - start

    def copied(self, folder: str, out: str) -> float:
        """Return how long the disk takes for bytes that are ready: a shard's, synced."""
        content = b"".join(path.read_bytes() for path in Path(folder).glob("*.tfrecord"))
        from deploykit.storage.files import write

        start = time.perf_counter()
        write(out, [content], force=True)
        return time.perf_counter() - start


def _source(kind: str, where: Path) -> RecordSource:
    return Images(where) if kind == "images" else Numbers(sorted(map(str, where.glob("*.csv"))))


def figures() -> list[Figure]:
    """Measure CSV and JPEG."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        _tables(root / "csv", LINES)
        _tables(root / "long", LINES * TIMES)
        Worker("tests.benchmarks.records:images", str(root / "images")).created()
        return [
            *_compared(root, "csv", f"{FILES} CSV files x {LINES} x {COLUMNS}"),
            *_compared(root, "long", f"{FILES} CSV files x {LINES * TIMES} x {COLUMNS}"),
            *_compared(root, "images", f"{IMAGES:,} JPEG files"),
            _command(root / "long", root / "out"),
        ]


def _compared(root: Path, kind: str, what: str) -> list[Figure]:
    """Return the times with all processes and with one, and what the disk alone takes."""
    where, out = str(root / kind), str(root / "out")
    worker = Worker("tests.benchmarks.records:Conversions")
    try:
        rounds: dict[int, list[float]] = {usable_cores(): [], 1: []}
        disk = []
        for number in range(1 + ROUNDS):
            for processes, seconds in rounds.items():
                taken = worker.ask("seconds", kind, where, processes, out)
                seconds += [taken] if number else []
            disk.append(worker.ask("copied", out, str(root / "copy")))
        ours, one = rounds.values()
        return [
            Figure(f"convert {what}, beside one process", "s", ours, one, at_most_ratio=RATIO),
            Figure(f"convert {what}, beside writing alone", "s", ours, disk[1:]),
        ]
    finally:
        worker.close()


def _command(where: Path, out: Path) -> Figure:
    """Return the times of whole commands, Python's start included."""
    files = [str(path) for path in sorted(where.glob("*.csv"))]

    def command(processes: int) -> list[str]:
        options = ("--processes", str(processes), "--force")
        return deploykit("records", *files, str(out), *options)

    runs = in_turn({"ours": command(usable_cores()), "one": command(1)})
    ours, one = ([run.seconds for run in each] for each in runs.values())
    return Figure("the command for the larger CSV files", "s", ours, one)


def _tables(folder: Path, lines: int) -> None:
    folder.mkdir()
    random = np.random.default_rng(0)
    for number in range(FILES):
        rows = random.normal(size=(lines, COLUMNS))
        rows[:, -1] = rows[:, :-1].sum(axis=1) > 0
        text = "\n".join(",".join([*(f"{v:.6f}" for v in row[:-1]), f"{row[-1]:.0f}"])
                         for row in rows.tolist())  # fmt: skip
        (folder / f"{number:02}.csv").write_text(text + "\n")


def images(folder: str) -> int:
    """Write the JPEG files; this is done in a child process. Return how many."""
    import tensorflow as tf

    random = np.random.default_rng(0)
    for number in range(CLASSES):
        Path(folder, f"{number}").mkdir(parents=True)
    for number in range(IMAGES):
        coarse = random.integers(0, 256, (SIZE // 4, SIZE // 4, 3)).astype(np.uint8)
        pixels = coarse.repeat(4, axis=0).repeat(4, axis=1)
        content = tf.io.encode_jpeg(pixels).numpy()
        Path(folder, str(number % CLASSES), f"{number:05}.jpg").write_bytes(content)
    return IMAGES
