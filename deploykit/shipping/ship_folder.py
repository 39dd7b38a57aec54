"""The folder of a shipment: whose it is, one run at a time, and what is written for people."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from deploykit.api.report import report
from deploykit.shipping.stage_result import FOLDER
from deploykit.storage.documents import FORMAT
from deploykit.storage.files import check_output_folder, write
from deploykit.storage.ship_report import KIND, REPORT
from deploykit.text.results.shipped import precision_line
from deploykit.transforms.core.errors import FileError
from deploykit.transforms.core.files.locks import locked

REPORT_HTML, README = "report.html", "README.md"


@contextlib.contextmanager
def own_folder(folder: Path, *sources: str) -> Iterator[None]:
    """Make the folder, and hold it against other runs.

    FileError: it cannot be written, holds something else, or another run is at work in it.
    """
    check(folder, *sources)
    place = folder / FOLDER
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder}: cannot be made: {error.strerror or error}") from None
    with locked(place) as is_ours:
        if is_ours is False:
            raise FileError(f"{folder}: another deploykit ship is at work in it")
        yield


def check(folder: Path, *sources: str) -> None:
    """Raise FileError now for a folder that could not be taken, or that holds what is read."""
    check_output_folder(folder)
    for source in sources:
        if Path(source).resolve().is_relative_to(folder.resolve()):
            raise FileError(f"{source}: it lies in {folder}, which is to be written; give another "
                            "folder with -o")  # fmt: skip
    if folder.is_dir() and not (folder / FOLDER).is_dir() and any(folder.iterdir()):
        raise FileError(
            f"{folder}: this folder holds something that deploykit ship did not write; give a new "
            "one with -o"
        )


def write_report(folder: Path, document: Mapping[str, Any]) -> None:
    """Write the report for programs and for people, and how to go on."""
    text = json.dumps(document, indent=1, allow_nan=False)
    write(folder / REPORT, [f"{text}\n".encode()], force=True)
    report(folder, folder / REPORT_HTML, force=True)
    write(folder / README, [_readme(document).encode()], force=True)


def write_begun(folder: Path, name: str) -> None:
    """Write as much of the report as a server needs to know what to serve."""
    document = {"format": FORMAT, "kind": KIND, "name": name, "stages": []}
    write(folder / REPORT, [f"{json.dumps(document)}\n".encode()], force=True)


def _readme(document: Mapping[str, Any]) -> str:
    """Return ten lines that say what lies here and what to do with it."""
    rows = [f"    {each['command']}" for each in document["commands"]]
    return "\n".join([
        f"# {document['name']}",
        "",
        *precision_line(document),
        document["verdict"],
        f"`report.html` shows what was measured, `{document['name']}/` is what TensorFlow Serving "
        "loads.",
        "",
        *rows,
        "",
    ])  # fmt: skip
