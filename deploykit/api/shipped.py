"""Folders written by `deploykit ship`, as input of a server: model, name and settings."""

# Functions import what only they need, so that other servers start faster.
import contextlib
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from deploykit.benchmarking.run_config import RunConfig
from deploykit.serving.lifecycle.model_config import ModelSettings
from deploykit.serving.lifecycle.version_folders import Latest, find_versions
from deploykit.storage.files import load_document
from deploykit.storage.ship_report import TUNED, ShipReport, ship_report
from deploykit.transforms.common.errors import Error, FileError, MismatchError
from deploykit.transforms.untrusted.files import sha256_of

logger = logging.getLogger("deploykit")

UNFINISHED = "DEPLOYKIT_SERVE_UNFINISHED"
"""The environment variable with which `deploykit ship` may serve an unfinished shipment."""
_SPEED = {"cpu": "CPU", "cpus": "CPUs", "cpu_limit": "limit of CPUs"}
"""The machine properties on which tuned settings depend, and their names in messages."""


@dataclass(frozen=True)
class ShippedFolder:
    """A folder written by `deploykit ship`."""

    report: ShipReport

    @property
    def name(self) -> str:
        """The name of the model, and of the folder with its versions."""
        return self.report.name

    @property
    def model(self) -> Path:
        """The folder with the versions of the model."""
        return self.report.folder / self.name

    @cached_property
    def tuned(self) -> "TunedSettings":
        """The tuned settings without the engine, which each version states itself."""
        newest = None
        with contextlib.suppress(FileError):
            newest = next(iter(find_versions(self.model, Latest()).versions.values()), None)
        result = _tuned_beside(self.report, newest)
        return replace(result, settings=result.settings and replace(result.settings, engine=None))

    def settings(self) -> RunConfig:
        """Return the tuned settings of the served model, else the defaults."""
        return self.tuned.settings or RunConfig()

    def say(self, takes_settings: bool) -> None:
        """Log which model is served, and which settings unless others were given."""
        logger.info("%s is a shipped folder: serving its model %s", self.report.folder, self.name)
        if takes_settings and self.report.tuned is not None:
            self.tuned.say(self.report.tuned)


@dataclass(frozen=True)
class TunedSettings:
    """The settings of a `tune` file that is next to a model."""

    settings: RunConfig | None
    """The settings; None if the file cannot be used."""
    warning: str = ""
    """Why the file cannot be used, or what is uncertain about it."""

    def say(self, path: Path) -> None:
        """Log the settings from the file, or why they are ignored."""
        if self.warning:
            logger.warning("%s", self.warning)
        if self.settings not in (None, RunConfig()):
            logger.info("%s is used: %s; flags and variables that are set override it", path,
                        self.settings)  # fmt: skip
            _warn_of_another_machine(path)


def _tuned_beside(report: ShipReport, version: Path | None = None) -> TunedSettings:
    """Return the tuned settings of a shipped model, if they were measured on that model.

    `version` is the served version folder, which must be exported from the same model.
    """
    from deploykit.benchmarking.results import load_tuned
    from deploykit.exporting.export import exported_from

    path = report.tuned
    if path is None:
        return TunedSettings(None)
    try:
        settings, sha256 = load_tuned(path), load_document(path, "tuned").get("model_sha256")
        if not isinstance(sha256, str) or not sha256:
            return TunedSettings(settings, f"{path} has no SHA-256 of a model, so it may belong to "
                                 f"another model than {report.model}")  # fmt: skip
        others = {report.model: sha256_of(report.model)} if report.model.exists() else {}
        if version is not None:
            others[version / "saved_model.pb"] = exported_from(version)
        other = next((name for name, result in others.items() if result != sha256), None)
    except Error as error:
        if error.code == "variable-from-file":
            raise  # it may be an attack
        return TunedSettings(None, f"{error}; {path} is ignored")
    if other is not None:
        return TunedSettings(None, f"{path} was measured on another model than {other} and is "
                             "ignored; run deploykit ship again")  # fmt: skip
    return TunedSettings(settings)


