"""Image folders: which files are images that TensorFlow decodes, and which are skipped.

An image is a file with the first bytes or the file name extension of a format that the installed
TensorFlow decodes. A file with such an extension is an image even if it is damaged, so that the
command that reads it reports it. All other visible files are skipped, with one warning.
"""

import csv
import functools
import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from deploykit.transforms.common.errors import FileError, GraphError
from deploykit.transforms.ir.ops import other_release
from deploykit.transforms.untrusted.files import read_text

logger = logging.getLogger("deploykit")

LABELS = "labels.csv"
"""The file in an image folder that lists the label of each image."""
START_BYTES = 12
"""The number of bytes that tell the format of a file."""
_MAX_NAMES = 5
"""Maximum number of skipped files that a warning names."""


@dataclass(frozen=True)
class ImageFormat:
    """An image format."""

    name: str
    ends: tuple[str, ...]
    start: bytes
    """A regular expression for the first bytes, in which `.` matches all bytes."""
    op: str = ""
    """The op that decodes it, if not all releases of TensorFlow have it."""


_FORMATS = (
    ImageFormat("JPEG", (".jpg", ".jpeg", ".jpe", ".jfif"), rb"\xff\xd8\xff"),
    ImageFormat("PNG", (".png",), rb"\x89PNG\r\n\x1a\n"),
    ImageFormat("GIF", (".gif",), rb"GIF8[79]a"),
    # A text may begin with BM, so the reserved bytes count too.
    ImageFormat("BMP", (".bmp",), rb"BM.{4}\0{4}"),
    ImageFormat("WebP", (".webp",), rb"RIFF.{4}WEBP", "DecodeWebP"),
    ImageFormat("JPEG XL", (".jxl",), rb"\xff\x0a|\0{3}\x0cJXL \r\n\x87\n", "DecodeJxl"),
)


@functools.cache
def image_formats() -> tuple[ImageFormat, ...]:
    """Return the formats that the installed TensorFlow decodes."""
    return tuple(each for each in _FORMATS if not (each.op and other_release(each.op)))


@functools.cache
def image_ends() -> tuple[str, ...]:
    """Return the file name extensions of images, in lower case."""
    return tuple(end for each in image_formats() for end in each.ends)


@functools.cache
def _start() -> re.Pattern[bytes]:
    return re.compile(b"|".join(each.start for each in image_formats()), re.DOTALL)


def is_image(path: str) -> bool:
    """Return whether a path is an image, by its extension or else by its first bytes."""
    return path.lower().endswith(image_ends()) or (os.path.isfile(path) and starts_as_image(path))


def is_image_content(content: bytes) -> bool:
    """Return whether bytes begin like an image that the installed TensorFlow decodes."""
    return _start().match(content) is not None


def starts_as_image(path: str) -> bool:
    """Return whether the first bytes of a regular file are those of an image.

    A file that cannot be read is not an image.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return is_image_content(os.read(file, START_BYTES))
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
        return _relative(self.path, image)

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
        names = ", ".join(self.skipped[:_MAX_NAMES])
        if (more := len(self.skipped) - _MAX_NAMES) > 0:
            names = f"{names} and {more:,} more"
        lacking = [
            other_release(each.op)
            for each in _FORMATS
            if each not in image_formats()
            and any(name.lower().endswith(each.ends) for name in self.skipped)
        ]
        count = len(self.skipped)
        _warn_once(
            f"{self.path}: skipped {count:,} of {count + len(self.images):,} files, which are not "
            f"images that TensorFlow decodes: {'; '.join([names, *lacking])}"
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
                name = _relative(path, entry.path)
                skipped.append(os.path.join(name, "") if _is_folder(entry) else name)
    return ImageFolder(path, tuple(images), tuple(skipped), tuple(subfolders))


def listed_labels(found: ImageFolder, file: str | os.PathLike[str]) -> dict[str, str]:
    """Return the label of each image in the FILE,LABEL lines of a CSV file, by normalized path.

    The first line may be a header. FileError, GraphError: the file cannot be read, a line is not a
    file and a label, or names a file again.
    """
    results: dict[str, str] = {}
    try:
        text = read_text(file, "CSV file of labels")
        rows = list(csv.reader(text.splitlines(), strict=True))
    except csv.Error as error:
        raise GraphError("not-a", source=file, what="a CSV file", reason=error) from None
    for number, row in enumerate(rows, 1):
        if not row or (number == 1 and not _is_image_row(found, row[0])):
            continue  # a blank line, or the header
        if len(row) != 2 or not row[1].strip():
            raise GraphError("labels-line", source=file, number=number, got=",".join(row)[:80])
        path = os.path.normpath(os.path.join(found.path, row[0].strip()))
        if path in results:
            raise GraphError("labels-line-twice", source=file, number=number, file=row[0])
        results[path] = row[1].strip()
    return results


def _is_image_row(found: ImageFolder, name: str) -> bool:
    """Return whether the first line of a file of labels is not its header."""
    return name.lower().endswith(image_ends()) or os.path.isfile(os.path.join(found.path, name))


def visible_files(
    folder: str,
) -> Iterator[tuple[str, list[os.DirEntry[str]], list[os.DirEntry[str]]]]:
    """Yield each folder, depth first, with its visible subfolders and other files, by name.

    Links to folders are followed, and each folder is yielded once. Folders that are found without a
    link come before those that a link leads to. A repeated folder is one of the other files.
    FileError: a folder cannot be read.
    """
    paths: dict[tuple[int, int], str] = {}  # where each folder is yielded, once a link was met
    waiting = [folder]
    while waiting:
        where = waiting.pop()
        folders, files = list[os.DirEntry[str]](), list[os.DirEntry[str]]()
        try:
            with os.scandir(where) as listed:
                entries = sorted((e for e in listed if e.name[0] != "."), key=lambda e: e.name)
            for entry in entries:
                is_folder = _is_folder(entry)
                if is_folder and entry.is_symlink():
                    for root in (entry.path,) if paths else (folder, entry.path):
                        _add_folders(paths, root)
                is_first = not paths or not is_folder or paths.get(_identity(entry)) == entry.path
                (folders if is_folder and is_first else files).append(entry)
        except OSError as error:
            raise FileError("file-error", source=where, reason=error.strerror or error) from None
        yield where, folders, files
        waiting += [entry.path for entry in reversed(folders)]


def _add_folders(paths: dict[tuple[int, int], str], root: str) -> None:
    """Add a folder and all visible ones below it, without links, unless their paths are known."""
    if paths.setdefault(_identity(root), root) != root:
        return
    for where, names, _ in os.walk(root):
        names[:] = [name for name in names if name[0] != "."]
        for path in (os.path.join(where, name) for name in names):
            if not os.path.islink(path):
                paths.setdefault(_identity(path), path)


def _identity(path: str | os.DirEntry[str]) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _is_image_file(entry: os.DirEntry[str], ends: tuple[str, ...]) -> bool:
    """Return whether an entry is an image; only a file without such an extension is read."""
    if _is_folder(entry):
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


def _relative(folder: str, path: str) -> str:
    return path.removeprefix(os.path.join(folder, ""))


@functools.lru_cache(maxsize=256)
def _warn_once(text: str) -> None:
    """Log a warning; a command may list a folder several times."""
    logger.warning("%s", text)
