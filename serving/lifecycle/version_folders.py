"""Lists the versions of a model on disk and selects those that its policy serves."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from deploykit.serving.protocol.versions import number_of
from deploykit.transforms.common.errors import FileError


@dataclass(frozen=True)
class Latest:
    """Serve the versions with the highest numbers."""

    num_versions: int = 1


@dataclass(frozen=True)
class All:
    """Serve every version."""


@dataclass(frozen=True)
class Specific:
    """Serve these versions if they exist."""

    versions: tuple[int, ...]


Policy = Latest | All | Specific


@dataclass(frozen=True)
class VersionFolders:
    """The folders of the selected versions by number, and warnings for the log."""

    versions: Mapping[int, Path]
    warnings: tuple[str, ...] = ()


def find_versions(base_path: Path, policy: Policy) -> VersionFolders:
    """Return the versions under a base path that a policy selects.

    A version is a folder whose whole name is an int64: `00000123` is 123. Other names, such as
    hidden ones, are ignored, so a version appears once its folder is renamed to a number.
    FileError: the base path cannot be listed; its versions are then unknown.
    """
    try:
        with os.scandir(base_path) as entries:
            names = sorted(entry.name for entry in entries if number_of(entry.name) is not None)
    except (OSError, ValueError) as error:  # os.scandir raises ValueError for a path with a NUL
        reason = getattr(error, "strerror", None) or error
        raise FileError("base-path-expected", source=base_path, reason=reason) from None
    there, warnings = _by_number(base_path, names)
    if not there:
        warnings.append(
            f"{base_path}: it contains no version, expected folders whose names are numbers, as in "
            f"{base_path / '1'}"
        )
    expected = _wanted(there, policy)
    if isinstance(policy, Specific):
        warnings += _missing(base_path, expected, policy)
    return VersionFolders({number: there[number] for number in expected}, tuple(warnings))


def _by_number(base_path: Path, names: Iterable[str]) -> tuple[dict[int, Path], list[str]]:
    """Return folders by number. Of two names for one number the last is used: `1` before `01`."""
    there: dict[int, Path] = {}
    warnings = []
    for name in names:
        number = number_of(name)
        if number is None:
            continue
        if not os.path.isdir(base_path / name):  # never raises
            warnings.append(f"{base_path / name}: not a folder, so it is ignored")
            continue
        if number in there:
            warnings.append(
                f"{there[number]}: it is ignored, as {base_path / name} is version {number} too"
            )
        there[number] = base_path / name
    return there, warnings


def _wanted(there: Mapping[int, Path], policy: Policy) -> list[int]:
    match policy:
        case Latest(num_versions):
            return sorted(there)[-max(num_versions, 1) :]
        case Specific(versions):
            return sorted(there.keys() & set(versions))
        case All():
            return sorted(there)


def _missing(base_path: Path, expected: Iterable[int], policy: Specific) -> list[str]:
    if not policy.versions:
        return [f"{base_path}: the policy names no specific versions, so none is served"]
    missing = sorted(set(policy.versions) - set(expected))
    return [f"{base_path}: it contains no version {number}, which the policy names"
            for number in missing]  # fmt: skip
