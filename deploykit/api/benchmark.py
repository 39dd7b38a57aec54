"""How fast models are, with which settings, and behind which input."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import chain
from typing import Any

from deploykit.benchmarking.engines.own_engine import in_own_engine, say_emulated
from deploykit.benchmarking.feeding import MADE_UP, Feeding
from deploykit.benchmarking.measuring import ROUNDS, Advance, measure_models
from deploykit.benchmarking.profiling.traced_calls import RUNS
from deploykit.benchmarking.results import BenchmarkResult, check_tuned
from deploykit.benchmarking.scenarios.acting import measure_scenario
from deploykit.benchmarking.scenarios.timing import Timing
from deploykit.benchmarking.settings import Settings
from deploykit.benchmarking.sweep import Sweep, beside_resident
from deploykit.freezing.interface import Source
from deploykit.freezing.open_model import OpenedModel, open_models
from deploykit.input.input_benchmark import ROUNDS as INPUT_ROUNDS
from deploykit.input.input_benchmark import measure_input
from deploykit.input.input_result import InputResult
from deploykit.input.piping import PLAIN, Piping
from deploykit.input.runnable import open_runnable
from deploykit.input.samples import read_feeding
from deploykit.storage.parameters import with_options
from deploykit.text.progress import working
from deploykit.transforms.core.engines.engines import TITLES
from deploykit.transforms.core.errors import GraphError

DEFAULT = Sweep()
TURNS = Timing()
_FILES = "files reach TensorFlow alone"
_PART = [each.name for each in fields(Source) if each.name != "model"]


def benchmark(
    models: Any,
    settings: Sweep | Settings | Iterable[Settings] | Mapping[str, Iterable[Settings]] = DEFAULT,
    *,
    feeding: Feeding = MADE_UP,
    piping: Piping = PLAIN,
    timing: Timing = TURNS,
    profile: bool = False,
    **options: Any,
) -> BenchmarkResult | InputResult:
    """Measure how fast models are, each with each of the settings, in turn.

    Each has several sessions, which take short turns in random order, so that whatever else the
    machine does hits all alike; `judgements` of the result say what is faster. In a `scenario`,
    each is measured alone, and its measurement says whether that is valid. The answers of another
    engine than TensorFlow are compared with TensorFlow's before. Where data are files, or
    `piping` is given, one model is measured behind each style of input.

    Args:
        models: whatever `open_model` takes; several in a list, or by name in a mapping.
        settings: what each is run with; a `Sweep` means every combination, a mapping is by model.
        feeding: data or made-up values. Ops that act on files or processes are refused but for
            `allowed_ops`.
        piping: how files reach the model, and what of it is run.
        timing: for how long, for how many calls, or in which scenario.
        profile: whether some calls of each are traced afterwards, in a pass of their own.
        options: fields of `Sweep`, `Feeding`, `Piping` and `Timing`, such as `batch`, `data`,
            `shuffle` and `seconds`, or of `Source`, such as `outputs`, which then count for all.

    Latencies are in milliseconds. Ctrl-C ends it early: what was measured until then is the result.
    FileError, GraphError: a model or the data cannot be read, do not fit each other, or what is
    asked for contradicts itself; a GPU or an engine is not there, or lacks an op, which is named.
    RefusedError: an op acts on files or processes. LimitError: TensorFlow died or hung.
    VerificationError: an engine is wrong.

    Example:
        >>> found = deploykit.benchmark("fashion.keras", batch=[1, 8], runs=20)
        >>> [each.samples for each in found.measurements]
        [1, 8]
    """
    source, feeding, piping, timing, chosen = _chosen(settings, options, feeding, piping, timing)
    part = {name: getattr(source, name) for name in _PART if name in options}
    tuned = options.get("base", settings.base if isinstance(settings, Sweep) else None)
    style = options.get("input", settings.input if isinstance(settings, Sweep) else None)
    with working("benchmark") as advance:
        if piping.reads_files(feeding.data, style):
            _refuse({"runs": timing.runs, "a scenario": timing.scenario, "profile": profile,
                     "shapes": feeding.shapes})  # fmt: skip
            model, only = _only(models, chosen)
            more: dict[str, Any] = {"styles": piping.styles(style), "advance": advance,
                "seconds": timing.seconds, "rounds": timing.rounds or INPUT_ROUNDS}  # fmt: skip
            opened = open_runnable(model, piping, feeding.allowed_ops, **part)
            _check_tuned(tuned, opened)
            say_emulated(opened, _FILES)
            return measure_input(opened, feeding.path, piping, only, **more)
        every = _opened(models, part, feeding, tuned)
        feeding, fed = read_feeding(feeding, *(each.graph for each in every.values()))
        several = _settings_of(every, chosen, settings, options, timing)
        runs = RUNS if profile else 0
        return replace(_measured(every, several, feeding, timing, runs, advance), fed=fed)


def _opened(
    models: Any, part: Mapping[str, Any], feeding: Feeding, tuned: Any
) -> Mapping[str, OpenedModel]:
    """Return the models by name, of which none acts beyond itself."""
    every = open_models(models, **part)
    for each in every.values():
        each.refuse_effects(feeding.allowed_ops)
    _check_tuned(tuned, *every.values())
    return every


def _check_tuned(tuned: Any, *models: OpenedModel) -> None:
    """Raise MismatchError where a file of `tune` was measured on none of the models."""
    if isinstance(tuned, str | os.PathLike):
        check_tuned(tuned, {each.source: each.sha256 for each in models})


def _measured(
    models: Mapping[str, OpenedModel],
    settings: Mapping[str, Sequence[Settings]],
    feeding: Feeding,
    timing: Timing,
    profile_runs: int,
    advance: Advance,
) -> BenchmarkResult:
    """Return what was measured of models that are not behind files."""
    if profile_runs and any(each.engine for several in settings.values() for each in several):
        raise GraphError("profile-tensorflow-only")
    more: dict[str, Any] = {"profile_runs": profile_runs, "advance": advance}
    if timing.scenario is not None:
        return measure_scenario(models, settings, feeding, timing, **more)
    more |= {"seconds": timing.seconds, "runs": timing.runs, "rounds": timing.rounds or ROUNDS}
    return measure_models(models, settings, feeding, **more)


def _settings_of(
    models: Mapping[str, OpenedModel],
    chosen: tuple[Settings, ...],
    settings: Any,
    options: Mapping[str, Any],
    timing: Timing,
) -> Mapping[str, Sequence[Settings]]:
    """Return the settings of each model: in its own engine, where no other is named.

    What is fed to a GPU has resident inputs beside it, where nobody says how inputs come.
    GraphError: a mapping names other models than there are.
    """
    is_open = isinstance(settings, Sweep) and options.get("input", settings.input) is None
    if is_open and timing.scenario is None:
        chosen = beside_resident(chosen)
    if isinstance(settings, Mapping):
        if set(settings) != set(models):
            raise GraphError("settings-models-count", settings=settings, models=models)
        return {name: tuple(settings[name]) for name in models}
    if "engine" in options or not isinstance(settings, Sweep) or settings.names_engine:
        return dict.fromkeys(models, chosen)
    return {name: in_own_engine(each, chosen) for name, each in models.items()}


def _chosen(
    settings: Sweep | Settings | Iterable[Settings] | Mapping[str, Iterable[Settings]],
    options: Mapping[str, Any],
    feeding: Feeding,
    piping: Piping,
    timing: Timing,
) -> tuple[Source, Feeding, Piping, Timing, tuple[Settings, ...]]:
    """Return the parameters with their options, and the settings to measure."""
    name, objects = "benchmark", (Source(None), feeding, piping, timing)
    if isinstance(settings, Settings):
        settings = Sweep(base=settings)
    if isinstance(settings, Sweep):
        found = with_options(name, options, *objects, settings)
        source, feeding, piping, timing, sweep = found
        several, is_chosen = sweep.settings(), bool(sweep.concurrency)
    else:
        source, feeding, piping, timing = with_options(name, options, *objects)
        each_one = chain(*settings.values()) if isinstance(settings, Mapping) else settings
        several, is_chosen = [*each_one], True
    timing.check()
    every = tuple(timing.settings(each, chosen=is_chosen) for each in several)
    for each in every:
        each.check_here()
    return source, feeding, piping, timing, every


def _only(models: Any, settings: tuple[Settings, ...]) -> tuple[Any, Settings]:
    """Return the model and the settings to measure behind files. GraphError: there are several."""
    several = [*models.values()] if isinstance(models, Mapping) else models
    if not isinstance(several, list | tuple):
        several = [several]
    if settings[0].engine is not None:
        raise GraphError("files-one-path-only", what=_FILES, engine=TITLES[settings[0].engine])
    if len(several) != 1 or len(settings) != 1 or settings[0].concurrency > 1:
        raise GraphError("files-one-measurement")
    return several[0], settings[0]


def _refuse(given: Mapping[str, Any]) -> None:
    """Raise GraphError for what has no meaning where data are read from files."""
    for name, value in given.items():
        if value:
            raise GraphError("option-conflicts-files", option=name)
