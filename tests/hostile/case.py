"""A hostile file: how it is made, how each command that opens it shall end, what shall be named."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Statuses:
    """The exit statuses that are right."""

    others: tuple[int, ...]
    commands: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Of commands with others than the rest."""

    def of(self, command: str) -> tuple[int, ...]:
        """Return those of a command."""
        return dict(self.commands).get(command, self.others)


def statuses(*others: int, **commands: int | tuple[int, ...]) -> Statuses:
    """Return the right exit statuses: `others`, but for the commands that are named."""
    each = (
        (name, (value,) if isinstance(value, int) else value) for name, value in commands.items()
    )
    return Statuses(others, tuple(each))


BAD = statuses(2)
"""What is in the file cannot be: every command says so."""
DAMAGED = statuses(2, serve=(0, 2))
"""Likewise; a server of one bad model says so, and waits for a better version."""
ODD = statuses(0, 2)
"""Some may take it and some not, for good reasons; nothing else may happen."""
UNREAD = statuses(2, check=(0, 2), inspect=(0, 2), serve=(0, 2))
"""Only who reads the values of variables finds it."""
HARMLESS = statuses(0)
"""Nothing is wrong with it: the checks must not be stricter than TensorFlow."""
EFFECT = statuses(3, check=3, inspect=0, diff=(0, 3), label=(2, 3), serve=(0, 3))
"""It would act on files, the network or the process: only `inspect` and `check` go on."""
UNPROVED = statuses(0, 2, 5, 6)
"""It may load, but nothing can be proved of it."""


@dataclass(frozen=True)
class Case:
    """One hostile file or folder."""

    kind: str
    """The class: what it attacks."""
    name: str
    make: Callable[[Path], object]
    """Writes it into an empty folder; returns the path to name on the command line, if not the
    only thing there."""
    opened_as: str = "model"
    """Which commands open it: a key of `tests.hostile.commands.COMMANDS`."""
    right: Statuses = BAD
    culprit: tuple[str, ...] = ()
    """What is said must hold one of these; empty: the file's own name."""
    heavy: bool = False
    """Takes long or much memory where the defence fails: left out of the quick part."""

    @property
    def id(self) -> str:
        """The case's name among all."""
        return f"{self.kind}/{self.name}"


def written(folder: Path, name: str, content: bytes | str) -> Path:
    """Write a file; return its path."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def canary(folder: Path) -> Path:
    """Return the path of a file that appears only if something inside the case was run."""
    return folder.parent / "canary" / "written"
