"""Replica counts in Kubernetes and KServe files, replaced in place."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploykit.exporting.manifests import dns_label
from deploykit.storage.files import write
from deploykit.transforms.common.errors import FileError, GraphError, unknown_name
from deploykit.transforms.untrusted.files import read_bytes

if TYPE_CHECKING:
    import yaml

FILES = ("kubernetes.yaml", "kserve.yaml")
_MIN_CPU, _MAX_CPU = 10, 90  # percent


@dataclass(frozen=True)
class ReplicaCounts:
    """The planned number of replicas of a model."""

    model: str
    least: int
    most: int
    cpu: float
    """The highest allowed CPU utilization of a replica, as a fraction of its cores."""

    @property
    def percent(self) -> int:
        """The CPU utilization, in percent, at which the autoscaler adds a replica."""
        return min(max(int(100 * self.cpu), _MIN_CPU), _MAX_CPU)


def check_manifests(folder: str | os.PathLike[str], model: str) -> None:
    """Raise FileError or GraphError before a long run for files that could not be filled."""
    list(_filled(Path(folder), ReplicaCounts(model, 1, 1, 1.0)))


def fill_manifests(folder: str | os.PathLike[str], counts: ReplicaCounts) -> list[Path]:
    """Write the replica counts into the files of a folder and return their paths.

    A HorizontalPodAutoscaler gets the minimum, maximum and target CPU utilization. A Deployment
    without one gets the minimum; a KServe InferenceService gets minimum and maximum.
    FileError: the folder has no such file, or one cannot be read or written. GraphError: a file
    lacks these fields.
    """
    changed = list(_filled(Path(folder), counts))
    for path, text in changed:
        write(path, [text.encode()], True)
    return [path for path, _ in changed]


def _filled(folder: Path, counts: ReplicaCounts) -> Iterator[tuple[Path, str]]:
    """Yield the existing files and their new text."""
    there = [folder / name for name in FILES if (folder / name).is_file()]
    if not there:
        raise FileError("manifests-missing", source=folder, files=FILES)
    for path in there:
        try:
            text = read_bytes(path).decode()
        except UnicodeDecodeError:
            raise GraphError("not-text", source=path, what="YAML") from None
        yield path, _with_counts(path, text, counts)


def _with_counts(path: Path, text: str, counts: ReplicaCounts) -> str:
    import yaml

    try:
        documents = [item for item in yaml.compose_all(text, yaml.SafeLoader) if item is not None]
    except yaml.YAMLError as error:
        line = " ".join(str(error).split())
        raise GraphError("not-a", source=path, what="YAML", reason=line) from None
    places = _places(path, documents, counts)
    result = text
    for place, value in sorted(places, key=lambda item: item[0].start_mark.index, reverse=True):
        result = result[: place.start_mark.index] + str(value) + result[place.end_mark.index :]
    return result


def _places(
    path: Path, documents: "list[yaml.Node]", counts: ReplicaCounts
) -> "list[tuple[yaml.Node, int]]":
    """Return the YAML nodes of the numbers in a file, with their new values."""
    both = {"minReplicas": counts.least, "maxReplicas": counts.most}
    if path.name == "kserve.yaml":
        services = {
            _name(document): document
            for document in documents
            if _kind(document) == "InferenceService"
        }
        label = dns_label(counts.model)
        if label not in services:
            raise unknown_name("InferenceService", label, services).within(path)
        predictor = _at(services[label], "spec", "predictor")
        return _numbers(path, predictor, both, f"the predictor of {label}")
    for document in documents:
        if _kind(document) == "HorizontalPodAutoscaler":
            places = _numbers(path, _at(document, "spec"), both, "the HorizontalPodAutoscaler")
            return places + [(node, counts.percent) for node in _targets(document)]
    for document in documents:
        if _kind(document) == "Deployment":
            one = {"replicas": counts.least}
            return _numbers(
                path, _at(document, "spec"), one, "the Deployment, without an autoscaler,"
            )
    raise GraphError("replicas-nothing-to-fill", source=path)


def _numbers(
    path: Path, node: "yaml.Node | None", values: Mapping[str, int], what: str
) -> "list[tuple[yaml.Node, int]]":
    results = []
    for name, value in values.items():
        number = _at(node, name)
        if not str(getattr(number, "value", "")).isdecimal():
            raise GraphError("manifest-without-number", source=path, what=what, name=name)
        results.append((number, value))
    return results


def _targets(scaler: "yaml.Node") -> "Iterator[yaml.Node]":
    """Yield the target CPU utilizations of an autoscaler."""
    for metric in getattr(_at(scaler, "spec", "metrics"), "value", ()):
        target = _at(metric, "resource", "target", "averageUtilization")
        if target is not None and _text(_at(metric, "resource", "name")) == "cpu":
            yield target


def _at(node: "yaml.Node | None", *names: str) -> "yaml.Node | None":
    """Return the value at a path of nested mappings, or None."""
    for name in names:
        pairs: Any = getattr(node, "value", ())
        inside = pairs if getattr(node, "id", "") == "mapping" else ()
        node = next((value for key, value in inside if key.value == name), None)
    return node


def _text(node: "yaml.Node | None") -> str:
    return str(getattr(node, "value", ""))


def _kind(document: "yaml.Node") -> str:
    return _text(_at(document, "kind"))


def _name(document: "yaml.Node") -> str:
    return _text(_at(document, "metadata", "name"))
