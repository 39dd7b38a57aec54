"""benchmark: measure latency and throughput of models."""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Annotated, Any

from deploykit.api.public import Command, public
from deploykit.benchmarking.engines.engine_choice import in_own_engine, warn_emulated
from deploykit.benchmarking.inputs import SYNTHETIC, BenchmarkInputs
from deploykit.benchmarking.profiling.traced_calls import RUNS
from deploykit.benchmarking.results import BenchmarkResult, check_tuned
from deploykit.benchmarking.rounds import measure_models
from deploykit.benchmarking.run_config import BenchmarkOptions, RunConfig
from deploykit.benchmarking.run_config_grid import RunConfigGrid, beside_resident
from deploykit.data.input_speed.input_benchmark import ROUNDS as INPUT_ROUNDS
from deploykit.data.input_speed.input_benchmark import measure_input
from deploykit.data.input_speed.input_result import InputResult
from deploykit.data.pipeline import PLAIN, InputPipelineOptions
from deploykit.data.preprocessing import states_only_axes
from deploykit.data.samples import open_runnable, preprocessing_for, read_feeding, with_axes
from deploykit.importers.open_model import ModelLike, ModelsLike, OpenedModel, open_models
from deploykit.rendering.progress import working
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.common.flag import Flag
from deploykit.transforms.engines.engines import TITLES
from deploykit.verification.samples import PathLike

logger = logging.getLogger("deploykit")

DEFAULT = RunConfigGrid()
TURNS = BenchmarkOptions()
_FILES = "only TensorFlow reads data from files"


@public(Command(heading="Measuring"))
def benchmark(
    models: Annotated[ModelsLike, Flag(format="paths", metavar="MODEL...")],
    settings: RunConfigGrid
    | RunConfig
    | Iterable[RunConfig]
    | Mapping[str, Iterable[RunConfig]] = DEFAULT,
    *,
    feeding: BenchmarkInputs = SYNTHETIC,
    piping: InputPipelineOptions = PLAIN,
    timing: BenchmarkOptions = TURNS,
    profile: bool = False,
) -> BenchmarkResult | InputResult:
    """Measure how fast models run, with one or several settings.

    Every model runs with every combination of settings. Several sessions of each combination are
    interleaved in random order, so that other load on the machine affects all of them equally. Each
    session is warmed up until its latencies are stable. The run stops early once every comparison
    is conclusive.

    Each model is compared with the first one that has the same batch. The verdict is "faster" (wall
    time), "slower" (wall time or CPU time), "no difference" (below the stated percentage) or
    "inconclusive" (high variance).

    With `data` DIR, deploykit reads the files while the model runs, in three ways: Python, queues
    and tf.data. The result shows the read rate and the model's rate in samples per second, and
    which of the two is the bottleneck.

    After Ctrl-C, the result so far is written and shown.

    Args:
        models: any model that `open_model` accepts, a list of models, or a mapping from names to
            models.
        settings: the run settings. A `RunConfigGrid` stands for every combination of its values; a
            mapping gives the settings of each model.
        feeding: the model inputs: data or synthetic values. Ops that act on files or processes are
            refused unless listed in `allow_ops`.
        piping: the input pipeline that reads files.
        timing: the duration or the number of runs.
        profile: Also trace some runs. Shows time, memory and FLOPs by op and by node.

    Latencies are in milliseconds. After Ctrl-C, the function returns the measurements so far.
    FileError, GraphError: a model or the data cannot be read or do not match, options contradict
    each other, or a GPU, an engine or one of its ops is not available.
    RefusedError: an op acts on files or processes. LimitError: TensorFlow crashed or hung.
    VerificationError: the outputs of an engine differ from TensorFlow's.

    Commands:
        deploykit benchmark fashion.pb optimized.pb --batch 1,32 --seconds 5
        deploykit benchmark fashion.pb --runs 50 --profile --top 5

    Example:
        >>> found = deploykit.benchmark("fashion.keras", batch=[1, 8], runs=20)
        >>> [each.samples for each in found.measurements]
        [1, 8]
    """
    if isinstance(settings, RunConfig):
        settings = RunConfigGrid(tuned=settings)
    chosen = _chosen(settings)
    tuned, style = (
        (settings.tuned, settings.input) if isinstance(settings, RunConfigGrid) else (None, None)
    )
    axes = piping.preprocess if states_only_axes(piping.preprocess) else None
    if axes is not None:  # arrays are fed as they are
        piping = replace(piping, preprocess=None)
    with working("benchmark") as advance:
        if piping.reads_files(feeding.data, style):
            given = {"runs": timing.runs, "profile": profile, "shapes": feeding.shapes}
            for option in (name for name, value in given.items() if value):
                raise GraphError("option-conflicts-files", option=option)
            model, only = _only(models, chosen)
            more: dict[str, Any] = {"styles": piping.styles(style), "advance": advance,
                "seconds": timing.seconds, "rounds": timing.rounds or INPUT_ROUNDS}  # fmt: skip
            opened = with_axes(open_runnable(model, piping, feeding.allow_ops), axes)
            _check_tuned(tuned, opened)
            warn_emulated(opened, _FILES)
            return measure_input(opened, feeding.path, piping, only, **more)
        every = open_models(models)
        every = {
            name: with_axes(item, preprocessing_for(item, every.values(), axes))
            for name, item in every.items()
        }
        for entry in every.values():
            entry.refuse_effects(feeding.allow_ops)
        _check_tuned(tuned, *every.values())
        graphs = [item.graph for item in every.values()]
        feeding, fed = read_feeding(feeding, *graphs)
        several = _settings_of(every, chosen, settings)
        runs = RUNS if profile else 0
        with feeding.explained(*graphs):
            result = measure_models(
                every, several, feeding, timing, profile_runs=runs, advance=advance
            )
        return replace(result, fed=fed)


