"""What `deploykit ship` left in a folder, as a server takes it: a model, its name, its settings."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deploykit.benchmarking.results import load_tuned
from deploykit.benchmarking.settings import Settings
from deploykit.freezing.open_model import path_of
from deploykit.hardware.machine import machine
from deploykit.storage.documents import load_document
from deploykit.storage.ship_report import TUNED, ShipReport, ship_report
from deploykit.transforms.core.errors import Error, FileError, GraphError

logger = logging.getLogger("deploykit")

_SPEED = {"cpu": "CPU", "cpus": "CPUs", "cpu_limit": "limit of CPUs"}
"""What of a machine settings are found for, and what it is called."""


@dataclass(frozen=True)
class ShippedFolder:
    """A folder of `deploykit ship`, as a server takes it."""

    report: ShipReport

    @property
    def name(self) -> str:
        """The name of the model, and of the folder with its versions."""
        return self.report.name

    @property
    def model(self) -> Path:
        """The folder with the versions of the model."""
        return self.report.folder / self.name

    def settings(self) -> Settings:
        """Return what `tune` found, without an engine: a version says itself what computes it.

        FileError, GraphError: the file cannot be read; the message says how to do without.
        """
        without = f"deploykit serve {self.model} does without it"
        return replace(_tuned_beside(self.report, without), engine=None)

    def say(self, settings: Settings | None) -> None:
        """Say what is taken of the folder, and warn where the settings are of another machine.

        `settings` are those that are taken; None: others were given.
        """
        logger.info("%s was shipped: the model %s is served", self.report.folder, self.name)
        if settings is not None and self.report.tuned is not None:
            logger.info("%s is taken: %s; flags and variables that are set win",
                        self.report.tuned, settings)  # fmt: skip
            _warn_of_another_machine(self.report.tuned)


def _tuned_beside(report: ShipReport, without: str) -> Settings:
    """Return what `tune` found for what was shipped; `without` says how to do without it."""
    if report.tuned is None:
        return Settings()
    try:
        return load_tuned(report.tuned)
    except GraphError as error:
        raise GraphError(f"{error}; {without}") from None
    except FileError as error:
        raise FileError(f"{error}; {without}") from None


def _warn_of_another_machine(tuned: Path) -> None:
    found = load_document(tuned, "tuned").get("machine")
    there = found if isinstance(found, Mapping) else {}
    here = machine()
    others = [
        f"{word} {there[name]} there, {here[name]} here"
        for name, word in _SPEED.items()
        if name in there and there[name] != here[name]
    ]
    if others:
        logger.warning("%s was found on another machine (%s), so other settings may be faster "
                       "here; deploykit tune finds them", tuned, "; ".join(others))  # fmt: skip


def shipped_in(base_dir: Any) -> tuple[ShippedFolder | None, str]:
    """Return what was shipped into a folder, or None, and a warning where its report is damaged.

    A file of the name that others wrote is passed over. FileError: the model that the report names
    is not there.
    """
    if base_dir is None:
        return None, ""
    try:
        report = ship_report(os.fspath(base_dir))
    except Error as error:
        return None, _damaged(str(error))
    if report is None:
        return None, ""
    found = ShippedFolder(report)
    if not found.model.is_dir():
        raise FileError(
            f"{found.model}: there is no such folder, but {report.path} says that the model lies "
            "there; ship it again, or give the folder with its versions"
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


def tuned_settings(model: Any, tuned: str | os.PathLike[str] | None) -> Settings:
    """Return the settings that a model is run with: those of a file, or else shipped with it.

    What `tune` found for several threads and calls at once is left out: a worker has one of each.

    Args:
        model: whatever `open_model` takes; settings were shipped with a folder of `ship` alone.
        tuned: a file that `tune` wrote.

    FileError, GraphError: they cannot be read.
    """
    if tuned is not None:
        return _of_one_thread(load_tuned(tuned))
    paths = path_of(model)
    report = ship_report(paths[0]) if paths and Path(paths[0]).is_dir() else None
    if report is None or report.tuned is None:
        return Settings()
    found = _of_one_thread(_tuned_beside(report, f"give {report.model} to do without it"))
    if found != Settings():
        logger.info("%s is taken: %s", report.tuned, found)
        _warn_of_another_machine(report.tuned)
    return found


def _of_one_thread(settings: Settings) -> Settings:
    return replace(settings, threads=None, concurrency=1).without_openmp
