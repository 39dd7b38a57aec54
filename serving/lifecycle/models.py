"""Loads and unloads the versions of the served models as folders change on disk.

One thread polls the disk, one loads and one closes versions. They share a lock but do not hold it
during that work, so no request waits for them.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Generic

from deploykit.serving.lifecycle.lookup import Changes, check, find, raise_trouble, statuses, take
from deploykit.serving.lifecycle.model_config import ModelSettings
from deploykit.serving.lifecycle.version_folders import VersionFolders, find_versions
from deploykit.serving.lifecycle.versions import Model, Servable, Version, failure, next_to_load
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.versions import AVAILABLE, LOADING, UNLOADING, VersionStatus
from deploykit.transforms.common.errors import FileError

logger = logging.getLogger("deploykit")


class Models(Generic[Servable]):
    """Models by name. Their versions are loaded and closed according to policies and folders."""

    def __init__(
        self,
        load: Callable[[str, int, Path], Servable],
        *,
        poll_seconds: float = 1.0,
        retries: int = 5,
        retry_seconds: float = 60.0,
        early_labels: bool = False,
        on_change: Callable[[str, VersionStatus], None] = lambda name, status: None,
    ) -> None:
        """Start without models; `configure` adds them.

        Args:
            load: returns the servable of a version after warm-up.
            poll_seconds: interval of listing the folders; 0: only `configure` and `poll` list them.
            retries: number of further attempts to load a version before it fails.
            retry_seconds: delay before each retry.
            early_labels: accept new labels of versions that are not available yet.
            on_change: is called with each new state and each failure of a version, in order. It
                runs outside the lock and must not call `configure`, `poll` or `close`.
        """
        self._load = load
        self._retries = retries
        self._retry_seconds = retry_seconds
        self._early_labels = early_labels
        self._changes = Changes(on_change)
        self._models: dict[str, Model[Servable]] = {}
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._polling = threading.Lock()  # during changes of settings and listing of folders
        self._unloading: queue.SimpleQueue[tuple[Model[Servable], Version[Servable]] | None] = (
            queue.SimpleQueue()
        )
        self._closed = False
        self._stop = threading.Event()
        loops = [self._load_versions, self._close_versions]
        if poll_seconds > 0:
            loops.append(lambda: self._poll_every(poll_seconds))
        self._threads = [threading.Thread(target=loop, daemon=True) for loop in loops]
        for thread in self._threads:
            thread.start()

    @contextmanager
    def using(self, name: str, version: int | None = None, label: str = "") -> Iterator[Servable]:
        """Use a version, which is not closed before the block ends.

        Without version and label, it is the available version with the highest number.
        ServingError: the version does not exist or is not available.
        """
        with self._lock:
            if self._closed:
                raise _shutting_down()
            held = find(self._models, name, version, label)
            held.calls += 1
            servable = held.servable
        assert servable is not None
        try:
            yield servable
        finally:
            with self._lock:
                held.calls -= 1
                if held.state == UNLOADING and not held.calls:
                    self._unloading.put((self._models[name], held))

    def status(self, name: str, version: int | None = None, label: str = "") -> list[VersionStatus]:
        """Return the status of each version, or of the requested one. ServingError: none exists."""
        with self._lock:
            return statuses(self._models, name, version, label)

    def has(self, name: str) -> bool:
        """Return whether a model of that name is configured. It takes no lock."""
        model = self._models.get(name)
        return model is not None and model.listed

    @property
    def names(self) -> list[str]:
        """The names of the configured models."""
        with self._lock:
            return [name for name, model in self._models.items() if model.listed]

    @property
    def ready(self) -> bool:
        """Whether each configured model has an available version."""
        with self._lock:
            listed = [model for model in self._models.values() if model.listed]
            return not self._closed and all(model.latest is not None for model in listed)

    def configure(self, settings: Sequence[ModelSettings], seconds: float | None = None) -> None:
        """Serve exactly these models; return when they are loaded or have failed.

        It waits at most `seconds`, and only for new or changed models. ServingError: the settings
        are rejected without effect; or they apply, but a model could not be loaded or is still
        loading.
        """
        with self._polling:
            with self._lock:
                if self._closed:
                    raise _shutting_down()
                check(self._models, settings, self._early_labels)
                gone, fresh = take(self._models, settings)
                for model in gone:
                    self._advance(model)
            self._poll()
        with self._lock:
            settled = self._changed.wait_for(
                lambda: self._closed or all(model.settled for model in fresh), seconds
            )
        self._changes.tell()
        with self._lock:
            if self._closed:
                raise _shutting_down()
            if not settled:
                raise ServingError("DEADLINE_EXCEEDED", "models-being-loaded")
            raise_trouble(model for model in fresh if model.listed)

    def poll(self) -> None:
        """List the folders of all models, and start the resulting changes."""
        with self._polling:
            self._poll()

    def close(self, seconds: float | None = None) -> bool:
        """Reject new requests, close each version after its last one; return whether all are.

        Versions still in use after `seconds` stay open.
        """
        self._stop.set()
        with self._lock:
            self._closed = True
            for model in self._models.values():
                model.unlist()
                self._advance(model)
            self._changed.notify_all()  # without models `_advance` has not notified
        self._changes.tell()
        with self._lock:
            done = self._changed.wait_for(
                lambda: not any(model.live for model in self._models.values()), seconds
            )
        self._changes.tell()
        if done:
            self._unloading.put(None)
            for thread in self._threads[:2]:  # the polling thread may hang in a file system
                thread.join()
        return done

    # The following methods are called with the lock held.

    def _advance(self, model: Model[Servable]) -> None:
        """Make every transition that a model is ready for, and notify the other threads."""
        for version in model.abandoned():
            self._end(model, version)
        for version in model.superfluous():
            self._enter(model, version, UNLOADING)
            if not version.calls:
                self._unloading.put((model, version))
        for number in model.missing():
            version = Version(number, model.wanted[number])
            model.live[number] = version
            self._enter(model, version, version.state)
        self._changed.notify_all()

    def _enter(self, model: Model[Servable], version: Version[Servable], state: str) -> None:
        version.state = state
        self._changes.note(model.settings.name, version.status)

    def _end(self, model: Model[Servable], version: Version[Servable]) -> None:
        model.end(version)
        self._changes.note(model.settings.name, version.status)

    # The following methods are called without the lock.

    def _poll_every(self, seconds: float) -> None:
        while not self._stop.wait(seconds):
            try:
                self.poll()
            except Exception:  # the next poll may succeed, and this is the only thread that polls
                logger.exception("listing the folders of models failed")

    def _poll(self) -> None:
        with self._lock:
            listed = [model for model in self._models.values() if model.listed]
        for model in listed:
            self._poll_model(model)
        self._changes.tell()

    def _poll_model(self, model: Model[Servable]) -> None:
        settings = model.settings
        version_folders = VersionFolders({})
        unreachable = ""
        try:
            version_folders = find_versions(settings.base_path, settings.policy)
        except FileError as error:
            unreachable = (f"Could not find base path {settings.base_path} for servable "
                           f"{settings.name} with error {error}")  # fmt: skip
        with self._lock:
            new = model.take(version_folders, unreachable)
            self._advance(model)
        for text in new:
            logger.warning("%s", text)

    def _load_versions(self) -> None:
        while True:
            with self._lock:
                now = time.monotonic()
                job = next_to_load(self._models.values(), now)
                if job is None or job[1].due > now:
                    if self._closed:
                        return
                    self._changed.wait(None if job is None else job[1].due - now)
                    continue
                model, version = job
                version.attempts += 1
                version.in_hand = True
                self._enter(model, version, LOADING)
            self._changes.tell()
            self._load_version(model, version)
            del job, model, version  # would keep a closed version in memory until the next load
            self._changes.tell()

    def _load_version(self, model: Model[Servable], version: Version[Servable]) -> None:
        servable, code, message = None, "OK", ""
        try:
            servable = self._load(model.settings.name, version.number, version.folder)
        except Exception as error:
            code, message = failure(error)
        with self._lock:
            version.in_hand = False
            version.code, version.message, version.servable = code, message, servable
            if servable is not None:
                self._enter(model, version, AVAILABLE)
            elif version.attempts > self._retries:
                self._end(model, version)
            else:
                version.due = time.monotonic() + self._retry_seconds
                self._enter(model, version, LOADING)
            self._advance(model)

    def _close_versions(self) -> None:
        for model, version in iter(self._unloading.get, None):
            try:
                assert version.servable is not None
                version.servable.close()
            except Exception:
                logger.exception("closing version %d failed", version.number)
            version.servable = None
            with self._lock:
                self._end(model, version)
                self._advance(model)
            self._changes.tell()


def _shutting_down() -> ServingError:
    return ServingError("UNAVAILABLE", "server-shuts-down")
