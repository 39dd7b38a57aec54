"""Optional packages and the extras that install them, and the installed TensorFlow wheel."""

import functools
import importlib.util
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from deploykit.transforms.common.errors import MissingPackageError

PACKAGE = "tensorflow"
_NUMBER = re.compile(r"#define TF_(?:MAJOR|MINOR|PATCH)_VERSION (\d+)")


@dataclass(frozen=True)
class Wheel:
    """An installed distribution: its name as pip knows it, and its version."""

    name: str
    version: str

    @property
    def numbers(self) -> tuple[int, int]:
        """Major and minor version, by which TensorFlow's releases are compared."""
        major, minor = re.findall(r"\d+", self.version)[:2]
        return int(major), int(minor)


def tensorflow_wheel() -> Wheel | None:
    """Return the wheel of the installed TensorFlow; None: TensorFlow is not installed."""
    return None if (folder := package_folder()) is None else _wheel_in(folder)


def package_folder() -> Path | None:
    """Return the folder of the package `tensorflow` that Python would import, or None."""
    module = sys.modules.get(PACKAGE)
    if module is not None and module.__file__:
        return Path(module.__file__).parent
    spec = importlib.util.find_spec(PACKAGE)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


@functools.cache
def _wheel_in(folder: Path) -> Wheel:
    """Return the distribution of the package; of several in one folder, the newest."""
    parents = sorted(
        (
            listing.parent
            for listing in folder.parent.glob("*.dist-info/top_level.txt")
            if PACKAGE in listing.read_text(errors="replace").split()
        ),
        key=lambda item: item.stat().st_mtime,
    )
    if not parents:  # built from source in this folder: the headers contain the version
        header = folder / "include/tensorflow/core/public/version.h"
        numbers = _NUMBER.findall(header.read_text()) if header.exists() else ()
        return Wheel(PACKAGE, ".".join(numbers) or "0.0")
    from importlib import metadata  # slow to import, and only needed here

    wheel = metadata.Distribution.at(parents[-1])
    return Wheel(wheel.metadata["Name"], wheel.version)


_EXTRAS = {
    "keras": ("TensorFlow", "tf"),
    "matplotlib": ("Matplotlib", "report"),
    "openvino": ("OpenVINO", "openvino"),
    "pyarrow": ("PyArrow", "parquet"),
    "pynvml": ("nvidia-ml-py", "cuda"),
    "ray": ("Ray", "ray"),
    "tensorflow": ("TensorFlow", "tf"),
    "tf_keras": ("Keras 2 (tf_keras)", "keras2"),
}
"""By module: its display name, and the extra."""


def is_installed(module: str) -> bool:
    """Return whether a package can be imported, without importing it."""
    return importlib.util.find_spec(module) is not None


def installed_extras() -> dict[str, bool]:
    """Return for each extra whether all its packages can be imported."""
    results: dict[str, bool] = {}
    for module, (_, extra) in _EXTRAS.items():
        results[extra] = results.get(extra, True) and is_installed(module)
    return dict(sorted(results.items()))


def missing(module: str) -> MissingPackageError:
    """Return the error about a missing package, which states how to install it."""
    title, extra = _EXTRAS[module]
    return MissingPackageError("package-missing", title=title, extra=extra)


def how_to_install(module: str) -> str:
    """Return a sentence about a missing package."""
    return str(missing(module))


def require(*modules: str) -> None:
    """Raise MissingPackageError for the first package that is not installed."""
    for module in modules:
        if not is_installed(module):
            raise missing(module)


def missing_package(error: ImportError) -> MissingPackageError | None:
    """Return the error for a failed import of an optional package, or None for another import."""
    module = (error.name or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or module not in _EXTRAS:
        return None
    return missing(module)
