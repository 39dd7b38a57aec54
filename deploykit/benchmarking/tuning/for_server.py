"""What `tune` recommends, as a server can have it: variables, and what it cannot do at all."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, replace

from deploykit.benchmarking.settings import RunConfig
from deploykit.hardware import allocators
from deploykit.transforms.core.errors import GraphError

_NO_GPU = ("", "-1")
_ONE_GPU = ("gpu", "gpu:0")


def check_served(
    settings: RunConfig, name: str, gpu: bool = True, engines: Collection[str] = ()
) -> None:
    """Raise GraphError for a setting that no server has; `name` is where it comes from.

    `gpu` says whether it may be one that runs on the first GPU, `engines` are those that it has
    besides TensorFlow.
    """
    device = settings.device == "cpu" or (gpu and settings.device in _ONE_GPU)
    plain = settings.precision is None or (settings.precision, settings.device) == ("fp32", "cpu")
    refused = {"precision": not plain, "input": settings.input != "feed", "device": not device,
               "engine": settings.engine not in (None, *engines)}  # fmt: skip
    for setting, is_refused in refused.items():
        if is_refused:
            raise GraphError(
                "tuned-setting-not-served", name=name, field=setting, got=getattr(settings, setting)
            )


def to_set(settings: RunConfig, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to set beside those that are set: of no setting that these hold."""
    found: dict[str, str] = {}
    for part in _parts(settings):
        if not _held(part, variables) and not _lacking(part):
            found |= {name: value for name, value in part.environment.items() if value is not None}
    return found


def unlike(settings: RunConfig, variables: Mapping[str, str]) -> Iterator[str]:
    """Yield in words what is recommended, and otherwise in these variables."""
    for part in _parts(settings):
        wanted = part.environment
        held = {n: v for n, v in _held(part, variables).items() if v != wanted.get(n)}
        if part.device != "cpu":
            held = {n: v for n, v in _held(part, variables).items() if v in _NO_GPU}
        unset = [f"{n}={v}" for n, v in wanted.items() if v not in (None, variables.get(n))]
        if held:
            said = " and ".join(f"{n}={v}" for n, v in held.items())
            yield f"{part}; {said} {'is set, and stays' if len(held) == 1 else 'are set, and stay'}"
        elif unset and (why := _lacking(part)):
            yield f"{part}, which cannot be had here: {why}"
        elif unset:
            yield f"{part}; this process began without {' '.join(unset)}, and cannot change that"


def _parts(settings: RunConfig) -> Iterator[RunConfig]:
    """Yield what is set by variables, one setting at a time."""
    for setting in fields(RunConfig):
        part = replace(RunConfig(), **{setting.name: getattr(settings, setting.name)})
        if part.environment and setting.name != "engine":  # a server sees to its own
            yield part


def _held(part: RunConfig, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are set already and hold a setting."""
    if part.allocator is not None:
        return {name: variables[name] for name in allocators.held(variables)}
    found = {name: variables[name] for name in part.environment if name in variables}
    if part.keep_memory is not None and allocators.is_tuned(variables):
        found[allocators.TUNABLES] = variables[allocators.TUNABLES]
    return found


def _lacking(part: RunConfig) -> str:
    """Say why this machine does not have an allocator; empty: it has, or none is asked for."""
    return "" if part.allocator is None else allocators.lacking(part.allocator)
