"""How fast models are, with which settings, and behind which input."""

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from deploykit.benchmarking.feeding import MADE_UP, Feeding
from deploykit.benchmarking.measuring import ROUNDS, measure_models
from deploykit.benchmarking.profiling.traced_calls import RUNS
from deploykit.benchmarking.results import BenchmarkResult
from deploykit.benchmarking.settings import SECONDS, Settings, Sweep
from deploykit.freezing.interface import Source
from deploykit.freezing.open_model import OpenedModel, open_model
from deploykit.input.input_benchmark import ROUNDS as INPUT_ROUNDS
from deploykit.input.input_benchmark import measure_input
from deploykit.input.input_result import InputResult
from deploykit.input.piping import PLAIN, Piping
from deploykit.input.runnable import open_runnable
from deploykit.input.samples import read_feeding
from deploykit.storage.parameters import with_options
from deploykit.text.progress import working
from deploykit.transforms.core.errors import GraphError

DEFAULT = Sweep()
_PART = [each.name for each in fields(Source) if each.name != "model"]


def benchmark(
    models: Any,
    settings: Sweep | Settings | Iterable[Settings] = DEFAULT,
    *,
    feeding: Feeding = MADE_UP,
    piping: Piping = PLAIN,
    seconds: float = SECONDS,
    runs: int | None = None,
    rounds: int | None = None,
    profile: bool = False,
    **options: Any,
) -> BenchmarkResult | InputResult:
    """Measure how fast models are, each with each of the settings, in turn.

    Each has several sessions, which take short turns in random order, so that whatever else the
    machine does hits all alike; `judgements` of the result say what is faster. Where data are
    files, or `piping` is given, one model is measured behind each style of input.

    Args:
        models: whatever `open_model` takes; several in a list, or by name in a mapping.
        settings: what each is run with; a `Sweep` means every combination.
        feeding: data or made-up values. Ops that act on files or processes are refused but for
            `allowed_ops`.
        piping: how files reach the model, and what of it is run.
        seconds: how long each model or style of input is measured at most; less if all is decided.
        runs: how many calls instead.
        rounds: turns into which `runs` are divided (20), or of each style of input (5).
        profile: whether some calls of each are traced afterwards, in a pass of their own.
        options: fields of `Sweep`, `Feeding` and `Piping`, such as `batch`, `threads`, `data` and
            `shuffle`, or of `Source`, such as `outputs`, which then count for all models.

    Latencies are in milliseconds. Ctrl-C ends it early: what was measured until then is the result.

    FileError, GraphError: a model or the data cannot be read, do not fit each other, or what is
    asked for contradicts itself; a GPU is not there. RefusedError: an op acts on files or
    processes. LimitError: TensorFlow died or hung.

    Example:
        >>> found = deploykit.benchmark("fashion.keras", batch=[1, 8], runs=20)
        >>> [each.samples for each in found.measurements]
        [1, 8]
    """
    source, feeding, piping, chosen = _chosen(settings, options, feeding, piping)
    part = {name: getattr(source, name) for name in _PART if name in options}
    style = options.get("input", settings.input if isinstance(settings, Sweep) else None)
    with working("benchmark") as advance:
        more: dict[str, Any] = {"seconds": seconds, "advance": advance}
        if piping.reads_files(feeding.data, style):
            _refuse(runs=runs, profile=profile, shapes=feeding.shapes)
            model, only = _only(models, chosen)
            more |= {"styles": piping.styles(style), "rounds": rounds or INPUT_ROUNDS}
            opened = open_runnable(model, piping, feeding.allowed_ops, **part)
            return measure_input(opened, feeding.path, piping, only, **more)
        more |= {"runs": runs, "rounds": rounds or ROUNDS, "profile_runs": RUNS if profile else 0}
        every = _opened(models, part)
        for each in every.values():
            each.refuse_effects(feeding.allowed_ops)
        feeding, fed = read_feeding(feeding, *(each.graph for each in every.values()))
        return replace(measure_models(every, chosen, feeding, **more), fed=fed)


def _chosen(
    settings: Sweep | Settings | Iterable[Settings],
    options: Mapping[str, Any],
    feeding: Feeding,
    piping: Piping,
) -> tuple[Source, Feeding, Piping, tuple[Settings, ...]]:
    """Return the parameters with their options, and the settings to measure."""
    source = Source(None)
    if isinstance(settings, Settings):
        settings = Sweep(base=settings)
    if isinstance(settings, Sweep):
        found = with_options("benchmark", options, source, feeding, piping, settings)
        return *found[:3], tuple(found[3].settings())
    return *with_options("benchmark", options, source, feeding, piping), tuple(settings)


def _opened(models: Any, part: Mapping[str, Any]) -> dict[str, OpenedModel]:
    """Return models by the names that they are measured under."""
    if isinstance(models, Mapping):
        return {str(name): open_model(each, **part) for name, each in models.items()}
    found: dict[str, OpenedModel] = {}
    for each in models if isinstance(models, list | tuple) else (models,):
        model = open_model(each, **part)
        name, count = model.source, 1
        while name in found:
            count += 1
            name = f"{model.source} ({count})"
        found[name] = model
    return found


def _only(models: Any, settings: tuple[Settings, ...]) -> tuple[Any, Settings]:
    """Return the model and the settings to measure behind files. GraphError: there are several."""
    several = [*models.values()] if isinstance(models, Mapping) else models
    if not isinstance(several, list | tuple):
        several = [several]
    if len(several) != 1 or len(settings) != 1 or settings[0].concurrency > 1:
        raise GraphError("input from files is measured with one model and one combination of "
                         "settings at a time")  # fmt: skip
    return several[0], settings[0]


def _refuse(**given: Any) -> None:
    """Raise GraphError for what has no meaning where data are read from files."""
    for name, value in given.items():
        if value:
            raise GraphError(f"{name} does not go with data that are read from files")