def _check_tuned(tuned: RunConfig | PathLike | None, *models: OpenedModel) -> None:
    """Raise MismatchError if the settings file of `tune` was measured on none of the models."""
    if isinstance(tuned, str | os.PathLike):
        check_tuned(tuned, {model.source: model.sha256 for model in models})


def _settings_of(
    models: Mapping[str, OpenedModel],
    chosen: tuple[RunConfig, ...],
    settings: RunConfigGrid | Iterable[RunConfig] | Mapping[str, Iterable[RunConfig]],
) -> Mapping[str, Sequence[RunConfig]]:
    """Return the settings of each model, with the model's own engine unless another is requested.

    Unless the settings choose an input style, GPU runs are also measured with resident inputs.
    GraphError: the keys of a mapping are not the names of the models.
    """
    if isinstance(settings, RunConfigGrid) and settings.input is None:
        chosen = beside_resident(chosen)
    if isinstance(settings, Mapping):
        if set(settings) != set(models):
            raise GraphError("settings-models-count", settings=settings, models=models)
        return {name: tuple(settings[name]) for name in models}
    if not isinstance(settings, RunConfigGrid) or settings.names_engine:
        return dict.fromkeys(models, chosen)
    return {name: in_own_engine(item, chosen) for name, item in models.items()}


def _chosen(
    settings: RunConfigGrid | Iterable[RunConfig] | Mapping[str, Iterable[RunConfig]],
) -> tuple[RunConfig, ...]:
    """Return the settings to measure."""
    if isinstance(settings, RunConfigGrid):
        settings = settings.settings()
    every = tuple(chain(*settings.values()) if isinstance(settings, Mapping) else settings)
    for entry in every:
        entry.check_here()
    return every


def _only(models: ModelsLike, settings: tuple[RunConfig, ...]) -> tuple[ModelLike, RunConfig]:
    """Return the one model and the one settings value of a file benchmark, else GraphError."""
    several = [*models.values()] if isinstance(models, Mapping) else models
    if not isinstance(several, list | tuple):
        several = [several]
    if settings[0].engine is not None:
        raise GraphError("files-one-path-only", what=_FILES, engine=TITLES[settings[0].engine])
    bare = {item.without_openmp for item in settings if item != item.without_openmp}
    if bare.intersection(settings):
        logger.info("OpenMP variables are set for the whole measurement: without files, it is "
                    "also made without them")  # fmt: skip
        settings = tuple(item for item in settings if item not in bare)
    got = [f"{len(several)} models"] * (len(several) != 1)
    first = settings[0]
    for name in dict.fromkeys(name for item in settings for name in first.changes(item)):
        several_gpus = name == "device" and any(item.device == "all" for item in settings)
        several_values = f"several values of --{name.replace('_', '-')}"
        got.append("--device all" if several_gpus else several_values)
    variables = dict.fromkeys(n for item in settings for n in first.changed_variables(item))
    got += [f"several values of --env {name}" for name in variables]
    if first.concurrency > 1:
        got.append(f"--concurrency {first.concurrency}")
    if got:
        raise GraphError("files-one-measurement", got=got)
    return several[0], first
