"""The folder of a shipment: ownership, a lock for one run at a time, and its readable files.

A finished shipment stays unchanged until the next one is finished. The next one is built in a
hidden folder next to it, which replaces it at the end.
"""

import contextlib
import json
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from deploykit.api.report import report
from deploykit.rendering.formatters.shipped import precision_line, verdict_of
from deploykit.shipping.shipment import LABELS, PREPROCESS
from deploykit.shipping.shipped import FOLDER
from deploykit.storage.files import check_output_folder, write
from deploykit.storage.ship_report import KIND, REPORT, TUNED, ship_report
from deploykit.storage.swap_folders import can_swap, link_missing, next_to, recover, swap
from deploykit.transforms.common.documents import FORMAT
from deploykit.transforms.common.errors import Error, FileError, cannot_be
from deploykit.transforms.common.messages import escaped
from deploykit.transforms.untrusted.file_locks import locked, note

logger = logging.getLogger("deploykit")

REPORT_HTML, README = "report.html", "README.md"
_REMOVED = frozenset((FOLDER, TUNED, LABELS, PREPROCESS))
"""Files that a run may have removed on purpose, so they are not taken from the old folder."""


@contextlib.contextmanager
def own_folder(folder: Path, count_done: Callable[[Path], int], *sources: str) -> Iterator[Path]:
    """Yield the folder to build in, and lock the shipment against other runs.

    This is the folder itself, unless it contains a finished shipment. In that case it is a hidden
    folder next to it, which replaces it once the block ends without an error.

    Args:
        folder: the folder of the shipment; it is created if it is missing.
        count_done: returns the number of stages that need not run again in a folder.
        sources: paths that the run reads.

    FileError: it cannot be written, contains something else, or another run uses it.
    """
    recover(folder)
    check(folder, *sources)
    with _held(folder):
        build = _build_folder(folder, count_done)
        if build == folder:
            yield folder
            return
        with _held(build):
            try:
                yield build
                link_missing(folder, build, _REMOVED)
            except BaseException:
                logger.info("%s is unchanged; partial results are in %s, and the same command "
                            "resumes there", folder, build)  # fmt: skip
                raise
            swap(build, folder)


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    place = folder / FOLDER
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_be("made", folder, error) from None
    with locked(place) as is_ours:
        if is_ours is False:
            raise FileError("other-ship-at-work", source=folder)
        yield


def resumed_in(folder: Path, retained: Callable[[Path], int]) -> Path:
    """Return the folder whose results are reused: an interrupted run's if it has more of them."""
    build = next_to(folder, "next")
    if is_finished(folder) and build.is_dir() and retained(build) > retained(folder):
        return build
    return folder


def is_finished(folder: Path) -> bool:
    """Return whether a folder contains a finished shipment."""
    try:
        result = ship_report(folder)
    except Error:
        return False
    return result is not None and result.finished


def _build_folder(folder: Path, retained: Callable[[Path], int]) -> Path:
    """Return the build folder, with links to the files of the finished shipment."""
    build, partial = next_to(folder, "next"), next_to(folder, "seed")
    if resumed_in(folder, retained) == build:
        return build
    for leftover in (build, partial):
        shutil.rmtree(leftover, ignore_errors=True)
    if not (is_finished(folder) and can_swap(folder)):
        return folder
    note(partial)
    try:
        link_missing(folder, partial)
        partial.rename(build)
    except OSError as error:
        raise cannot_be("made", build, error) from None
    return build


def check(folder: Path, *sources: str) -> None:
    """Raise FileError for a folder that cannot be used or that contains one of the sources."""
    check_output_folder(folder, len(next_to(folder, "next").name) - len(folder.resolve().name))
    for source in sources:
        if Path(source).resolve().is_relative_to(folder.resolve()):
            raise FileError("model-inside-output", source=source, folder=folder)
    if folder.is_dir() and not (folder / FOLDER).is_dir() and any(folder.iterdir()):
        raise FileError("ship-folder-foreign", source=folder)


def write_report(folder: Path, document: Mapping[str, Any]) -> None:
    """Write the report as JSON and HTML, and a README with the next commands."""
    text = json.dumps(document, indent=1, allow_nan=False)
    write(folder / REPORT, [f"{text}\n".encode()], force=True)
    report(folder, folder / REPORT_HTML, force=True)
    write(folder / README, [_readme(document).encode()], force=True)


def write_begun(folder: Path, name: str) -> None:
    """Write a partial report, with which a server can already serve the model."""
    document = {"format": FORMAT, "kind": KIND, "name": name, "stages": []}
    write(folder / REPORT, [f"{json.dumps(document)}\n".encode()], force=True)


def _readme(document: Mapping[str, Any]) -> str:
    """Return a short README: the contents of the folder and the next commands."""
    rows = [f"    {item['command']}" for item in document["commands"]]
    return "\n".join([
        f"# {document['name']}",
        "",
        *(f"{escaped(line)}\n" for line in precision_line(document)),
        escaped(verdict_of(document)),
        f"`report.html` shows what was measured, `{document['name']}/` is what TensorFlow Serving "
        "loads.",
        "",
        *rows,
        "",
    ])  # fmt: skip
