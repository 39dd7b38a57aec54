"""Graphs that OpenVINO has compiled, kept between starts, for one machine and one OpenVINO.

A file is used only if its SHA-256 matches. Files that are damaged, old or too many are removed, and
nothing fails where the folder cannot be written. DEPLOYKIT_CACHE_DIR names another folder; empty
turns the cache off.
"""

import contextlib
import hashlib
import json
import logging
import os
import platform
import re
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

logger = logging.getLogger("deploykit")

VARIABLE = "DEPLOYKIT_CACHE_DIR"
MOST_BYTES = 1 << 30  # of all files together; those unused for longest go first
_MAGIC, _DIGEST = b"deploykit compiled graph 1\n", hashlib.sha256().digest_size
_SUFFIX, _PARTIAL, _LOADING = ".blob", ".partial", ".loading"
_OURS = re.compile(rf"[0-9a-f]{{64}}{re.escape(_SUFFIX)}|tmp\w+{re.escape(_PARTIAL)}")
_OLD = 3600.0  # seconds after which nobody writes a file any more
_CPU_LINES = (
    "vendor_id", "cpu family", "model", "model name", "stepping", "flags",
    "CPU implementer", "CPU variant", "CPU part", "CPU revision", "Features",
)  # fmt: skip


@dataclass(frozen=True)
class CompiledGraph:
    """A compiled graph in bytes, and the names of those inputs that its outputs depend on."""

    needed: frozenset[str]
    blob: bytes | memoryview


class CompiledCache:
    """A folder of compiled graphs by key."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        """Use a folder, which is made with the first graph."""
        self._folder = folder
        self._most = most_bytes

    @classmethod
    def of_user(cls) -> "CompiledCache | None":
        """Return the cache of this user; None: it is turned off, or there is no home."""
        given = os.environ.get(VARIABLE)
        if given == "":
            return None
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        folder = Path(given or os.path.join(base, "deploykit")).expanduser()
        if folder.is_absolute():
            return cls(folder / "openvino")
        if given:
            logger.warning("%s=%s is no absolute path, so nothing is cached", VARIABLE, given)
        return None

    def get(self, key: str) -> CompiledGraph | None:
        """Return a graph; None: there is none that is whole."""
        path = self._folder / f"{key}{_SUFFIX}"
        try:
            if not self._is_private():
                return None
            content = path.read_bytes()
        except OSError:
            return None
        start = len(_MAGIC) + _DIGEST
        body = memoryview(content)[start:]
        if content[:start] != _MAGIC + hashlib.sha256(body).digest():
            logger.warning("%s is damaged and is removed; the graph is compiled again", path)
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        length = int.from_bytes(body[:4], "big")
        header: dict[str, Any] = json.loads(bytes(body[4 : 4 + length]))
        with contextlib.suppress(OSError):
            os.utime(path)
        return CompiledGraph(frozenset(header["needed"]), bytes(body[4 + length :]))

    def takes(self, size: int) -> bool:
        """Say whether a graph of so many bytes may be kept."""
        return size <= self._most

    @contextlib.contextmanager
    def loading(self, key: str) -> Iterator[None]:
        """Note that graphs are loaded. KeyError: an earlier process ended while it did this.

        OpenVINO may end the process; without this, each start would end so.
        """
        mark = self._folder / f"{key}{_LOADING}"
        with contextlib.suppress(OSError):
            mark.unlink()
            raise KeyError(key)
        with contextlib.suppress(OSError):
            mark.touch()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                mark.unlink()

    def put(self, key: str, graph: CompiledGraph) -> None:
        """Keep a graph, whole or not at all; drop those unused for longest beyond the bound."""
        header = json.dumps({"needed": sorted(graph.needed)}).encode()
        pieces = (len(header).to_bytes(4, "big"), header, graph.blob)
        if not self.takes(sum(map(len, pieces))):
            return
        digest = hashlib.sha256()
        for piece in pieces:
            digest.update(piece)
        partial = ""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._is_private():
                return
            handle, partial = tempfile.mkstemp(dir=self._folder, suffix=_PARTIAL)
            with os.fdopen(handle, "wb") as file:
                file.writelines((_MAGIC, digest.digest(), *pieces))
            os.replace(partial, self._folder / f"{key}{_SUFFIX}")
            self._shrink()
        except OSError as error:
            logger.debug("%s: the compiled graph is not kept: %s", self._folder, error)
            with contextlib.suppress(OSError):
                os.unlink(partial)

    def _is_private(self) -> bool:
        """Say whether nobody else can write there: OpenVINO trusts what it reads."""
        result = self._folder.stat()
        return result.st_uid == os.geteuid() and not result.st_mode & (stat.S_IWGRP | stat.S_IWOTH)

    def _shrink(self) -> None:
        """Remove files of this cache alone: the folder may hold others."""
        files = []
        for entry in os.scandir(self._folder):
            with contextlib.suppress(OSError):  # another process removed it
                result = entry.stat(follow_symlinks=False)
                if _OURS.fullmatch(entry.name) and stat.S_ISREG(result.st_mode):
                    files.append((result.st_mtime, result.st_size, entry.path))
        total = sum(size for _, size, _ in files)
        for used, size, path in sorted(files):
            is_partial = path.endswith(_PARTIAL)
            if used < time.time() - _OLD if is_partial else total > self._most:
                total -= size
                with contextlib.suppress(OSError):
                    os.unlink(path)


def key_of(graph_def: bytes, facts: Mapping[str, object]) -> str:
    """Return the key of a graph, with all else that decides how it is compiled."""
    text = json.dumps({**facts, "machine": _machine()}, sort_keys=True, default=str)
    return hashlib.sha256(hashlib.sha256(graph_def).digest() + text.encode()).hexdigest()


def _machine() -> list[str]:
    """Return what a compiled graph depends on of the machine."""
    results = [platform.machine(), str(os.cpu_count()), str(len(os.sched_getaffinity(0)))]
    with contextlib.suppress(OSError):
        first = Path("/proc/cpuinfo").read_text(errors="replace").partition("\n\n")[0]
        results += [line for line in first.splitlines()
                  if line.partition(":")[0].strip() in _CPU_LINES]  # fmt: skip
    return results
