"""Environment variables of the process that runs a model, which are settings of a run.

Libraries read them when they start: OpenMP, oneDNN, the C library. A value of None unsets one.
"""

import itertools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
BLOCKTIME, TEXT = r"\A([0-9]{1,9}|infinite)\Z", r"\A[ -~]{0,1000}\Z"
Threads = Annotated[int, Meta(ge=1, le=MAX_THREADS)]
_NAME, _VALUE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}"), re.compile(r"[^\0]{0,4000}", re.DOTALL)
_FROM_FILES = re.compile(rf"(KMP|OMP|MALLOC)_\w*|TF_ENABLE_ONEDNN_OPTS|{CALLER_THREAD}")
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
        switch = None if self.caller_thread is None else int(self.caller_thread)
        values = {
            "KMP_BLOCKTIME": self.kmp_blocktime,
            "KMP_AFFINITY": self.kmp_affinity,
            "OMP_NUM_THREADS": self.omp_num_threads,
            CALLER_THREAD: switch,
        }
        return {name: str(value) for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class _Stored:
    env: dict[str, str | None] = field(default_factory=dict)


FORMER = tuple(FormerSettings.__dataclass_fields__)


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
    return {n: v for n, v in dict(variables).items() if _FROM_FILES.fullmatch(n)}


def check_from_file(variables: Variables, own: Variables = ()) -> None:
    """Raise GraphError for variables of a file that may load code, or whose text is unusual.

    `own` are variables that the user has given besides.
    """
    values = dict({*dict(variables).items()} - {*dict(own).items()})
    check_storable(values)
    for name, value in values.items():
        if not re.search(TEXT, value or ""):
            raise GraphError("variable-value", name=name)


def check_storable(names: Iterable[str]) -> None:
    """Raise GraphError for a variable that is not taken from a file."""
    for name in names:
        if not _FROM_FILES.fullmatch(name):
            raise GraphError("variable-from-file", name=name)


def combinations(given: Given) -> list[dict[str, str | None]]:
    """Return every combination of the values of variables."""
    values = [[v] if v is None or isinstance(v, str | int) else [*v] for v in given.values()]
    each = itertools.product(*values)
    return [
        {n: None if v is None else str(v) for n, v in zip(given, chosen, strict=True)}
        for chosen in each
    ]


def is_openmp(name: str) -> bool:
    """Return whether OpenMP reads a variable."""
    return name.startswith(_OPENMP)


def without_openmp(variables: Variables) -> Variables:
    """Return the variables without those of OpenMP."""
    return {n: v for n, v in dict(variables).items() if not is_openmp(n)}


def outside_tensorflow(variables: Variables) -> Variables:
    """Return the variables that other engines read too."""
    return {n: v for n, v in dict(variables).items() if not n.startswith(_OF_TENSORFLOW)}


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


def check_preloaded(variables: Variables, maps: str) -> None:
    """Raise GraphError for a library in LD_PRELOAD that this process did not load.

    The loader ignores such a library. `maps` is the text of /proc/self/maps.
    """
    wanted = re.split("[ :]+", dict(variables).get(PRELOAD) or "")
    for library in filter(None, wanted):
        names = {path.rpartition("/")[2] for path in (library, os.path.realpath(library))}
        if not any(name in maps for name in names):
            raise GraphError("preload-missing", library=library)
