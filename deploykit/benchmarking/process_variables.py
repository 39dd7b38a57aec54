"""Environment variables of the process that runs a model, which are settings of a run.

Libraries read them when they start: OpenMP, oneDNN, the C library. A value of None unsets one.
"""

import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from deploykit.transforms.common.documents import converted
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.engines.engines import MAX_THREADS

Variables = tuple[tuple[str, str | None], ...] | Mapping[str, str | None]
"""Variables with their values; settings store pairs, sorted by name."""
Given = Mapping[str, "str | int | Sequence[str | int | None] | None"]
"""One value or several for each variable."""

PRELOAD, TUNABLES = "LD_PRELOAD", "GLIBC_TUNABLES"
CALLER_THREAD = "TF_ONEDNN_THREADPOOL_USE_CALLER_THREAD"
"""Whether the thread that calls oneDNN runs a share of the work."""
THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
"""The number of threads per op and of concurrent ops, where no session states it."""
BLOCKTIME, TEXT = r"\A([0-9]{1,9}|infinite)\Z", r"\A[ -~]{0,1000}\Z"
Threads = Annotated[int, Meta(ge=1, le=MAX_THREADS)]
_NAME, _VALUE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}"), re.compile(r"[^\0]{0,4000}", re.DOTALL)
_FROM_FILES = re.compile(rf"(KMP|OMP|MALLOC)_\w*|TF_ENABLE_ONEDNN_OPTS|{CALLER_THREAD}")
_NOT_FROM_FILES = re.compile(r"OMP_(TOOL|DEBUG)\w*|KMP_\w*(FILE|STATS)\w*|MALLOC_(CONF|TRACE)")
"""Variables that load a library (OMP_TOOL_LIBRARIES), name a file or configure jemalloc."""
RESERVED = frozenset({"PYTHONPATH"})
"""Variables that every process of deploykit has, with its own value."""
_OPENMP = ("KMP_", "OMP_")
_OF_TENSORFLOW = (*_OPENMP, "TF_")
_OTHER_MALLOC = re.compile(r"(?:tc|je|mi)malloc")


@dataclass(frozen=True, kw_only=True)
class FormerSettings:
    """Settings that older files and options have in place of variables."""

    kmp_blocktime: Annotated[str, Meta(pattern=BLOCKTIME)] | None = None
    kmp_affinity: Annotated[str, Meta(pattern=TEXT)] | None = None
    omp_num_threads: Threads | None = None
    caller_thread: bool | None = None

    @property
    def variables(self) -> dict[str, str | None]:
        """The variables that the settings stand for."""
        return {
            variable: str(int(value) if isinstance(value, bool) else value)
            for name, variable in FORMER.items()
            if (value := getattr(self, name)) is not None
        }


@dataclass(frozen=True)
class _Stored:
    env: dict[str, str | None] = field(default_factory=dict)


FORMER: Mapping[str, str] = {
    "kmp_blocktime": "KMP_BLOCKTIME",
    "kmp_affinity": "KMP_AFFINITY",
    "omp_num_threads": "OMP_NUM_THREADS",
    "caller_thread": CALLER_THREAD,
}
"""The variable of each former setting."""


def by_name(variables: Variables) -> dict[str, str | None]:
    """Return the value of each variable."""
    return dict(variables)


def sorted_variables(given: Variables) -> tuple[tuple[str, str | None], ...]:
    """Return variables sorted by name. GraphError: a name or a value is not possible."""
    results = {}
    for name, value in dict(given).items():
        if not _NAME.fullmatch(name):
            raise GraphError("variable-name", name=name)
        results[name] = None if value is None else str(value)
        if not _VALUE.fullmatch(results[name] or ""):
            raise GraphError("variable-value", name=name)
    return tuple(sorted(results.items()))


def parsed(plain: Any) -> dict[str, str | None]:
    """Return the variables of a document of settings. GraphError: one is not a text."""
    return converted(plain, _Stored).env


def stored(variables: Variables) -> dict[str, str | None]:
    """Return the variables that a file may set."""
    return {n: v for n, v in dict(variables).items() if _is_storable(n) and _is_plain(v)}


