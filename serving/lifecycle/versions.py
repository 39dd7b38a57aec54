"""The versions of one model: the state of each and its next transition."""

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


MAX_ENDED = 100  # limit of the ended versions in a status


class Closable(Protocol):
    """A loaded version. Closing it releases its memory."""

    def close(self) -> None:
        """Release all resources."""


Servable = TypeVar("Servable", bound=Closable)


@dataclass(eq=False)
class Version(Generic[Servable]):
    """A version that is being loaded, served or unloaded."""

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
        """The current status."""
        return VersionStatus(self.number, self.state, self.code, self.message)

    @property
    def retried(self) -> bool:
        """Whether loading failed and will be retried."""
        return self.state == LOADING and self.code != "OK"

    @property
    def waiting(self) -> bool:
        """Whether it waits to be loaded or for a retry."""
        return self.state == START or (self.state == LOADING and not self.in_hand)


@dataclass(eq=False)
class Model(Generic[Servable]):
    """A model: its settings, the versions to serve, and the last status of those that ended."""

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
        """Set the versions to serve. Forget failures of all others, so that they can be retried."""
        self.wanted = dict(versions)
        self.failed = {number: folder for number, folder in self.failed.items()
                       if self.wanted.get(number) == folder}  # fmt: skip

    def take(self, version_folders: VersionFolders, unreachable: str) -> list[str]:
        """Apply the result of a poll of the disk, or its error; return the new warnings.

        Versions stay unchanged if the folder is unreadable.
        """
        self.polled, self.unreachable = True, unreachable
        if self.listed and not unreachable:
            self.want(version_folders.versions)
        before = self.warnings
        self.warnings = (*version_folders.warnings, *self._moved(), *filter(None, [unreachable]))
        return [text for text in self.warnings if text not in before]

    def unlist(self) -> None:
        """Mark the model as removed from the configuration."""
        self.listed = False
        self.want({})

    @property
    def latest(self) -> Version[Servable] | None:
        """The available version with the highest number."""
        available = (item for item in self.live.values() if item.state == AVAILABLE)
        return max(available, key=lambda version: version.number, default=None)

    def missing(self) -> list[int]:
        """Return the versions to serve that have not started."""
        return sorted(self.wanted.keys() - self.live.keys() - self.failed.keys())

    def abandoned(self) -> list[Version[Servable]]:
        """Return the waiting versions that are no longer to be served, or have another folder."""
        return [item for item in self.live.values()
                if item.waiting and self.wanted.get(item.number) != item.folder]  # fmt: skip

    def superfluous(self) -> list[Version[Servable]]:
        """Return the available versions that can be unloaded, lowest number first.

        The last unwanted version stays until a wanted one is available.
        """
        numbers = sorted(item.number for item in self.live.values() if item.state == AVAILABLE)
        unwanted = [self.live[number] for number in numbers if number not in self.wanted]
        replaced = not self.wanted or len(unwanted) < len(numbers)
        return unwanted if replaced else unwanted[:-1]

    def to_load(self) -> list[Version[Servable]]:
        """Return the versions that wait to be loaded, highest number first."""
        return [self.live[number] for number in sorted(self.live, reverse=True)
                if self.live[number].waiting]  # fmt: skip

    def end(self, version: Version[Servable]) -> None:
        """Move a version to those that ended. A failed one stays so while it is to be served."""
        version.state = END
        del self.live[version.number]
        if version.code != "OK" and self.wanted.get(version.number) == version.folder:
            self.failed[version.number] = version.folder
        self.ended.pop(version.number, None)
        self.ended[version.number] = version.status
        if len(self.ended) > MAX_ENDED:
            del self.ended[next(iter(self.ended))]

    def statuses(self) -> list[VersionStatus]:
        """Return the status of each version, in ascending order of their numbers."""
        live = {number: version.status for number, version in self.live.items()}
        return [status for _, status in sorted({**self.ended, **live}.items())]

    @property
    def settled(self) -> bool:
        """Whether every version to serve is available or has failed, even if it will be retried."""
        return self.polled and all(
            number in self.failed
            or (number in self.live and (self._is_available(number) or self.live[number].retried))
            for number in self.wanted
        )

    @property
    def trouble(self) -> ServingError | None:
        """Why the model is not served as configured; None if it is.

        Under policy `specific` all versions must be available, otherwise one is enough.
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
        """Return a warning for each version whose folder has changed: it is not loaded again."""
        return [
            f"version {number} of {self.settings.name} was loaded from {live.folder} and is not "
            f"reloaded from {self.wanted[number]}; give a new model a new number"
            for number, live in self.live.items()
            if self.wanted.get(number, live.folder) != live.folder
        ]

    def _is_available(self, number: int) -> bool:
        return number in self.live and self.live[number].state == AVAILABLE


def next_to_load(
    models: Iterable[Model[Servable]], now: float
) -> tuple[Model[Servable], Version[Servable]] | None:
    """Return the version to load first; its retry may be due later than now.

    Versions with fewer attempts come first. None: no version waits.
    """
    waiting = [(model, version) for model in models for version in model.to_load()]
    return min(waiting, key=lambda pair: (max(pair[1].due, now), pair[1].attempts), default=None)


def failure(error: Exception) -> tuple[str, str]:
    """Return the status code and the message of an exception during loading."""
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
    logger.error("loading a version failed with an unexpected error", exc_info=error)
    return "INTERNAL", f"{type(error).__name__}: {error}"
