"""What `deploykit ship` left in a folder, as a server takes it: a model, its name, its settings."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deploykit.benchmarking.results import load_tuned
from deploykit.benchmarking.settings import Settings
from deploykit.hardware.machine import machine
from deploykit.storage.documents import load_document
from deploykit.transforms.core.errors import Error, FileError, GraphError
from deploykit.transforms.core.files.reading import read_json

logger = logging.getLogger("deploykit")

REPORT, TUNED = "report.json", "tuned.json"
_KIND, _FORMAT = "ship", 1
_SPEED = {"cpu": "CPU", "cpus": "CPUs", "cpu_limit": "limit of CPUs"}
"""What of a machine settings are found for, and what it is called."""


@dataclass(frozen=True)
class ShippedFolder:
    """A folder of `deploykit ship`. Nothing of it says where it lies, so it may have moved."""

    folder: Path
    name: str
    """Of the model, and of its folder."""

    @property
    def model(self) -> Path:
        """The folder with the versions of the model."""
        return self.folder / self.name

    @property
    def tuned(self) -> Path | None:
        """The file with what `tune` found; None: there is none."""
        path = self.folder / TUNED
        return path if path.is_file() else None

    def settings(self) -> Settings:
        """Return what `tune` found, without an engine: a version says itself what computes it.

        FileError, GraphError: the file cannot be read; the message says how to do without.
        """
        if self.tuned is None:
            return Settings()
        try:
            return replace(load_tuned(self.tuned), engine=None)
        except GraphError as error:
            raise GraphError(f"{error}; {self._without}") from None
        except FileError as error:
            raise FileError(f"{error}; {self._without}") from None

    @property
    def _without(self) -> str:
        return f"deploykit serve {self.model} does without it"

    def say(self, settings: Settings | None) -> None:
        """Say what is taken of the folder, and warn where the settings are of another machine.

        `settings` are those that are taken; None: others were given.
        """
        logger.info("%s was shipped: the model %s is served", self.folder, self.name)
        if settings is None or self.tuned is None:
            return
        logger.info("%s is taken: %s; flags and variables that are set win",
                    self.tuned, settings)  # fmt: skip
        found = load_document(self.tuned, "tuned").get("machine")
        there = found if isinstance(found, Mapping) else {}
        here = machine()
        others = [
            f"{word} {there[name]} there, {here[name]} here"
            for name, word in _SPEED.items()
            if name in there and there[name] != here[name]
        ]
        if others:
            logger.warning("%s was found on another machine (%s), so other settings may be faster "
                           "here; deploykit tune finds them", self.tuned,
                           "; ".join(others))  # fmt: skip


def shipped_in(base_dir: Any) -> tuple[ShippedFolder | None, str]:
    """Return what was shipped into a folder, or None, and a warning where its report is damaged.

    A file of the name that others wrote is passed over. FileError: the model that the report names
    is not there.
    """
    if base_dir is None:
        return None, ""
    folder = Path(os.fspath(base_dir))
    path = folder / REPORT
    if not path.is_file():
        return None, ""
    try:
        document = read_json(path, "report")
    except Error as error:
        return None, _damaged(str(error))
    if not isinstance(document, Mapping) or document.get("kind") != _KIND:
        return None, ""
    if document.get("format") != _FORMAT:
        return None, _damaged(
            f"{path}: its format is {document.get('format')!r}, but this deploykit reads {_FORMAT}"
        )
    name = document.get("name")
    if not isinstance(name, str) or not name or name in (".", "..") or Path(name).name != name:
        return None, _damaged(f"{path}: it names no model")
    found = ShippedFolder(folder, name)
    if not found.model.is_dir():
        raise FileError(
            f"{found.model}: there is no such folder, but {path} says that the model lies there; "
            "ship it again, or give the folder with its versions"
        )
    return found, ""


def _damaged(why: str) -> str:
    return f"{why}; what lies beside it is served as in any other folder, without {TUNED}"


def tuned_of(base_dir: Any, tuned: str | os.PathLike[str] | None) -> Settings:
    """Return the settings that a server takes: those of a file, or else those that were shipped.

    FileError, GraphError: they cannot be read.
    """
    if tuned is not None:
        return load_tuned(tuned)
    shipped, _ = shipped_in(base_dir)
    return Settings() if shipped is None else shipped.settings()
