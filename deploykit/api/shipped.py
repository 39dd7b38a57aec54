"""What `deploykit ship` left in a folder, as a server takes it: a model, its name, its settings."""

# A server without such a folder starts without what only this needs, so functions import that.
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from deploykit.benchmarking.run_config import RunConfig
from deploykit.exporting.provenance import exported_from
from deploykit.serving.lifecycle.model_config import ModelSettings
from deploykit.serving.lifecycle.version_folders import Latest, find_versions
from deploykit.storage.files import load_document
from deploykit.storage.ship_report import TUNED, ShipReport, ship_report
from deploykit.transforms.common.errors import Error, FileError, MismatchError
from deploykit.transforms.untrusted.files import sha256_of

logger = logging.getLogger("deploykit")

UNFINISHED = "DEPLOYKIT_SERVE_UNFINISHED"
"""Set by `deploykit ship`, which serves a shipment to test it before it is finished."""
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

    @cached_property
    def tuned(self) -> "FoundSettings":
        """What `tune` found, without an engine: a version itself states what runs it."""
        result = _tuned_beside(self.report, self._newest())
        return replace(result, settings=result.settings and replace(result.settings, engine=None))

    def settings(self) -> RunConfig:
        """Return what `tune` found for the model that is served; else the defaults."""
        return self.tuned.settings or RunConfig()

    def say(self, takes_settings: bool) -> None:
        """Log what is taken of the folder, and why not the settings; others may be given."""
        logger.info("%s was shipped: the model %s is served", self.report.folder, self.name)
        if takes_settings and self.report.tuned is not None:
            self.tuned.say(self.report.tuned)

    def _newest(self) -> Path | None:
        try:
            return next(iter(find_versions(self.model, Latest()).versions.values()), None)
        except FileError:
            return None


@dataclass(frozen=True)
class FoundSettings:
    """What a file of `tune` holds that was found next to a model."""

    settings: RunConfig | None
    """None: it cannot be used."""
    warning: str = ""
    """Why not, or what is not known of it."""

    def say(self, path: Path) -> None:
        """Log what is taken of the file, or why it is ignored."""
        if self.warning:
            logger.warning("%s", self.warning)
        if self.settings not in (None, RunConfig()):
            logger.info("%s is taken: %s; flags and variables that are set win", path,
                        self.settings)  # fmt: skip
            _warn_of_another_machine(path)


def _tuned_beside(report: ShipReport, version: Path | None = None) -> FoundSettings:
    """Return what `tune` found for what was shipped, if it was measured on that.

    `version` is the folder that is served of it: it has to be exported from the same model.
    """
    from deploykit.benchmarking.results import load_tuned

    path = report.tuned
    if path is None:
        return FoundSettings(None)
    try:
        settings, sha256 = load_tuned(path), load_document(path, "tuned").get("model_sha256")
        if not isinstance(sha256, str) or not sha256:
            return FoundSettings(settings, f"{path} holds no SHA-256 of a model, so it may be of "
                                 f"another one than {report.model}")  # fmt: skip
        others = {report.model: sha256_of(report.model)} if report.model.exists() else {}
        if version is not None:
            others[version / "saved_model.pb"] = exported_from(version)
        other = next((name for name, result in others.items() if result != sha256), None)
    except Error as error:
        return FoundSettings(None, f"{error}; {path} is ignored")
    if other is not None:
        return FoundSettings(None, f"{path} was measured on another model than {other} and is "
                             "ignored; run deploykit ship again")  # fmt: skip
    return FoundSettings(settings)


def check_served_models(tuned: str | os.PathLike[str], models: Iterable[ModelSettings]) -> None:
    """Raise MismatchError where a file of `tune` was measured on none of the served versions.

    Models that are not there yet are not compared.
    """
    from deploykit.benchmarking.results import check_tuned

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
    except MismatchError:  # it may have been measured on the version itself
        check_tuned(tuned, {path: _files_sha256(os.path.dirname(path)) for path in known})


def _files_sha256(folder: str) -> str:
    """Return the SHA-256 of a SavedModel's files as `tune` knows it; empty: it has none."""
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
        logger.warning("%s was found on another machine (%s), so other settings may be faster "
                       "here; deploykit tune finds them", tuned, "; ".join(others))  # fmt: skip


def shipped_in(base_dir: str | os.PathLike[str] | None) -> tuple[ShippedFolder | None, str]:
    """Return what was shipped into a folder, or None, and a warning where its report is damaged.

    A file of the name that others wrote is ignored. FileError: the shipment is not finished, or the
    model that the report names is not there.
    """
    if base_dir is None:
        return None, ""
    try:
        report = ship_report(os.fspath(base_dir))
    except Error as error:
        return None, _damaged(str(error))
    if report is None:
        return None, ""
    shipped_folder = ShippedFolder(report)
    if not report.finished and UNFINISHED not in os.environ:
        raise FileError("shipment-unfinished", source=report.folder)
    if not shipped_folder.model.is_dir():
        raise FileError("shipped-model-missing", source=shipped_folder.model, report=report.path)
    return shipped_folder, ""


def _damaged(why: str) -> str:
    return f"{why}; what lies beside it is served as in any other folder, without {TUNED}"


def tuned_of(
    base_dir: str | os.PathLike[str] | None, tuned: str | os.PathLike[str] | None
) -> RunConfig:
    """Return the settings that a server takes: those of a file, or else those that were shipped.

    FileError, GraphError: they cannot be read.
    """
    from deploykit.benchmarking.results import load_tuned

    if tuned is not None:
        return load_tuned(tuned)
    shipped, _ = shipped_in(base_dir)
    return RunConfig() if shipped is None else shipped.settings()


def tuned_settings(model: Any, tuned: str | os.PathLike[str] | None, sha256: str) -> RunConfig:
    """Return the settings that a model is run with: those of a file, or else shipped with it.

    What `tune` found for several threads and calls at once is left out: a worker has one of each.

    Args:
        model: whatever `open_model` takes; settings were shipped with a folder of `ship` alone.
        tuned: a file that `tune` wrote.
        sha256: of the model's files.

    FileError, GraphError: they cannot be read. MismatchError: the file is of another model.
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
