"""Run a command line as a process of its own, and see what it does besides ending."""

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
TICK = 0.01  # seconds between two looks at the process
MIB = 1 << 20
MOST = 6 << 30  # bytes at which a process is ended, for the sake of the machine


@dataclass
class Ended:
    """How a command line ended."""

    status: int
    """Below zero: the signal it died of."""
    out: str
    err: str
    seconds: float
    memory: int = 0
    """Peak of the process that was started, in bytes."""
    family: int = 0
    """Peak of the largest of its descendants."""
    hung: bool = False
    left: list[int] = field(default_factory=list)
    """Descendants that were alive two seconds after its end."""


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a command of this checkout."""
    kept = str(Path(tempfile.gettempdir()) / "hostile-caches")  # of Matplotlib and Keras
    return {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3",
            "CUDA_VISIBLE_DEVICES": "-1", "MPLCONFIGDIR": kept,
            "KERAS_HOME": kept, **more}  # fmt: skip


def start(arguments: list[str], folder: Path, **more: str) -> subprocess.Popen[bytes]:
    """Start a command line, in a session of its own, with its output in files."""
    out, err = folder / ".out", folder / ".err"
    with out.open("wb") as out_file, err.open("wb") as err_file:
        return subprocess.Popen(
            [sys.executable, "-m", "deploykit", *arguments], stdout=out_file, stderr=err_file,
            stdin=subprocess.DEVNULL, cwd=folder, env=environment(**more), start_new_session=True,
        )  # fmt: skip


def run(arguments: list[str], place: "Place", deadline: float, watched=None) -> Ended:
    """Run a command line in a place; end it and all of its family at the deadline.

    `watched` is called at each look with what was said so far; True: end it as Ctrl-C would.
    """
    begun = time.monotonic()
    process = start(arguments, place.logs, TMPDIR=str(place.temporary), HOME=str(place.home))
    ended = Ended(0, "", "", 0.0)
    family: set[int] = set()
    asked = False
    while process.poll() is None:
        ended.memory = max(ended.memory, peak(process.pid))
        found = descendants(process.pid)
        family |= found
        ended.family = max([ended.family, *map(peak, found)])
        said = "".join((place.logs / name).read_text(errors="replace") for name in (".out", ".err"))
        if watched is not None and not asked and watched(said, time.monotonic() - begun):
            asked = True
            process.send_signal(signal.SIGTERM)
        ended.hung = time.monotonic() - begun > deadline
        if ended.hung or max(ended.memory, ended.family) > MOST:
            kill(process.pid, *family)
        time.sleep(TICK)
    ended.status, ended.seconds = process.returncode, time.monotonic() - begun
    ended.left = outliving(family, 2.0)
    kill(*ended.left)
    ended.out = (place.logs / ".out").read_text(errors="replace")
    ended.err = (place.logs / ".err").read_text(errors="replace")
    return ended


def peak(pid: int) -> int:
    """Return the most memory that a process has had, in bytes; 0 if it is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    return 0


def descendants(pid: int) -> set[int]:
    """Return the processes below one."""
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        with contextlib.suppress(OSError, ValueError):
            for task in Path(f"/proc/{one}/task").iterdir():
                for child in map(int, (task / "children").read_text().split()):
                    if child not in found:
                        found.add(child)
                        waiting.append(child)
    return found


def alive(pid: int) -> bool:
    """Say whether a process runs: a zombie that nobody has waited for does not."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def outliving(pids: set[int], seconds: float) -> list[int]:
    """Return the processes that are alive after so long."""
    until = time.monotonic() + seconds
    while (left := [pid for pid in pids if alive(pid)]) and time.monotonic() < until:
        time.sleep(0.02)
    return left


def kill(*pids: int) -> None:
    """End processes that were started here."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@dataclass(frozen=True)
class Place:
    """A folder in which a case is made and commands run, and what lies in it."""

    root: Path

    def __post_init__(self) -> None:
        for folder in (self.case, self.goods, self.out, self.temporary, self.home, self.logs,
                       self.root / "canary"):  # fmt: skip
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def case(self) -> Path:
        """Where the hostile thing lies."""
        return self.root / "case"

    @property
    def goods(self) -> Path:
        """Where sound things lie."""
        return self.root / "goods"

    @property
    def out(self) -> Path:
        """Where outputs go."""
        return self.root / "out"

    @property
    def temporary(self) -> Path:
        """The command's TMPDIR."""
        return self.root / "tmp"

    @property
    def home(self) -> Path:
        """The command's HOME."""
        return self.root / "home"

    @property
    def logs(self) -> Path:
        """The command's working folder, where its output is kept under hidden names."""
        return self.root / "cwd"

    @property
    def was_run(self) -> bool:
        """Whether something inside the case was run, and left its mark."""
        return any((self.root / "canary").iterdir())

    def listing(self) -> dict[str, str]:
        """Return every file and folder with what tells whether it has changed."""
        found = {}
        for path in self.root.rglob("*"):
            name = str(path.relative_to(self.root))
            if name in ("cwd/.out", "cwd/.err"):
                continue
            if path.is_symlink():
                found[name] = os.readlink(path)
            elif path.is_file():
                content = path.stat()
                small = content.st_size <= MIB
                found[name] = (
                    hashlib.md5(path.read_bytes()).hexdigest() if small
                    else f"{content.st_size} {content.st_mtime_ns}"
                )  # fmt: skip
            else:
                found[name] = "folder"
        return found
