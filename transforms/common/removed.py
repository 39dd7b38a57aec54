"""What deploykit had before version 0.2, and what takes its place.

Its users get one sentence instead of a missing name. The sentences stay until version 0.4.
"""

from collections.abc import Mapping

from deploykit.transforms.common.errors import Error

_REPLICAS = (
    "`deploykit load-test` finds the highest rate of one replica within a latency limit, and "
    "docs/scaling.md has the formula for the number of replicas"
)
COMMANDS: Mapping[str, str] = {"plan": _REPLICAS}
"""What takes the place of a command, by its words; also of its table in deploykit.toml."""
NAMES: Mapping[str, str] = {
    "PlanOptions": _REPLICAS,
    "ReplicaPlan": _REPLICAS,
    "plan": _REPLICAS,
}
"""What takes the place of a public name of the package `deploykit`."""


def check_command(words: str) -> None:
    """Raise Error for a command that was removed."""
    _check("the command", words, COMMANDS)


def check_name(name: str) -> None:
    """Raise AttributeError for a public name that was removed."""
    try:
        _check("deploykit.", name, NAMES)
    except Error as error:
        raise AttributeError(str(error)) from None


def _check(kind: str, name: str, removed: Mapping[str, str]) -> None:
    if name in removed:
        what = f"{kind}{name}" if kind.endswith(".") else f"{kind} '{name}'"
        raise Error("removed", what=what, instead=removed[name])
