"""What limits input, where it is known: slow accelerators, nets, photos, text, a slow disk; alone
and beside other work.

Every case is one `deploykit benchmark --data` in a process of its own, also beside two processes
that take all the CPU they get. The slow disk is a loop device with a file system of its own, whose
reads the kernel's block layer holds to 2 MB a second for the processes of a control group; root
alone may do that, and elsewhere these cases are left out with a line that says so.
"""

import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deploykit.data.bottleneck import COMPUTE, INPUT, SHARING
from deploykit.importers.graph_files import save_graph
from tests.benchmarks.figures import RESULTS, Figure
from tests.benchmarks.input import photos
from tests.benchmarks.measuring import deploykit
from tests.benchmarks.nets import frozen_keras_net
from tests.support import build

SECONDS = "6"
HOGS = 2
WIDTH = 256
RATE = 2_000_000  # bytes a second of the slow disk
CONTROL = Path("/sys/fs/cgroup/blkio")


@dataclass(frozen=True)
class KnownLimit:
    """A measurement, and which limits may be found in each style."""

    what: str
    model: str
    data: str
    expected: dict[str, tuple[str, ...]]
    options: tuple[str, ...] = ()
    says: str = ""
    """What the verdict has to say."""
    never: str = ""
    """What it must not say."""
    slow: bool = False
    """Whether the disk is."""


def cases(folder: Path) -> list[KnownLimit]:
    """Return all cases, with their nets and data in a folder."""
    light, heavy, pixels = nets(folder)
    table = str(lines(folder / "csv", 8000))
    turns = {"queue": (COMPUTE,), "tfdata": (COMPUTE,)}
    images = str(photos())
    net = str(frozen_keras_net("MobileNet"))
    return [
        # Python reads a batch in 6 to 12 ms, in which nothing is computed.
        KnownLimit("accelerator, 20 ms", light, table, {"feed": (INPUT,), **turns},
             ("--simulated-compute-ms", "20")),
        KnownLimit("accelerator, 60 ms", light, table, {"feed": (INPUT, COMPUTE), **turns},
             ("--simulated-compute-ms", "60")),
        KnownLimit("accelerator, 100 ms", light, table, {"feed": (INPUT, COMPUTE), **turns},
             ("--simulated-compute-ms", "100")),
        KnownLimit("heavy net", heavy, table, {"feed": (COMPUTE,), **turns}),
        KnownLimit("JPEG before a heavy net", net, images, {"tfdata": (COMPUTE, SHARING)},
             ("--batch", "8", "--preprocess=-1..1"), never="records"),
        KnownLimit("JPEG before a light net", pixels, images, {"tfdata": (INPUT,)},
             ("--preprocess=0..1",), says="decod", never="deploykit records"),
        KnownLimit("CSV by Python", light, table, {"feed": (INPUT,)}, says="--input tfdata"),
        KnownLimit("slow disk", light, "slow", dict.fromkeys(("feed", "queue", "tfdata"), (INPUT,)),
             says="the disk", slow=True),
        KnownLimit("slow disk, accelerator, 5 ms", light, "slow",
             dict.fromkeys(("feed", "queue", "tfdata"), (INPUT,)),
             ("--simulated-compute-ms", "5"), says="the disk", slow=True),
    ]  # fmt: skip


def nets(folder: Path) -> tuple[str, str, str]:
    """Write a light and a heavy net on lines, and a light one on photos; return their files."""
    made = {
        "light": build(functools.partial(dense, 0), ("x",), ("out",)),
        "heavy": build(functools.partial(dense, 20), ("x",), ("out",)),
        "pixels": build(mean_of_pixels, ("images",), ("out",)),
    }
    for name, graph in made.items():
        save_graph(graph, folder / f"{name}.pb")
    light, heavy, pixels = (str(folder / f"{name}.pb") for name in made)
    return light, heavy, pixels


def dense(layers: int) -> None:
    """Build a net of so many wide layers."""
    import tensorflow as tf

    v1, random = tf.compat.v1, np.random.default_rng(0)
    value = v1.placeholder(tf.float32, [None, WIDTH], name="x")
    if layers:
        value = value @ tf.constant(random.normal(size=(WIDTH, 4096)).astype(np.float32) / 16)
        wide = tf.constant(random.normal(size=(4096, 4096)).astype(np.float32) / 64)
        for _ in range(layers):
            value = tf.nn.relu(value @ wide)
    tf.reduce_mean(value, 1, name="out")


def mean_of_pixels() -> None:
    """Build a net that takes no time."""
    import tensorflow as tf

    images = tf.compat.v1.placeholder(tf.float32, [None, 224, 224, 3], name="images")
    tf.reduce_mean(images, [1, 2, 3], name="out")


