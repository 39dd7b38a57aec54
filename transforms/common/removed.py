"""What deploykit had before version 0.2, and what takes its place.

Its users get one sentence instead of a missing name. The sentences stay until version 0.4.
"""

from collections.abc import Mapping

from deploykit.transforms.common.errors import Error

_REPLICAS = (
    "`deploykit load-test` finds the highest rate of one replica within a latency limit, and "
    "docs/scaling.md has the formula for the number of replicas"
)
_LOADS = (
    "`deploykit load-test` sends requests to a served model at a rate, or from concurrent clients"
)
_SERVICE = (
    "start a tf.data service as docs/input.md shows, and name it with `--service-address HOST:PORT`"
)
_SUMMARY = (
    "`-o FILE` writes the checks as JSON, of which a recipe in docs/gate.md makes a job summary"
)
_TOKENS = (
    "the transform split_tokens(tensor=INPUT) computes the tokens of an encoder in two parallel "
    "parts; no command does that by itself"
)
_ALLOCATOR = (
    "`--env LD_PRELOAD=/path/to/libtcmalloc_minimal.so.4` or `--env "
    "GLIBC_TUNABLES=glibc.malloc.hugetlb=1` sets the allocator of the measured process"
)
COMMANDS: Mapping[str, str] = {"plan": _REPLICAS}
"""What takes the place of a command, by its words; also of its table in deploykit.toml."""
NAMES: Mapping[str, str] = dict.fromkeys(("PlanOptions", "ReplicaPlan", "plan"), _REPLICAS)
"""What takes the place of a public name of the package `deploykit`."""


OPTIONS: Mapping[str, Mapping[str, str]] = {
    "benchmark": {
        "--allocator": _ALLOCATOR,
        **dict.fromkeys(("--latency-limit", "--rate", "--scenario"), _LOADS),
        **dict.fromkeys(("--service", "--service-workers"), _SERVICE),
    },
    "gate": {"--annotations": _SUMMARY, "--comment": _SUMMARY},
    "quantize": {"--whole-tokens": _TOKENS},
}
"""What takes the place of an option, by the words of its command.

Also of a key of its table in deploykit.toml.
"""
FIELDS: Mapping[str, Mapping[str, str]] = {
    "BenchmarkOptions": dict.fromkeys(("latency_limit", "rate", "scenario"), _LOADS),
    "InputPipelineOptions": dict.fromkeys(("service_workers", "workers"), _SERVICE),
    "QuantizeOptions": {"whole_tokens": _TOKENS},
    "RunConfig": {"allocator": _ALLOCATOR},
    "RunConfigGrid": {"allocator": _ALLOCATOR},
}
"""What takes the place of a field, by the name of its class.

Also of a keyword argument of the functions that take the fields of the class.
"""


def check_command(words: str, source: str = "") -> None:
    """Raise Error for a command that was removed; `source` is the file that has its table."""
    _check(f"the command '{words}'", words, COMMANDS, source)


def check_option(words: str, option: str, source: str = "") -> None:
    """Raise Error for an option of a command that was removed; `source` is the file with it."""
    _check(f"the option '{option}'", option, OPTIONS.get(words, {}), source)


def check_field(function: str, kind: str, name: str) -> None:
    """Raise TypeError for a removed field of a class; `function` got it as a keyword argument."""
    try:
        _check(f"{function}({name}=...)", name, FIELDS.get(kind, {}))
    except Error as error:
        raise TypeError(str(error)) from None


def check_name(name: str) -> None:
    """Raise AttributeError for a public name that was removed."""
    try:
        _check(f"deploykit.{name}", name, NAMES)
    except Error as error:
        raise AttributeError(str(error)) from None


def _check(what: str, name: str, removed: Mapping[str, str], source: str = "") -> None:
    if name in removed:
        error = Error("removed", what=what, instead=removed[name])
        raise error.within(source) if source else error
