"""benchmark and compare."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Annotated, Any

from deploykit.api.public import Command, public
from deploykit.benchmarking.comparing import History, Speedups, find_speedups
from deploykit.benchmarking.engines.engine_choice import in_own_engine, say_emulated
from deploykit.benchmarking.inputs import SYNTHETIC, BenchmarkInputs
from deploykit.benchmarking.profiling.traced_calls import RUNS
from deploykit.benchmarking.results import BenchmarkResult, check_tuned, load_result
from deploykit.benchmarking.rounds import measure_models
from deploykit.benchmarking.run_config import CONFIDENCE, BenchmarkOptions, RunConfig
from deploykit.benchmarking.run_config_grid import RunConfigGrid, beside_resident
from deploykit.benchmarking.scenarios.scenario_runs import measure_scenario
from deploykit.data.input_benchmark import ROUNDS as INPUT_ROUNDS
from deploykit.data.input_benchmark import measure_input
from deploykit.data.input_result import InputResult
from deploykit.data.pipeline import PLAIN, InputPipelineOptions
from deploykit.data.samples import open_runnable, read_feeding
from deploykit.importers.open_model import OpenedModel, open_models
from deploykit.rendering.progress import working
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.common.flag import Flag
from deploykit.transforms.engines.engines import TITLES
from deploykit.verification.samples import ModelLike, ModelsLike, PathLike

DEFAULT = RunConfigGrid()
TURNS = BenchmarkOptions()
_FILES = "files reach TensorFlow alone"


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

    Every model runs with every combination of settings. Several sessions of each are interleaved in
    random order, so that other load on the machine affects all of them equally. Each is warmed up
    until its latencies are stable. The run stops early once every comparison is conclusive.

    Each model is compared with the first one that has the same batch. The verdict is "faster" (wall
    time), "slower" (wall time or CPU time), "no difference" (below the stated percentage) or
    "undecided".

    With `data` DIR, files are read while the model runs: by Python, through queues and through
    tf.data. The result shows the rate of reading, the rate of the model, and which of both is the
    bottleneck.

    With `scenario`, each model is measured alone for `seconds`, as MLPerf does: single (one request
    after another; p90 latency), offline (all samples; samples a second), or server (`rate` random
    requests a second; p99 latency). The result states whether it is valid and why.

    After Ctrl-C, the result so far is written and shown.

    Args:
        models: whatever `open_model` takes; several in a list, or by name in a mapping.
        settings: what each is run with; a `RunConfigGrid` means every combination, a mapping is by
            model.
        feeding: data or made-up values. Ops that act on files or processes are refused but for
            `allow_ops`.
        piping: how files reach the model, and what of it is run.
        timing: for how long, for how many calls, or in which scenario.
        profile: Also trace some calls: time, memory and operations by op and by node, compared with
            the machine's peak.

    Latencies are in milliseconds. Ctrl-C ends it early: what was measured until then is the result.
    FileError, GraphError: a model or the data cannot be read, do not fit each other, or what is
    asked for contradicts itself; a GPU or an engine is not there, or lacks an op, which is named.
    RefusedError: an op acts on files or processes. LimitError: TensorFlow died or hung.
    VerificationError: an engine is wrong.

    Commands:
        deploykit benchmark fashion.pb optimized.pb --batch 1,32 --seconds 5
        deploykit benchmark fashion.pb --runs 50 --profile --top 5
        deploykit benchmark fashion.pb --scenario server --rate 200 --latency-limit 15

    Example:
        >>> found = deploykit.benchmark("fashion.keras", batch=[1, 8], runs=20)
        >>> [each.samples for each in found.measurements]
        [1, 8]
    """
    if isinstance(settings, RunConfig):
        settings = RunConfigGrid(tuned=settings)
    chosen = _chosen(settings, timing)
    tuned, style = (
        (settings.tuned, settings.input) if isinstance(settings, RunConfigGrid) else (None, None)
    )
    with working("benchmark") as advance:
        if piping.reads_files(feeding.data, style):
            _refuse({"runs": timing.runs, "a scenario": timing.scenario, "profile": profile,
                     "shapes": feeding.shapes})  # fmt: skip
            model, only = _only(models, chosen)
            more: dict[str, Any] = {"styles": piping.styles(style), "advance": advance,
                "seconds": timing.seconds, "rounds": timing.rounds or INPUT_ROUNDS}  # fmt: skip
            opened = open_runnable(model, piping, feeding.allow_ops)
            _check_tuned(tuned, opened)
            say_emulated(opened, _FILES)
            return measure_input(opened, feeding.path, piping, only, **more)
        every = open_models(models)
        for entry in every.values():
            entry.refuse_effects(feeding.allow_ops)
        _check_tuned(tuned, *every.values())
        feeding, fed = read_feeding(feeding, *(item.graph for item in every.values()))
        several = _settings_of(every, chosen, settings, timing)
        if profile and any(item.engine for those in several.values() for item in those):
            raise GraphError("profile-tensorflow-only")
        measure = measure_models if timing.scenario is None else measure_scenario
        runs = RUNS if profile else 0
        result = measure(every, several, feeding, timing, profile_runs=runs, advance=advance)
        return replace(result, fed=fed)


def _check_tuned(tuned: RunConfig | PathLike | None, *models: OpenedModel) -> None:
    """Raise MismatchError where a file of `tune` was measured on none of the models."""
    if isinstance(tuned, str | os.PathLike):
        check_tuned(tuned, {model.source: model.sha256 for model in models})


