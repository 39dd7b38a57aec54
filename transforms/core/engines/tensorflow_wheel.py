"""Which wheel brought the TensorFlow that Python would import, found without importing it.

`tensorflow`, `tensorflow-cpu`, `tensorflow-rocm`, `tf-nightly` and others all bring the package
`tensorflow`, so the distribution's name says nothing about the package.
"""

import functools
import importlib.util
import re
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

PACKAGE = "tensorflow"
_NUMBER = re.compile(r"#define TF_(?:MAJOR|MINOR|PATCH)_VERSION (\d+)")


@dataclass(frozen=True)
class Wheel:
    """An installed distribution: its name as pip knows it, and its version."""

    name: str
    version: str

    @property
    def numbers(self) -> tuple[int, int]:
        """The first two numbers of the version, by which TensorFlow's releases are compared."""
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
    """Return the distribution that lists the package; of several over one folder, the newest."""
    found = sorted(
        (
            listing.parent
            for listing in folder.parent.glob("*.dist-info/top_level.txt")
            if PACKAGE in listing.read_text(errors="replace").split()
        ),
        key=lambda each: each.stat().st_mtime,
    )
    if not found:  # built from source into this folder: the headers name the version
        header = folder / "include/tensorflow/core/public/version.h"
        numbers = _NUMBER.findall(header.read_text()) if header.exists() else ()
        return Wheel(PACKAGE, ".".join(numbers) or "0.0")
    wheel = metadata.Distribution.at(found[-1])
    return Wheel(wheel.metadata["Name"], wheel.version)
