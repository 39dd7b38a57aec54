"""A cache of graphs compiled by OpenVINO, valid for one machine and one OpenVINO version.

A file is used only if its SHA-256 matches, which covers its key: a renamed file is not used.
Damaged, old and excess files are removed, and a folder that is not writable causes no error.
DEPLOYKIT_CACHE_DIR names another folder; an empty value disables the cache.
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
MAX_BYTES = 1 << 30  # of all files together; the least recently used are removed first
_MAGIC, _DIGEST = b"deploykit compiled graph 2\n", hashlib.sha256().digest_size
_SUFFIX, _PARTIAL, _LOADING = ".blob", ".partial", ".loading"
_OURS = re.compile(rf"[0-9a-f]{{64}}{re.escape(_SUFFIX)}|tmp\w+{re.escape(_PARTIAL)}")
_OLD = 3600.0  # seconds after which an unfinished file is abandoned
_CPU_LINES = (
    "vendor_id", "cpu family", "model", "model name", "stepping", "flags",
    "CPU implementer", "CPU variant", "CPU part", "CPU revision", "Features",
)  # fmt: skip


@dataclass(frozen=True)
class CompiledGraph:
    """The bytes of a compiled graph, and the names of the inputs that its outputs depend on."""

    needed: frozenset[str]
    blob: bytes | memoryview


class CompiledCache:
    """A folder of compiled graphs by key."""

    def __init__(self, folder: Path, most_bytes: int = MAX_BYTES) -> None:
        """Create a cache in a folder, which is created with the first graph."""
        self._folder = folder
        self._most = most_bytes

    @classmethod
    def of_user(cls) -> "CompiledCache | None":
        """Return the cache of this user; None: it is disabled, or the home folder is unknown."""
        given = os.environ.get(VARIABLE)
        if given == "":
            return None
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        folder = Path(given or os.path.join(base, "deploykit")).expanduser()
        if folder.is_absolute():
            return cls(folder / "openvino")
        if given:
            logger.warning("%s=%s is not an absolute path, so nothing is cached", VARIABLE, given)
        return None

    def get(self, key: str) -> CompiledGraph | None:
        """Return a graph; None: it is missing or damaged."""
        path = self._folder / f"{key}{_SUFFIX}"
        try:
            if not self._is_private():
                return None
            content = path.read_bytes()
        except OSError:
            return None
        start = len(_MAGIC) + _DIGEST
        body = memoryview(content)[start:]
        if content[:start] != _MAGIC + _digest(key, body):
            logger.warning(
                "%s is damaged or belongs to another graph, and is removed; compiling again", path
            )
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        length = int.from_bytes(body[:4], "big")
        header: dict[str, Any] = json.loads(bytes(body[4 : 4 + length]))
        with contextlib.suppress(OSError):
            os.utime(path)
        return CompiledGraph(frozenset(header["needed"]), bytes(body[4 + length :]))

    def takes(self, size: int) -> bool:
        """Return whether a graph of this size in bytes may be cached."""
        return size <= self._most

    @contextlib.contextmanager
    def loading(self, key: str) -> Iterator[None]:
        """Record that graphs are being loaded. KeyError: an earlier process died while loading.

        OpenVINO may crash the process; without this record, each start would crash.
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
        """Store a graph atomically; remove the least recently used ones beyond the size limit."""
        header = json.dumps({"needed": sorted(graph.needed)}).encode()
        pieces = (len(header).to_bytes(4, "big"), header, graph.blob)
        if not self.takes(sum(map(len, pieces))):
            return
        partial = ""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._is_private():
                return
            handle, partial = tempfile.mkstemp(dir=self._folder, suffix=_PARTIAL)
            with os.fdopen(handle, "wb") as file:
                file.writelines((_MAGIC, _digest(key, *pieces), *pieces))
            os.replace(partial, self._folder / f"{key}{_SUFFIX}")
            self._shrink()
        except OSError as error:
            logger.debug("%s: the compiled graph is not cached: %s", self._folder, error)
            with contextlib.suppress(OSError):
                os.unlink(partial)

    def _is_private(self) -> bool:
        """Return whether only this user can write there, as OpenVINO trusts its files."""
        result = self._folder.stat()
        return result.st_uid == os.geteuid() and not result.st_mode & (stat.S_IWGRP | stat.S_IWOTH)

    def _shrink(self) -> None:
        """Remove files of this cache only, as the folder may contain others."""
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


def _digest(key: str, *pieces: bytes | memoryview) -> bytes:
    """Return the SHA-256 of a key, whose length is fixed, and of what its file contains."""
    digest = hashlib.sha256(key.encode())
    for piece in pieces:
        digest.update(piece)
    return digest.digest()


def key_of(graph_def: bytes, facts: Mapping[str, object]) -> str:
    """Return the key of a graph, including all settings that affect its compilation."""
    text = json.dumps({**facts, "machine": _machine()}, sort_keys=True, default=str)
    return hashlib.sha256(hashlib.sha256(graph_def).digest() + text.encode()).hexdigest()


def _machine() -> list[str]:
    """Return the properties of the machine that a compiled graph depends on."""
    results = [platform.machine(), str(os.cpu_count()), str(len(os.sched_getaffinity(0)))]
    with contextlib.suppress(OSError):
        first = Path("/proc/cpuinfo").read_text(errors="replace").partition("\n\n")[0]
        results += [line for line in first.splitlines()
                  if line.partition(":")[0].strip() in _CPU_LINES]  # fmt: skip
    return results