def _settings_of(
    models: Mapping[str, OpenedModel],
    chosen: tuple[RunConfig, ...],
    settings: RunConfigGrid | Iterable[RunConfig] | Mapping[str, Iterable[RunConfig]],
    timing: BenchmarkOptions,
) -> Mapping[str, Sequence[RunConfig]]:
    """Return the settings of each model: in its own engine, where no other is named.

    What is fed to a GPU has resident inputs beside it, where nobody says how inputs come.
    GraphError: a mapping names other models than there are.
    """
    is_open = isinstance(settings, RunConfigGrid) and settings.input is None
    if is_open and timing.scenario is None:
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
    timing: BenchmarkOptions,
) -> tuple[RunConfig, ...]:
    """Return the settings to measure."""
    if isinstance(settings, RunConfigGrid):
        several, is_chosen = settings.settings(), bool(settings.concurrency)
    else:
        each_one = chain(*settings.values()) if isinstance(settings, Mapping) else settings
        several, is_chosen = [*each_one], True
    timing.check()
    every = tuple(timing.settings(item, chosen=is_chosen) for item in several)
    for entry in every:
        entry.check_here()
    return every


def _only(models: ModelsLike, settings: tuple[RunConfig, ...]) -> tuple[ModelLike, RunConfig]:
    """Return the model and the settings to measure behind files. GraphError: there are several."""
    several = [*models.values()] if isinstance(models, Mapping) else models
    if not isinstance(several, list | tuple):
        several = [several]
    if settings[0].engine is not None:
        raise GraphError("files-one-path-only", what=_FILES, engine=TITLES[settings[0].engine])
    if len(several) != 1 or len(settings) != 1 or settings[0].concurrency > 1:
        raise GraphError("files-one-measurement")
    return several[0], settings[0]


def _refuse(given: Mapping[str, object]) -> None:
    """Raise GraphError for what has no meaning where data are read from files."""
    for name, value in given.items():
        if value:
            raise GraphError("option-conflicts-files", option=name)


@public(Command(heading="Comparison", requires=(), has_limits=False))
def compare(
    a: Annotated[BenchmarkResult | str | os.PathLike[str], Flag(metavar="A.json")],
    b: Annotated[BenchmarkResult | str | os.PathLike[str] | None, Flag(metavar="[B.json]")] = None,
    *,
    baseline: Annotated[str | os.PathLike[str] | None, Flag(metavar="FILE.json")] = None,
    confidence: Annotated[float, Flag(metavar="P", at_least=0.5, at_most=0.9999)] = CONFIDENCE,
    fail_below: Annotated[float | None, Flag(metavar="RATIO", above=0)] = None,
) -> Speedups:
    """Compare the results of two benchmarks, or one with a baseline.

    The speed is the median latency of A divided by that of B: above 1, B is faster. Measurements
    are paired by name and settings. If no pair matches, the only two with the same settings are
    compared, or the only two at all.

    The verdict is shown below the table. "slower": B takes more CPU time per call, or more than 10
    % more wall time. "faster": B is more than 10 % faster in wall time. A machine varies by about
    10 % from hour to hour. Models that are interleaved in one `deploykit benchmark` need no such
    margin.

    `fail_below` 0.95 fails only if the whole interval is below 0.95: 0.9 with the interval 0.8 to
    1.0 passes, 0.9 with 0.86 to 0.94 fails. With `baseline`, a result that fails is not added.

    Args:
        a: a result of `deploykit.benchmark`, or the JSON file that its command writes.
        b: likewise.
        baseline: Compare A with the earlier results of this machine in this file, and add A to it.
            The first result creates the file.
        confidence: Confidence of the intervals, from 0.5 to 0.9999.
        fail_below: Exit with 5 if B is significantly slower than this, or if nothing was compared.
            The first result of a new `baseline` passes.

    `check(0.95)` of what is returned raises VerificationError where b is slower than that for sure,
    or nothing was compared; the first result of a new baseline passes.
    FileError: a file cannot be read or written. GraphError: it is no result, or nothing has a
    partner.

    Commands:
        deploykit compare before.json after.json --fail-below 0.95
        deploykit compare today.json --baseline baseline.json

    Example:
        >>> result = deploykit.benchmark("fashion.keras", runs=100)
        >>> [pair.ratio.value for pair in deploykit.compare(result, result).pairs]
        [1.0]
    """
    if (b is None) == (baseline is None):
        raise GraphError("compare-two-results")
    names = tuple("ab"[i] if isinstance(item, BenchmarkResult) or item is None else os.fspath(item)
                  for i, item in enumerate((a, b)))  # fmt: skip
    first = _read(a)
    if b is not None:
        return find_speedups(first, _read(b), confidence, (names[0], names[1]))
    assert baseline is not None
    history = History.read(baseline)
    earlier = history.like(first)
    if earlier is not None:
        speedups = find_speedups(earlier, first, confidence, (history.path, names[0]))
    else:
        only = tuple(measurement.name for measurement in first.measurements)
        is_new = not history.documents
        said = f"{history.path} had no result of this machine, so {names[0]} is its first"
        warnings = () if is_new else (said,)
        speedups = Speedups(history.path, names[0], confidence, (), (), only, warnings, is_new)
    if fail_below is None or not speedups.slower_than(fail_below):
        history.add(first)
    return speedups


def _read(result: BenchmarkResult | str | os.PathLike[str]) -> BenchmarkResult:
    return result if isinstance(result, BenchmarkResult) else load_result(result)
