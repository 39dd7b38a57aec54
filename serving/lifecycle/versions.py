"""The versions of one model: the state of each, and what may happen to it next."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from deploykit.serving.lifecycle.model_config import ModelSettings
from deploykit.serving.lifecycle.version_folders import Specific, VersionFolders
from deploykit.serving.protocol.errors import ServingError, refused
from deploykit.serving.protocol.versions import AVAILABLE, END, LOADING, START, VersionStatus
from deploykit.transforms.common.errors import Error, FileError
from deploykit.transforms.engines.packages import missing_package

logger = logging.getLogger("deploykit")


ENDED_KEPT = 100  # a status lists at most so many versions that ended


class Closable(Protocol):
    """What was loaded; closing it returns its memory."""

    def close(self) -> None:
        """Release everything."""


Servable = TypeVar("Servable", bound=Closable)


@dataclass(eq=False)
class Version(Generic[Servable]):
    """A version that is served, or on its way there or back."""

    number: int
    folder: Path
    state: str = START
    code: str = "OK"
    message: str = ""
    servable: Servable | None = None
    calls: int = 0
    attempts: int = 0
    due: float = 0.0
    in_hand: bool = False

    @property
    def status(self) -> VersionStatus:
        """How it fares now."""
        return VersionStatus(self.number, self.state, self.code, self.message)

    @property
    def retried(self) -> bool:
        """Whether it failed and is tried again."""
        return self.state == LOADING and self.code != "OK"

    @property
    def waiting(self) -> bool:
        """Whether it waits to be loaded, for the first time or again."""
        return self.state == START or (self.state == LOADING and not self.in_hand)


@dataclass(eq=False)
class Model(Generic[Servable]):
    """A model: what is wanted of it, its versions, and the last words of those that ended."""

    settings: ModelSettings
    listed: bool = True
    polled: bool = False
    unreachable: str = ""
    wanted: Mapping[int, Path] = field(default_factory=dict)
    live: dict[int, Version[Servable]] = field(default_factory=dict)
    ended: dict[int, VersionStatus] = field(default_factory=dict)
    failed: dict[int, Path] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def want(self, versions: Mapping[int, Path]) -> None:
        """Take what is wanted; a version that failed may be tried again once it was not."""
        self.wanted = dict(versions)
        self.failed = {number: folder for number, folder in self.failed.items()
                       if self.wanted.get(number) == folder}  # fmt: skip

    def take(
        self, version_folders: VersionFolders, unreachable: str, always_present: bool
    ) -> list[str]:
        """Take what was found on disk, or why nothing could be; return the warnings that are new.

        What cannot be listed stays as it is, and so does what must always be there.
        """
        self.polled, self.unreachable = True, unreachable
        if self.listed and not unreachable and (version_folders.versions or not always_present):
            self.want(version_folders.versions)
        before = self.warnings
        self.warnings = (*version_folders.warnings, *self._moved(), *filter(None, [unreachable]))
        return [text for text in self.warnings if text not in before]

    def unlist(self) -> None:
        """Take that nothing is wanted of it any more."""
        self.listed = False
        self.want({})

    @property
    def latest(self) -> Version[Servable] | None:
        """The available version with the highest number."""
        available = (item for item in self.live.values() if item.state == AVAILABLE)
        return max(available, key=lambda version: version.number, default=None)

    def missing(self) -> list[int]:
        """Return the wanted versions that have not begun."""
        return sorted(self.wanted.keys() - self.live.keys() - self.failed.keys())

    def abandoned(self) -> list[Version[Servable]]:
        """Return the versions that wait to be loaded and are not wanted any more, or elsewhere."""
        return [item for item in self.live.values()
                if item.waiting and self.wanted.get(item.number) != item.folder]  # fmt: skip

    def superfluous(self) -> list[Version[Servable]]:
        """Return the available versions that may go, the lowest first.

        One that is not wanted stays as long as no wanted one is available: it serves meanwhile.
        """
        numbers = sorted(item.number for item in self.live.values() if item.state == AVAILABLE)
        unwanted = [self.live[number] for number in numbers if number not in self.wanted]
        replaced = not self.wanted or len(unwanted) < len(numbers)
        return unwanted if replaced else unwanted[:-1]

    def to_load(self) -> list[Version[Servable]]:
        """Return the versions that wait to be loaded, the highest first."""
        return [self.live[number] for number in sorted(self.live, reverse=True)
                if self.live[number].waiting]  # fmt: skip

    def end(self, version: Version[Servable]) -> None:
        """Move a version to those that ended; one that failed is not begun again while wanted."""
        version.state = END
        del self.live[version.number]
        if version.code != "OK" and self.wanted.get(version.number) == version.folder:
            self.failed[version.number] = version.folder
        self.ended.pop(version.number, None)
        self.ended[version.number] = version.status
        if len(self.ended) > ENDED_KEPT:
            del self.ended[next(iter(self.ended))]

    def statuses(self) -> list[VersionStatus]:
        """Return how each version fares, in the order of their numbers."""
        live = {number: version.status for number, version in self.live.items()}
        return [status for _, status in sorted({**self.ended, **live}.items())]

    @property
    def settled(self) -> bool:
        """Whether every wanted version is available or has failed, be it tried again later."""
        return self.polled and all(
            number in self.failed or self._is_available(number) or self._is_tried_again(number)
            for number in self.wanted
        )

    @property
    def trouble(self) -> ServingError | None:
        """What keeps it from being served as its settings ask; None: nothing.

        Versions that are named must all be available; else one of those that are wanted is enough.
        """
        if self.unreachable:
            return refused("base-path-missing", reason=self.unreachable)
        policy = self.settings.policy
        named = isinstance(policy, Specific)
        requested = policy.versions if isinstance(policy, Specific) else sorted(self.wanted)
        bad = [number for number in requested if not self._is_available(number)]
        if requested and (not bad or (len(bad) < len(requested) and not named)):
            return None
        status = next(
            (status for status in self.statuses() if bad and status.version == bad[-1]), None
        )
        if status is None or status.code == "OK":
            what = f"version {bad[-1]}" if bad else "versions"
            return ServingError(
                "NOT_FOUND", "version-missing", what=what, base_path=self.settings.base_path
            )
        return ServingError(
            status.code, "version-failed", version=status.version, reason=status.message
        )

    def _moved(self) -> list[str]:
        """Return a warning for each version that now lies elsewhere: it is not loaded again."""
        return [
            f"version {number} of {self.settings.name} stays as it was loaded from {live.folder}, "
            f"though it is {self.wanted[number]} now; give a new model a new number"
            for number, live in self.live.items()
            if self.wanted.get(number, live.folder) != live.folder
        ]

    def _is_available(self, number: int) -> bool:
        return number in self.live and self.live[number].state == AVAILABLE

    def _is_tried_again(self, number: int) -> bool:
        return number in self.live and self.live[number].retried


def next_to_load(
    models: Iterable[Model[Servable]], now: float
) -> tuple[Model[Servable], Version[Servable]] | None:
    """Return what is to be loaded first, maybe later than now; what failed often lets others pass.

    None: nothing is.
    """
    waiting = [(model, version) for model in models for version in model.to_load()]
    return min(waiting, key=lambda pair: (max(pair[1].due, now), pair[1].attempts), default=None)


def failure(error: Exception) -> tuple[str, str]:
    """Return the code and the message of what stopped a load."""
    if isinstance(error, ServingError):
        return error.status, error.message
    if isinstance(error, FileError):
        return "NOT_FOUND", str(error)
    if isinstance(error, Error):
        return "FAILED_PRECONDITION", str(error)
    if isinstance(error, MemoryError):
        return "RESOURCE_EXHAUSTED", "There is not enough memory to load it"
    if isinstance(error, ImportError) and (missing := missing_package(error)) is not None:
        return "FAILED_PRECONDITION", str(missing)
    logger.error("loading a version failed in a way nobody foresaw", exc_info=error)
    return "INTERNAL", f"{type(error).__name__}: {error}"