def check_served_models(tuned: str | os.PathLike[str], models: Iterable[ModelSettings]) -> None:
    """Raise MismatchError if a `tune` file was measured on none of the served versions.

    Models whose folders do not exist yet are not compared.
    """
    from deploykit.benchmarking.results import check_tuned
    from deploykit.exporting.export import exported_from

    known: dict[str, str] = {}
    for model in models:
        try:
            folders = find_versions(model.base_path, model.policy).versions.values()
        except FileError:
            continue
        known |= {str(folder / "saved_model.pb"): exported_from(folder) for folder in folders}
    if not known:
        return
    try:
        check_tuned(tuned, known)
    except MismatchError:  # tune may have run on the exported version itself
        check_tuned(tuned, {path: _files_sha256(os.path.dirname(path)) for path in known})


def _files_sha256(folder: str) -> str:
    """Return the SHA-256 of a SavedModel's files as `tune` computes it; empty if unreadable."""
    from deploykit.importers.model_files import ModelFiles
    from deploykit.importers.model_source import ModelSource

    try:
        return ModelFiles(ModelSource(folder)).sha256
    except Error:
        return ""


def _warn_of_another_machine(tuned: Path) -> None:
    from deploykit.system.machine import machine

    value = load_document(tuned, "tuned").get("machine")
    there = value if isinstance(value, Mapping) else {}
    here = machine()
    others = [
        f"{word} {there[name]} there, {here[name]} here"
        for name, word in _SPEED.items()
        if name in there and there[name] != here[name]
    ]
    if others:
        logger.warning("%s was measured on another machine (%s), so other settings may be faster "
                       "here; run deploykit tune here", tuned, "; ".join(others))  # fmt: skip


def shipped_in(base_dir: str | os.PathLike[str] | None) -> tuple[ShippedFolder | None, str]:
    """Return the shipped folder, or None, and a warning if its report is damaged.

    A report file of another program is ignored. FileError: the shipment is not finished, or the
    model that the report names is missing.
    """
    if base_dir is None:
        return None, ""
    try:
        report = ship_report(os.fspath(base_dir))
    except Error as error:
        return None, f"{error}; serving the rest of the folder without {TUNED}"
    if report is None:
        return None, ""
    shipped_folder = ShippedFolder(report)
    if not report.finished and UNFINISHED not in os.environ:
        raise FileError("shipment-unfinished", source=report.folder)
    if not shipped_folder.model.is_dir():
        raise FileError("shipped-model-missing", source=shipped_folder.model, report=report.path)
    return shipped_folder, ""


def tuned_of(
    base_dir: str | os.PathLike[str] | None, tuned: str | os.PathLike[str] | None
) -> RunConfig:
    """Return the settings of a server: from a file, else from a shipped folder.

    FileError, GraphError: they cannot be read.
    """
    from deploykit.benchmarking.results import load_tuned

    if tuned is not None:
        return load_tuned(tuned)
    shipped, _ = shipped_in(base_dir)
    return RunConfig() if shipped is None else shipped.settings()


def tuned_settings(model: Any, tuned: str | os.PathLike[str] | None, sha256: str) -> RunConfig:
    """Return the settings with which a model runs: from a file, else from a shipped folder.

    Threads and concurrency are omitted, because a worker has one thread and one request.

    Args:
        model: any model that `open_model` accepts; only a folder of `ship` contains settings.
        tuned: a file that `tune` wrote.
        sha256: the SHA-256 of the model's files.

    FileError, GraphError: the settings cannot be read. MismatchError: the file belongs to another
    model.
    """
    from deploykit.benchmarking.results import load_tuned
    from deploykit.importers.open_model import path_of

    paths = path_of(model)
    if tuned is not None:
        return _of_one_thread(load_tuned(tuned, {"".join(paths) or "the model": sha256}))
    report = ship_report(paths[0]) if paths and Path(paths[0]).is_dir() else None
    if report is None or report.tuned is None:
        return RunConfig()
    beside = _tuned_beside(report)
    result = replace(beside, settings=beside.settings and _of_one_thread(beside.settings))
    result.say(report.tuned)
    return result.settings or RunConfig()


def _of_one_thread(settings: RunConfig) -> RunConfig:
    return replace(settings, threads=None, concurrency=1).without_openmp
