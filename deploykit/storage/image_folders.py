"""Image folders: which files are images that TensorFlow decodes, and which are skipped.

An image is a file with the first bytes or the file name extension of a format that the installed
TensorFlow decodes. A file with such an extension is an image even if it is damaged, so that the
command that reads it reports it. All other visible files are skipped, with one warning.
"""

import csv
import io
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploykit.storage import image_files
from deploykit.storage.csv_files import CsvLayout
from deploykit.storage.image_files import image_ends
from deploykit.storage.visible_files import is_folder, relative, visible_files, warn_once
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.ops import other_release
from deploykit.transforms.untrusted.files import read_text

logger = logging.getLogger("deploykit")

LABELS = "labels.csv"
"""The file in an image folder that lists the label of each image."""
_MAX_NAMES = 5
"""Maximum number of files that a warning names."""


def is_image(path: str) -> bool:
    """Return whether a path is an image, by its extension or else by its first bytes."""
    return path.lower().endswith(image_ends()) or (os.path.isfile(path) and starts_as_image(path))


def starts_as_image(path: str) -> bool:
    """Return whether the first bytes of a regular file are those of an image.

    A file that cannot be read is not an image.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return image_files.is_image_content(os.read(file, image_files.START_BYTES))
    except OSError:
        return False
    finally:
        os.close(file)


@dataclass(frozen=True)
class ImageFolder:
    """The images below a folder, at any depth, and the other visible files.

    Paths are strings: Path objects for ten thousand files take longer than reading the files.
    """

    path: str
    images: tuple[str, ...]
    """The paths of the images: those of a folder by name, then those of its subfolders."""
    skipped: tuple[str, ...]
    """The paths of the other files, relative to the folder."""
    subfolders: tuple[str, ...]
    """The names of the visible subfolders at the top, even empty ones."""

    def relative(self, image: str) -> str:
        """Return the path of an image relative to the folder."""
        return relative(self.path, image)

    def top_of(self, image: str) -> str:
        """Return the first subfolder on the way to an image; empty for an image at the top."""
        top, separator, _ = self.relative(image).partition(os.sep)
        return top if separator else ""

    @property
    def classes(self) -> tuple[str, ...]:
        """The subfolders that contain images, at any depth."""
        return tuple(sorted({top for top in map(self.top_of, self.images) if top}))

    @property
    def unclassed(self) -> str:
        """The first image that is next to class folders; empty if there is none."""
        tops = [(self.top_of(image), image) for image in self.images]
        return next((image for top, image in tops if not top), "") if any(dict(tops)) else ""

    def warn_of_skipped(self) -> None:
        """Warn once of the skipped files: their number, and the names of the first ones."""
        if not self.skipped:
            return
        lacking = [
            other_release(each.op)
            for each in image_files.FORMATS
            if each not in image_files.image_formats()
            and any(name.lower().endswith(each.ends) for name in self.skipped)
        ]
        count = len(self.skipped)
        warn_once(
            f"{self.path}: skipped {count:,} of {count + len(self.images):,} files, which are not "
            f"images that TensorFlow decodes: {'; '.join([_first(self.skipped), *lacking])}"
        )

    def warn_of_missing(self, file: str | os.PathLike[str], listed: Sequence[str]) -> None:
        """Warn once of the normalized paths that a file of labels lists and that are no images."""
        known = set(map(os.path.normpath, self.images))
        if missing := [self.relative(path) for path in listed if path not in known]:
            warn_once(
                f"{file}: ignored {len(missing):,} of {len(listed):,} labels, whose files are not "
                f"images in the folder: {_first(missing)}"
            )

    def warn_of_empty(self) -> None:
        """Warn of subfolders without images, for a caller to which they are classes too."""
        for name in sorted(set(self.subfolders) - set(self.classes)):
            logger.warning("%s: this class has no images", os.path.join(self.path, name))


def list_images(folder: str | os.PathLike[str], labels: str | os.PathLike[str] = "") -> ImageFolder:
    """Return the images and the other files below a folder.

    Hidden files, `labels.csv` and the file `labels` are neither. FileError: a folder cannot be
    read.
    """
    path, ends = str(Path(folder)), image_ends()
    images: list[str] = []
    skipped: list[str] = []
    subfolders: list[str] = []
    for where, folders, files in visible_files(path):
        is_top = where == path
        if is_top:
            subfolders = [entry.name for entry in folders]
        for entry in files:
            if _is_image_file(entry, ends):
                images.append(entry.path)
            elif not ((is_top and entry.name == LABELS) or _is_same(entry, labels)):
                name = relative(path, entry.path)
                skipped.append(os.path.join(name, "") if is_folder(entry) else name)
    return ImageFolder(path, tuple(images), tuple(skipped), tuple(subfolders))


def listed_labels(
    found: ImageFolder, file: str | os.PathLike[str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the label of each image in the FILE,LABEL lines of a CSV file, and the header.

    Labels are by normalized path. The header is the first line if it is not an image, and is
    logged; without one, it is empty. FileError, GraphError: the file cannot be read, a line is not
    a file and a label, or names a file again.
    """
    results: dict[str, str] = {}
    try:
        text = read_text(file, "CSV file of labels")
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        rows = [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise GraphError("not-a", source=file, what="a CSV file", reason=error) from None
    header: tuple[str, ...] = ()
    if rows and not _is_image_row(found, rows[0][1][0].strip()):
        header = tuple(cell.strip() for cell in rows.pop(0)[1])
        CsvLayout(header, len(header)).tell(file)
    for number, row in rows:
        if len(row) != 2 or not row[1].strip():
            raise GraphError("labels-line", source=file, number=number, got=",".join(row)[:80])
        path = os.path.normpath(os.path.join(found.path, row[0].strip()))
        if path in results:
            raise GraphError("labels-line-twice", source=file, number=number, file=row[0])
        results[path] = row[1].strip()
    return results, header


def _first(names: Sequence[str]) -> str:
    """Return the first names as text, and how many more there are."""
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def _is_image_row(found: ImageFolder, name: str) -> bool:
    """Return whether the first line of a file of labels is not its header."""
    return name.lower().endswith(image_ends()) or os.path.isfile(os.path.join(found.path, name))


def _is_image_file(entry: os.DirEntry[str], ends: tuple[str, ...]) -> bool:
    """Return whether an entry is an image; only a file without such an extension is read."""
    if is_folder(entry):
        return False
    if entry.name.lower().endswith(ends):
        return True
    try:
        return entry.is_file() and starts_as_image(entry.path)
    except OSError:
        return False


def _is_same(entry: os.DirEntry[str], path: str | os.PathLike[str]) -> bool:
    try:
        return entry.name == os.path.basename(path) and os.path.samefile(entry.path, path)
    except OSError:
        return False
