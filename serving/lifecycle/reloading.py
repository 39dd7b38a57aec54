"""Checks and applies a new list of models, and reports models that could not be served."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from deploykit.serving.lifecycle.model_config import TENSORFLOW, ModelSettings
from deploykit.serving.lifecycle.versions import MAX_ENDED, Model, Servable
from deploykit.serving.protocol.errors import ServingError, refused
from deploykit.serving.protocol.versions import AVAILABLE


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
    _forget_some(models)
    return gone, fresh


def _forget_some(models: dict[str, Model[Servable]]) -> None:
    """Drop the models that ended first: a status lists at most `MAX_ENDED` of them."""
    over = [name for name, model in models.items() if not (model.listed or model.live)]
    for name in over[: max(0, len(over) - MAX_ENDED)]:
        del models[name]


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
