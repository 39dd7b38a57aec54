"""Which version a request means, and the words for what there is not."""

from collections.abc import Mapping

from deploykit.serving.lifecycle.versions import Model, Servable, Version
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.version_status import AVAILABLE, VersionStatus


def find(
    models: Mapping[str, Model[Servable]], name: str, version: int | None, label: str
) -> Version[Servable]:
    """Return an available version: the one named or labelled, or the highest. ServingError: none.

    A name is only ever looked up among the models, never used as a path.
    """
    model = models.get(name)
    if label:
        version = _labelled(model, label)
    if version is None:
        found = model.latest if model else None
    else:
        found = model.live.get(version) if model else None
    if found is None or found.state != AVAILABLE:
        what = f"Latest({name})" if version is None else f"Specific({name}, {version})"
        raise ServingError("NOT_FOUND", f"Servable not found for request: {what}")
    return found


def statuses(
    models: Mapping[str, Model[Servable]], name: str, version: int | None, label: str
) -> list[VersionStatus]:
    """Return how the versions of a model fare, or the one asked for. ServingError: none."""
    model = models.get(name)
    if label:
        version = _labelled(model, label)
    found = [each for each in (model.statuses() if model else ())
             if version is None or each.version == version]  # fmt: skip
    if not found:
        what = "any versions" if version is None else f"version {version}"
        raise ServingError("NOT_FOUND", f"Could not find {what} of model {name}")
    return found


def _labelled(model: Model[Servable] | None, label: str) -> int:
    labels = model.settings.labels if model and model.listed else {}
    if label not in labels:
        raise ServingError("INVALID_ARGUMENT", f"Unrecognized servable version label: {label}")
    return labels[label]
