"""A folder that holds the graph after each step of a transform string: `01-NAME.pb`, `02-NAME.pb`.

Each file is written whole or not at all.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deploykit.freezing.graph_files import write_graph
from deploykit.transforms.core import pipeline
from deploykit.transforms.core.errors import FileError, cannot_be
from deploykit.transforms.core.graph import Graph

_FILE = re.compile(rf"\d\d+-({'|'.join(pipeline.names())}|[\w.]+:\w+)\.pb")


@dataclass
class Dump:
    """The folder, and the files written so far, in the order of the steps."""

    folder: Path
    force: bool = False
    """Whether what an earlier dump left in it is replaced."""
    files: list[Path] = field(default_factory=list)

    def add(self, transform: str, graph: Graph) -> None:
        """Write the graph after one more step."""
        if not self.files:
            self._prepare()
        path = self.folder / f"{len(self.files) + 1:02}-{transform}.pb"
        write_graph(graph, path, force=self.force)
        self.files.append(path)

    def drop_from(self, step: int) -> None:
        """Remove the graphs after this step (0 is the first one) and those that follow."""
        for path in self.files[step:]:
            path.unlink(missing_ok=True)
        del self.files[step:]

    def _prepare(self) -> None:
        """Make the folder, or remove what an earlier dump left in it."""
        try:
            self.folder.mkdir(exist_ok=True)
            for path in _dumped(self.folder) if self.force else ():
                path.unlink()
        except OSError as error:
            raise cannot_be("written", self.folder, error) from None


def check_folder(path: str, force: bool, source: str | None = None) -> None:
    """Raise FileError now for a folder that could not be written to after a long run."""
    folder = Path(path)
    if not folder.exists():
        parent = folder.absolute().parent
        if not (parent.is_dir() and os.access(parent, os.W_OK)):
            raise FileError(
                "folder-missing", source=folder, folder=parent, more=" or is not writable"
            )
        return
    if not folder.is_dir():
        raise FileError("dump-is-file", source=folder)
    if any(folder.iterdir()) and not force:
        raise FileError("dump-not-empty", source=folder)
    if not os.access(folder, os.W_OK):
        raise FileError("folder-not-writable", source=folder, folder=path)
    if source and any(os.path.samefile(path, source) for path in _dumped(folder)):
        raise FileError("dump-holds-input", source=source)


def _dumped(folder: Path) -> Sequence[Path]:
    """Return the files of a dump that lie in a folder; it may hold other things, which stay."""
    return [path for path in folder.iterdir() if _FILE.fullmatch(path.name) and path.is_file()]