def check_from_file(variables: Variables, own: Collection[tuple[str, str | None]] = ()) -> None:
    """Raise GraphError for variables of a file that may load code, or whose text is unusual.

    `own` are variables that the user has given besides.
    """
    values = {name: value for name, value in dict(variables).items() if (name, value) not in own}
    check_storable(values)
    for name, value in values.items():
        if not _is_plain(value):
            raise GraphError("variable-value", name=name)


def check_storable(names: Iterable[str]) -> None:
    """Raise GraphError for a variable that is not taken from a file."""
    for name in names:
        if not _is_storable(name):
            raise GraphError("variable-from-file", name=name)


def _is_storable(name: str) -> bool:
    return bool(_FROM_FILES.fullmatch(name)) and not _NOT_FROM_FILES.fullmatch(name)


def _is_plain(value: str | None) -> bool:
    return re.search(TEXT, value or "") is not None


def combinations(given: Given) -> list[dict[str, str | None]]:
    """Return every combination of the values of variables. GraphError: one has no values."""
    if not isinstance(given, Mapping):
        raise GraphError("variable-values", name="all variables", got=given)
    each = itertools.product(*(_values(name, value) for name, value in given.items()))
    return [
        {n: None if v is None else str(v) for n, v in zip(given, chosen, strict=True)}
        for chosen in each
    ]


def _values(name: str, given: Any) -> list[str | int | None]:
    several = isinstance(given, Collection) and not isinstance(given, str | bytes | Mapping)
    values: list[Any] = list(given) if several else [given]
    if not values or not all(value is None or isinstance(value, str | int) for value in values):
        raise GraphError("variable-values", name=name, got=given)
    return values


def is_openmp(name: str) -> bool:
    """Return whether OpenMP reads a variable."""
    return name.startswith(_OPENMP)


def without_openmp(variables: Variables) -> Variables:
    """Return the variables without those of OpenMP."""
    return {n: v for n, v in dict(variables).items() if not is_openmp(n)}


def outside_tensorflow(variables: Variables) -> Variables:
    """Return the variables that other engines read too, without another malloc.

    OpenVINO crashes with tcmalloc and jemalloc.
    """
    results = {n: v for n, v in dict(variables).items() if not n.startswith(_OF_TENSORFLOW)}
    if preloads_malloc(results):
        del results[PRELOAD]
    return results


def in_words(variables: Variables) -> list[str]:
    """Return each variable as `NAME=VALUE` or `NAME unset`."""
    return [f"{n} unset" if v is None else f"{n}={v}" for n, v in dict(variables).items()]


def preloads_malloc(variables: Mapping[str, str | None]) -> bool:
    """Return whether a library is preloaded that replaces the C library's malloc."""
    return bool(_OTHER_MALLOC.search(variables.get(PRELOAD) or ""))


def tunes_malloc(variables: Mapping[str, str | None]) -> bool:
    """Return whether the C library's malloc is tuned, other than with huge pages."""
    names = [part.partition("=")[0] for part in (variables.get(TUNABLES) or "").split(":")]
    return any(n.startswith("glibc.malloc.") and n != "glibc.malloc.hugetlb" for n in names)


def check_preloaded(variables: Variables, maps: Path = Path("/proc/self/maps")) -> None:
    """Raise GraphError for a library in LD_PRELOAD that this process did not load.

    The loader ignores such a library.
    """
    if PRELOAD not in dict(variables):
        return
    lines = maps.read_text(errors="replace").splitlines()
    loaded = {line.rpartition("/")[2] for line in lines if "/" in line}
    wanted = re.split("[ :]+", dict(variables).get(PRELOAD) or "")
    for library in filter(None, wanted):
        real = Path(library).resolve() if "/" in library else Path(library)
        versions = re.compile(rf"{re.escape(real.name)}(\.[\d.]+)?")
        is_there = real.exists() or "/" not in library
        if not (is_there and any(map(versions.fullmatch, loaded))):
            raise GraphError("preload-missing", library=library)
