"""Run the commands that a page shows, as a reader would, and return what they print."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.serving.served import free_port

ROOT = Path(__file__).parents[2]
PORTS = ("8500", "8501")  # of the pages, for which free ones are taken
READY = r"(?m)^serving "  # what a server says when it answers


def blocks(page: Path, *languages: str) -> Iterator[tuple[str, str]]:
    """Yield the language and the text of each block of a page that is in one of the languages."""
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(), re.M | re.S):
        if language in languages:
            yield language, text


def without_digits(text: str) -> str:
    """Return text without its figures, nor the blanks that align them."""
    return re.sub(r"[\s─]+", " ", re.sub(r"\d+(\.\d+)?", "#", text))


def without_progress(text: str) -> str:
    """Return what a command prints without its progress, which depends on the time it takes."""
    return re.sub(r"(?m)^deploykit: \[\d+/\d+\] .*\n", "", text)


@dataclass
class Walk:
    """A folder in which the commands of a page are run, one after the other."""

    folder: Path
    ports: dict[str, str] = field(default_factory=lambda: {p: str(free_port()) for p in PORTS})
    servers: list[subprocess.Popen[str]] = field(default_factory=list)

    def run(self, line: str) -> str:
        """Return what a command prints, to standard error too; `&` at its end starts a server."""
        for said, free in self.ports.items():
            line = line.replace(said, free)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        started = subprocess.Popen(
            ["bash", "-c", f"exec {line.rstrip(' &')}" if line.endswith("&") else line],
            cwd=self.folder,
            env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert started.stdout is not None
        if line.endswith("&"):
            self.servers.append(started)
            printed = ""
            while not re.search(READY, printed):
                printed += (more := started.stdout.readline())
                assert more, printed
        else:
            printed, _ = started.communicate(timeout=600)
            assert started.returncode == 0, f"{line}: {printed}"
        for said, free in self.ports.items():
            printed = printed.replace(free, said)
        return printed.replace(str(self.folder), "/home/you/deploykit")

    def end(self) -> None:
        """End the servers."""
        for server in self.servers:
            server.terminate()
            server.communicate(timeout=60)


def write_files(page: Path, folder: Path) -> None:
    """Write the Python blocks of a page that begin with the name of a file, as a comment."""
    for _, text in blocks(page, "python"):
        if named := re.match(r"# (\w+\.py)\n", text):
            (folder / named[1]).write_text(text)


def walk(page: Path, folder: Path, *languages: str) -> list[tuple[str, str]]:
    """Run the `$` lines of a page's blocks, and return each block beside what it prints today."""
    for name in ("models", "tests"):
        (folder / name).symlink_to(ROOT / name)
    write_files(page, folder)
    there, found = Walk(folder), []
    try:
        for _, text in blocks(page, *(languages or ("console",))):
            printed = []
            for line in re.findall(r"^\$ (.*)$", text, re.M):
                output = there.run(line)
                printed += [f"$ {line}", *(each.rstrip() for each in output.splitlines())]
            found.append((text, "\n".join([*printed, ""])))
    finally:
        there.end()
    return found
