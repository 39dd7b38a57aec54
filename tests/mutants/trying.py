"""Run the tests of a module on its mutants, in a copy of the working tree."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.mutate import Mutant

TIME = "time"
"""What killed a mutant whose tests did not end within the limit."""
_FAILURE, _UNREADABLE, _NO_TESTS = 1, 2, 5  # exit statuses of pytest
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
_SLACK = 60  # seconds that a mutant's tests may take longer, however short they are
_FACTOR = 4  # other programs may slow the machine down meanwhile


class UnmutatedError(Exception):
    """The tests fail without a mutant, or do not run."""


@dataclass(frozen=True)
class Outcome:
    """A mutant, and what killed it."""

    mutant: Mutant
    killed_by: str | None
    """The first test that failed, `time`, or `signal N`; None: the mutant survived."""


class TreeCopy:
    """A copy of the files that git tracks or would track, from which tests import deploykit.

    Files are not linked: a test that writes into one would change the checkout.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder = folder
        self._writes = 0
        for name in _files(root):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target, follow_symlinks=False)

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which each Python process, and its children, import from the copy."""
        return {**os.environ, "PYTHONPATH": str(self.folder)}

    def write(self, module: str, content: bytes) -> None:
        """Replace a module."""
        path = self.folder / module
        path.write_bytes(content)
        # Python trusts what it compiled if time and size of the source are equal.
        self._writes += 1
        os.utime(path, (self._writes, self._writes))

    def failure(self, tests: Sequence[str], limit: float | None = None) -> str | None:
        """Return the first test that fails, or what else ended the tests; None: all pass."""
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-n", "0", "-x", "--tb=no", "-rfE",
             "-p", "no:cacheprovider", "--hypothesis-seed=0", *tests],
            cwd=self.folder, env=self.environment, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            return TIME
        finally:
            _end(process)
        if process.returncode in (0, _NO_TESTS):
            return None
        found = _FAILED.search(output)
        if process.returncode in (_FAILURE, _UNREADABLE) and found:
            return found[1]
        if process.returncode < 0:
            return f"signal {-process.returncode}"
        raise UnmutatedError(f"pytest ended with exit status {process.returncode}: {output[-500:]}")


def own_tests(module: str) -> str:
    """Return the test file of a module."""
    path = Path(module)
    return str("tests" / path.parent / f"test_{path.name}")


def tried(
    copy: TreeCopy, module: str, mutants: Sequence[Mutant], own_only: bool = False
) -> list[Outcome]:
    """Run the module's test file on each mutant; on those that survive, the folder's other tests.

    A module without a test file of its name has the others. With `own_only`, the others are not
    run. UnmutatedError: a test fails without a mutant, or there is nothing to run.
    """
    source = (copy.folder / module).read_bytes()
    own = own_tests(module)
    folder = (copy.folder / own).parent
    others = sorted(str(path.relative_to(copy.folder)) for path in folder.glob("test_*.py"))
    has_own = own in others
    if has_own:
        others.remove(own)
    elif own_only:
        raise UnmutatedError(f"{module} has no test file of its own: {own}")
    killed: dict[Mutant, str] = {}
    for tests in ([own] if has_own else [], [] if own_only else others):
        left = [mutant for mutant in mutants if mutant not in killed]
        if left and tests:
            killed |= dict(_kills(copy, module, left, tests))
            copy.write(module, source)
    return [Outcome(mutant, killed.get(mutant)) for mutant in mutants]


def _kills(
    copy: TreeCopy, module: str, mutants: Sequence[Mutant], tests: Sequence[str]
) -> Iterator[tuple[Mutant, str]]:
    source = (copy.folder / module).read_bytes()
    start = time.monotonic()
    if failed := copy.failure(tests):
        raise UnmutatedError(f"{module}: {failed} fails without a mutant")
    limit = _SLACK + _FACTOR * (time.monotonic() - start)
    for mutant in mutants:
        copy.write(module, mutant.planted(source))
        if failed := copy.failure(tests, limit):
            yield mutant, failed


def _files(root: Path) -> Iterator[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    for name in listed.split("\0"):
        if name and os.path.lexists(root / name):  # it may be deleted, and not yet committed
            yield name


def _end(process: subprocess.Popen[str]) -> None:
    """End what the tests have started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