def lines(folder: Path, count: int) -> Path:
    """Write lines of numbers with a label into four files."""
    folder.mkdir()
    random = np.random.default_rng(0)
    some = [",".join(map(str, row)) for row in random.uniform(-1, 1, (500, WIDTH)).round(6)]
    for number in range(4):
        content = "".join(f"{some[n % len(some)]},1\n" for n in range(count // 4))
        (folder / f"{number}.csv").write_text(content)
    return folder


@contextlib.contextmanager
def slow_disk(folder: Path) -> Iterator[tuple[str, Path] | None]:
    """Yield lines on a slow disk, and the control group for which it is slow; None: not allowed."""
    image, place = folder / "disk.img", folder / "disk"
    group = CONTROL / f"deploykit-{os.getpid()}"
    allowed = os.geteuid() == 0 and (CONTROL / "blkio.throttle.read_bps_device").exists()
    if not allowed or not shutil.which("mkfs.ext4"):
        yield None
        return
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(400_000_000)
    _run("mkfs.ext4", "-q", "-F", str(image))
    _run("mount", "-o", "loop", str(image), str(place))
    try:
        lines(place / "csv", 100_000)
        _run("umount", str(place))
        _run("mount", "-o", "loop", str(image), str(place))  # with nothing of it in memory
        device = os.stat(place).st_dev
        group.mkdir()
        (group / "blkio.throttle.read_bps_device").write_text(
            f"{os.major(device)}:{os.minor(device)} {RATE}"
        )
        yield str(place / "csv"), group
    finally:
        _run("umount", str(place))
        with contextlib.suppress(OSError):
            group.rmdir()


@contextlib.contextmanager
def other_work(count: int) -> Iterator[None]:
    """Take all the CPU that so many processes get."""
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def measured(case: KnownLimit, data: str, group: Path | None) -> Sequence[dict[str, Any]]:
    """Return what was found of each style."""
    style = "all" if len(case.expected) > 1 else next(iter(case.expected))
    command = deploykit("benchmark", case.model, "--data", data, "--input", style, "--seconds",
                        SECONDS, "--json", *case.options)  # fmt: skip
    joins = None if group is None else functools.partial(_join, group)
    done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=joins)
    if done.returncode:
        raise RuntimeError(f"{case.what}: {done.stderr}")
    styles: list[dict[str, Any]] = json.loads(done.stdout)["styles"]
    return styles


def right(case: KnownLimit, found: dict[str, Any], hogs: int) -> bool:
    """Say whether a verdict is what it should be."""
    said = f"{found['reason']}; {found['next']}"
    beyond = found["share_of_ceiling"] > 1.05 and "unstable" not in said
    unseen = bool(hogs) and "other processes take" not in said
    imagined = "cores are idle" in said and found["machine"]["idle"] < 0.2
    named = case.says in said and (not case.never or case.never not in said)
    return found["verdict"] in case.expected[found["style"]] and named and not (
        beyond or unseen or imagined
    )  # fmt: skip


def figures() -> list[Figure]:
    """Measure all cases, alone and beside other work; print every verdict."""
    found: list[bool] = []
    with tempfile.TemporaryDirectory(dir=RESULTS.resolve() if RESULTS.exists() else None) as name:
        folder = Path(name)
        every = cases(folder)
        for hogs in (0, HOGS):
            for case in every:
                with contextlib.ExitStack() as stack:
                    data, group = case.data, None
                    if case.slow:
                        here = Path(tempfile.mkdtemp(dir=folder))
                        slow = stack.enter_context(slow_disk(here))
                        if slow is None:
                            print(f"left out, for it takes root: {case.what}", flush=True)
                            continue
                        data, group = slow
                    stack.enter_context(other_work(hogs))
                    found += [_shown(case, each, hogs) for each in measured(case, data, group)]
    return [Figure("input: right verdicts, of all", "", [sum(found)], at_least=len(found))]


def _shown(case: KnownLimit, found: dict[str, Any], hogs: int) -> bool:
    well = right(case, found, hogs)
    rates = " ".join(
        f"{name} {found[key]:.4g}"
        for name, key in (("both", "items_per_second"), ("compute", "compute_only"),
                          ("input", "input_only"))
    )  # fmt: skip
    print(
        f"{'right' if well else 'WRONG'} | {case.what} | {hogs} hogs | {found['style']} | "
        f"expected {' or '.join(case.expected[found['style']])} | {found['verdict']} | {rates} | "
        f"{found['reason']}; {found['next']}",
        flush=True,
    )
    return well


def _join(group: Path) -> None:
    (group / "cgroup.procs").write_text(str(os.getpid()))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
