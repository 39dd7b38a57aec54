"""The models that are served: versions come and go by what lies on disk, while calls go on.

One thread looks at the disk, one loads, one closes; they share one lock, which nobody holds while
any of that is done, so no call ever waits for them.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Generic

from deploykit.serving.lifecycle.lookup import Changes, find, statuses
from deploykit.serving.lifecycle.model_config import ModelSettings
from deploykit.serving.lifecycle.reloading import check, raise_trouble, take
from deploykit.serving.lifecycle.version_folders import VersionFolders, find_versions
from deploykit.serving.lifecycle.versions import Model, Servable, Version, failure, next_to_load
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.versions import AVAILABLE, LOADING, UNLOADING, VersionStatus
from deploykit.transforms.common.errors import FileError

logger = logging.getLogger("deploykit")


class Models(Generic[Servable]):
    """Models by name, their versions loaded and closed as policies and folders say."""

    def __init__(
        self,
        load: Callable[[str, int, Path], Servable],
        *,
        poll_seconds: float = 1.0,
        retries: int = 5,
        retry_seconds: float = 60.0,
        always_present: bool = False,
        early_labels: bool = False,
        on_change: Callable[[str, VersionStatus], None] = lambda name, status: None,
    ) -> None:
        """Start with no models; `configure` names them.

        Args:
            load: returns what serves a version, ready to answer at once: it warms up, too.
            poll_seconds: how often folders are listed; 0: by `configure` and `poll` alone.
            retries: how often loading is tried again before a version is given up.
            retry_seconds: how long to wait before that.
            always_present: keep what is served when a base path holds no version any more.
            early_labels: take new labels of versions that are not available yet.
            on_change: is told each new state of a version, in their order, and each failure; it
                runs outside the lock and calls neither `configure`, `poll` nor `close`.
        """
        self._load = load
        self._retries = retries
        self._retry_seconds = retry_seconds
        self._always_present = always_present
        self._early_labels = early_labels
        self._changes = Changes(on_change)
        self._models: dict[str, Model[Servable]] = {}
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._polling = threading.Lock()  # held while settings change and folders are listed
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
        """Hold a version, so that it is not closed before the block ends.

        Without version and label, it is the available version with the highest number.
        ServingError: there is no such version, or it is not available.
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
        """Return how the versions of a model fare, or the one asked for. ServingError: none."""
        with self._lock:
            return statuses(self._models, name, version, label)

    def has(self, name: str) -> bool:
        """Say whether a model of that name is configured; it waits for nobody."""
        model = self._models.get(name)
        return model is not None and model.listed

    @property
    def names(self) -> list[str]:
        """The models that are configured."""
        with self._lock:
            return [name for name, model in self._models.items() if model.listed]

    @property
    def ready(self) -> bool:
        """Whether each configured model has an available version."""
        with self._lock:
            listed = [model for model in self._models.values() if model.listed]
            return not self._closed and all(model.latest is not None for model in listed)

    def configure(self, settings: Sequence[ModelSettings], seconds: float | None = None) -> None:
        """Serve these models and no others; return when they are, or what could be served of them.

        Only models that are new or changed are waited for, at most `seconds`.
        ServingError: the settings are refused, and nothing changes; or they hold from now on, but
        one of the models could not be loaded, or not yet.
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
        """List the folders of all models, and begin what follows from it."""
        with self._polling:
            self._poll()

    def close(self, seconds: float | None = None) -> bool:
        """Refuse new calls, and close each version after its last call; return whether all are.

        What is not within `seconds` is left to itself.
        """
        self._stop.set()
        with self._lock:
            self._closed = True
            for model in self._models.values():
                model.unlist()
                self._advance(model)
            self._changed.notify_all()  # without models nobody else did
        self._changes.tell()
        with self._lock:
            done = self._changed.wait_for(
                lambda: not any(model.live for model in self._models.values()), seconds
            )
        self._changes.tell()
        if done:
            self._unloading.put(None)
            for thread in self._threads[:2]:  # the one that polls may hang in a file system
                thread.join()
        return done

    # What follows is called with the lock.

    def _advance(self, model: Model[Servable]) -> None:
        """Take every step that a model is ready for, and let the others know."""
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

    # What follows is called without the lock.

    def _poll_every(self, seconds: float) -> None:
        while not self._stop.wait(seconds):
            try:
                self.poll()
            except Exception:  # the next time may be better, and nobody else polls
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
            new = model.take(version_folders, unreachable, self._always_present)
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
            del job, model, version  # else a closed version would be kept until the next one
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
