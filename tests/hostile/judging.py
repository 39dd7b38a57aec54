"""Whether a command did on a hostile file what it should, and nothing besides."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from tests.hostile.case import Case
from tests.hostile.watching import MIB, Ended, Place

SPARE = 200 * MIB  # what a command may take besides ten times the file
SPARE_OF_A_SERVER = 650 * MIB  # TensorFlow runs in its process, which takes 480 for any small model
NO_IMAGE = re.compile("expected an image|should take the image")
LIMIT_REACHED, OUT_OF_TIME = 6, re.compile(r"--timeout\b")
LARGEST = 10 * MIB  # of the files for which that holds


@dataclass
class Verdict:
    """What was found of one command on one case."""

    case: Case
    command: str
    ended: Ended
    faults: list[str] = field(default_factory=list)
    """Each begins with its kind and a colon."""
    named: bool | None = None
    """Whether the culprit was named; None: nothing was refused."""
    factor: float = 0.0
    """Peak memory beyond what is spare, by the size of the file."""

    @property
    def kinds(self) -> set[str]:
        """The kinds of the faults."""
        return {fault.partition(":")[0] for fault in self.faults}


def size_of(path: Path) -> int:
    """Return the bytes of a file or of all files in a folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())


def judge(
    case: Case, command: str, ended: Ended, place: Place, before: dict[str, str], opened: str
) -> Verdict:
    """Return what was wrong with how a command ended."""
    found = Verdict(case, command, ended)
    say = found.faults.append
    said = f"{ended.out}\n{ended.err}"
    no_image = command == "label" and ended.status == 2 and bool(NO_IMAGE.search(ended.err))
    if ended.hung:
        say(f"hang: it did not end within {ended.seconds:.0f} s")
    elif ended.status < 0:
        say(f"died: of signal {-ended.status}")
    elif ended.status == 1 or "deploykit: bug:" in ended.err:
        say(f"bug: {last(ended.err)}")
    elif no_image:
        pass  # it says so before it looks any further
    elif case.heavy and ended.status == LIMIT_REACHED and OUT_OF_TIME.search(ended.err):
        pass  # whether large work ends within its limit says more about the machine
    elif ended.status not in case.right.of(command):
        right = sorted(case.right.of(command))
        say(f"status: {ended.status} instead of {right}: {last(ended.err)}")
    if "Traceback (most recent call last)" in said:
        say(f"traceback: {last(said)}")
    if place.was_run:
        say("run: what is inside the case was run")
    _judge_files(found, place, before)
    if ended.left:
        say(f"orphans: {len(ended.left)} processes were left")
    size = size_of(place.case)
    spare = SPARE_OF_A_SERVER if command == "serve" else SPARE
    found.factor = max(0.0, ended.memory - spare) / max(size, 1)
    if size <= LARGEST and found.factor > 10:
        say(f"memory: {ended.memory // MIB} MiB for a file of {size} bytes")
    refused = ended.status not in (0, 1) and ended.status > 0
    if (refused and not no_image) or (command == "inspect" and case.right.of("check") == (3,)):
        found.named = is_named(case, said, opened)
    if refused and not re.search(r"^deploykit: ", ended.err, re.M):
        say("silent: no line says why")
    return found


def is_named(case: Case, said: str, opened: str) -> bool:
    """Say whether what was said names the culprit, or else the file."""
    culprits = case.culprit or (opened, Path(opened).name)
    return any(each in said or f"/{each[1:]}" in said for each in culprits)  # of a function, too


def _judge_files(found: Verdict, place: Place, before: dict[str, str]) -> None:
    after = place.listing()
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    good = found.ended.status == 0
    stray = {
        name for name in changed
        if not (good and name.split("/")[0] == "out" and not Path(name).name.endswith(".tmp"))
    }  # fmt: skip
    if stray:
        found.faults.append(f"stray: {', '.join(sorted(stray)[:4])}")


def last(text: str) -> str:
    """Return the line that matters most."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line or "bug:" in line]
    return (errors or lines or ["it said nothing"])[-1][:300]
