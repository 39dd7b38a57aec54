"""Resolves the version of a request, applies new lists of models, and reports changes of state."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from deploykit.serving.lifecycle.model_config import TENSORFLOW, ModelSettings
from deploykit.serving.lifecycle.versions import MAX_ENDED, Model, Servable, Version
from deploykit.serving.protocol.errors import SERVED_HERE, ServingError, refused
from deploykit.serving.protocol.versions import AVAILABLE, VersionStatus

logger = logging.getLogger("deploykit")


class Changes:
    """A queue of state changes that are not reported yet."""

    def __init__(self, listener: Callable[[str, VersionStatus], None]) -> None:
        """Store the listener."""
        self._listener = listener
        self._noted: deque[tuple[str, VersionStatus]] = deque()
        self._telling = threading.Lock()

    def note(self, name: str, status: VersionStatus) -> None:
        """Add a change of a model's version to the queue."""
        self._noted.append((name, status))

    def tell(self) -> None:
        """Report all queued changes before returning; exceptions of the listener are logged."""
        with self._telling:
            while self._noted:
                name, status = self._noted.popleft()
                try:
                    self._listener(name, status)
                except Exception:
                    logger.exception("reporting version %d of %s failed", status.version, name)


_MAX_NAMED = 20


def find(
    models: Mapping[str, Model[Servable]], name: str, version: int | None, label: str
) -> Version[Servable]:
    """Return the available version with this number or label, or the highest one.

    The name is only a key of `models`, never a path. ServingError: no such version is available.
    """
    model = models.get(name)
    version = _labelled(model, label) if label else _named(model, version)
    if version is None:
        value = model.latest if model else None
    else:
        value = model.live.get(version) if model else None
    if value is None or value.state != AVAILABLE:
        what = f"Latest({name})" if version is None else f"Specific({name}, {version})"
        raise ServingError("NOT_FOUND", "servable-missing", what=what, served=_served(models, name))
    return value


def statuses(
    models: Mapping[str, Model[Servable]], name: str, version: int | None, label: str
) -> list[VersionStatus]:
    """Return the status of each version, or of the requested one. ServingError: there are none."""
    model = models.get(name)
    version = _labelled(model, label) if label else _named(model, version)
    results = [status for status in (model.statuses() if model else ())
             if version is None or status.version == version]  # fmt: skip
    if not results:
        what = "any versions" if version is None else f"version {version}"
        raise ServingError(
            "NOT_FOUND",
            "model-version-missing",
            what=what,
            model=name,
            served=_served(models, name),
        )
    return results


def _named(model: Model[Servable] | None, version: int | None) -> int | None:
    """Return the version of a request. Clients may send 0 for "no version"."""
    return version or (0 if version == 0 and model and 0 in model.live else None)


def _labelled(model: Model[Servable] | None, label: str) -> int:
    labels = model.settings.labels if model and model.listed else {}
    if label not in labels:
        raise refused("version-label-unknown", label=label)
    return labels[label]


def _served(models: Mapping[str, Model[Servable]], name: str) -> str:
    """Return what is available instead: the versions of that model, or the models."""
    model = models.get(name)
    if model is not None and model.listed:
        available = sorted(n for n, item in model.live.items() if item.state == AVAILABLE)
        kind, known = f"versions of {name}", [str(number) for number in available]
    else:
        kind, known = "models", sorted(item for item, model in models.items() if model.listed)
    more = [f"and {len(known) - _MAX_NAMED} more"] if len(known) > _MAX_NAMED else []
    return f"{kind} {SERVED_HERE}: {', '.join(known[:_MAX_NAMED] + more) or 'none'}"


def check(
    models: Mapping[str, Model[Any]], settings: Sequence[ModelSettings], early_labels: bool
) -> None:
    """Raise ServingError if TensorFlow Serving would refuse to change to these settings."""
    names: set[str] = set()
    for setting in settings:
        if setting.name in names:
            raise refused("config-model-twice", name=setting.name)
        names.add(setting.name)
    for setting in settings:
        model = models.get(setting.name)
        if model and model.listed and model.settings.platform != setting.platform:
            raise refused(
                "config-platform-changed",
                name=setting.name,
                platform=model.settings.platform,
                new=setting.platform,
            )
        if setting.platform != TENSORFLOW:
            raise refused(
                "config-platform-unsupported", name=setting.name, platform=setting.platform
            )
        _check_labels(model, setting, early_labels)


def take(
    models: dict[str, Model[Servable]], settings: Sequence[ModelSettings]
) -> tuple[list[Model[Servable]], list[Model[Servable]]]:
    """Apply settings; return the models removed, and those added or with a new path or policy."""
    given = {setting.name: setting for setting in settings}
    gone = [model for name, model in models.items() if model.listed and name not in given]
    for model in gone:
        model.unlist()
    fresh = []
    for name, new in given.items():
        model = models.setdefault(name, Model(new, listed=False))
        old = model.settings
        if not model.listed or (old.base_path, old.policy) != (new.base_path, new.policy):
            model.polled = False
            fresh.append(model)
        model.settings, model.listed = new, True
    # A status lists at most `MAX_ENDED` ended models; those that ended first are dropped.
    over = [name for name, model in models.items() if not (model.listed or model.live)]
    for name in over[: max(0, len(over) - MAX_ENDED)]:
        del models[name]
    return gone, fresh


def raise_trouble(models: Iterable[Model[Any]]) -> None:
    """Raise ServingError, with the first one's code, if models are not served as configured."""
    troubles = [(model.settings.name, trouble) for model in models if (trouble := model.trouble)]
    if troubles:
        reported = ", ".join(f"{name}: {trouble.status}: {trouble}" for name, trouble in troubles)
        raise ServingError(
            troubles[0][1].status, "models-unavailable", count=len(troubles), reported=reported
        )


def _check_labels(model: Model[Any] | None, new: ModelSettings, early: bool) -> None:
    """Reject labels of unavailable versions; `early` allows new labels for them."""
    old = model.settings.labels if model and model.listed else {}
    for label, number in new.labels.items():
        version = model.live.get(number) if model else None
        if early and old.get(label, number) == number:
            continue
        if version is None or version.state != AVAILABLE:
            raise ServingError(
                "FAILED_PRECONDITION", "label-version-unavailable", number=number, model=new.name
            )
