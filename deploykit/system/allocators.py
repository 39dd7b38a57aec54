"""Memory allocators other than the C library's default, and whether they are available.

A process selects its allocator at start: tcmalloc (gperftools) is preloaded, and the C library
itself requests huge pages if a tunable is set. Sources: ld.so(8); the GNU C Library manual, Memory
Allocation Tunables; the kernel's Transparent Hugepage Support.
"""

import functools
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from deploykit.transforms.common.errors import GraphError

ALLOCATORS = ("tcmalloc", "huge-pages")
PRELOAD, TUNABLES = "LD_PRELOAD", "GLIBC_TUNABLES"
LIBRARIES = ("libtcmalloc_minimal.so.4", "libtcmalloc.so.4")
PACKAGE = "libtcmalloc-minimal4"
"""Package of tcmalloc in Debian and Ubuntu."""
_OF_MALLOC, _HUGE_PAGES = "glibc.malloc.", "glibc.malloc.hugetlb"
_NEEDED = (2, 35)  # of glibc
_REPLACES = re.compile(r"(?:tc|je|mi)malloc")
_FOLDERS = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/local/lib", "/usr/local/lib64")
_CACHE = ("/sbin/ldconfig", "/usr/sbin/ldconfig")
_PROGRAM = Path("/proc/self/exe")
_MODE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_CLASS, _MACHINE = slice(4, 6), slice(18, 20)  # bytes of an ELF header


def variables(name: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables for an allocator; values in `given` are preserved."""
    if name == "tcmalloc":
        others = [part for part in re.split("[ :]+", given.get(PRELOAD, "")) if part]
        library = library_here() or LIBRARIES[0]
        return {PRELOAD: ":".join([library, *(other for other in others if other != library)])}
    others = [part for part in given.get(TUNABLES, "").split(":") if part]
    others = [other for other in others if other.partition("=")[0] != _HUGE_PAGES]
    return {TUNABLES: ":".join([*others, f"{_HUGE_PAGES}=1"])}


def is_tuned(given: Mapping[str, str]) -> bool:
    """Return whether the user has tuned the C library's malloc, other than with huge pages."""
    tunables = (part.partition("=")[0] for part in given.get(TUNABLES, "").split(":"))
    return any(tunable.startswith(_OF_MALLOC) and tunable != _HUGE_PAGES for tunable in tunables)


def held(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the variables with which the user has already selected an allocator."""
    chosen = {PRELOAD: _REPLACES.search(given.get(PRELOAD, "")),
              TUNABLES: _OF_MALLOC in given.get(TUNABLES, "")}  # fmt: skip
    return tuple(name for name, is_chosen in chosen.items() if is_chosen)


def lacking(name: str) -> str:
    """Return why an allocator is not available, and what to do; empty: it is available."""
    if name == "tcmalloc":
        if library_here():
            return ""
        return f"{' or '.join(LIBRARIES)} is not installed (Debian and Ubuntu: {PACKAGE})"
    libc, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    numbers = tuple(int(item) for item in re.findall(r"\d+", version)[:2])
    if libc != "glibc" or numbers < _NEEDED:
        return f"it needs glibc {'.'.join(map(str, _NEEDED))}; found {libc} {version}".rstrip()
    mode = _mode()
    if mode == "madvise":
        return ""
    gives = {"always": "uses them for all processes already", "never": "disables them"}
    return f"the kernel {gives.get(mode, 'does not report whether it has them')} ({_MODE})"


def in_force(maps: Path = Path("/proc/self/maps")) -> tuple[str, ...]:
    """Return the names of the libraries in this process that replace the C library's malloc."""
    lines = maps.read_text(errors="replace").splitlines()
    paths = (item[5] for line in lines if len(item := line.split(None, 5)) == 6)
    names = (path.rpartition("/")[2] for path in paths)
    return tuple(dict.fromkeys(name for name in names if _REPLACES.search(name)))


def check_in_force(name: str | None) -> None:
    """Raise GraphError if this process requires tcmalloc, but started without it."""
    if name == "tcmalloc" and not in_force():
        raise GraphError("tcmalloc-not-loaded")


@functools.cache
def library_here() -> str:
    """Return the path of tcmalloc for this CPU architecture; empty: it is not installed."""
    own = _kind(_PROGRAM)
    for path in _candidates():
        kind = _kind(path)
        if kind and kind == own:
            return str(path)
    return ""


def _candidates() -> Iterator[Path]:
    """Yield possible paths of the libraries: from the loader's cache, then in common folders."""
    listed = _loader_cache()
    for name in LIBRARIES:
        yield from (Path(path) for path in re.findall(rf"^\s*{name} .*=> (.+)$", listed, re.M))
    for folder in (*os.environ.get("LD_LIBRARY_PATH", "").split(":"), *_FOLDERS):
        for name in LIBRARIES if folder else ():
            yield Path(folder, name)
            yield from Path(folder).glob(f"*-linux-gnu*/{name}")


def _loader_cache() -> str:
    for program in _CACHE:
        try:
            done = subprocess.run([program, "-p"], capture_output=True, timeout=10, check=False)
        except (OSError, subprocess.SubprocessError):
            continue
        return done.stdout.decode(errors="replace")
    return ""


def _kind(path: Path) -> bytes:
    """Return the architecture of a program or library; empty: not an ELF file, or not readable."""
    try:
        with path.open("rb") as file:
            start = file.read(20)
    except OSError:
        return b""
    return start[_CLASS] + start[_MACHINE] if start[:4] == b"\x7fELF" else b""


def _mode() -> str:
    """Return the kernel's mode for huge pages: always, madvise (on request) or never."""
    try:
        match = re.search(r"\[(\w+)\]", _MODE.read_text())
    except OSError:
        return ""
    return match[1] if match else ""
