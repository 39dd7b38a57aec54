"""`deploykit ship`: run every stage in order and cache the results."""

import os
import time
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, get_args

from deploykit.api.public import Command, public
from deploykit.exporting.export import default_name
from deploykit.importers.model_source import ModelSource, source_of
from deploykit.importers.open_model import ModelLike, open_model, path_of
from deploykit.rendering.progress import Work, working
from deploykit.serving.saved_model.write_version import check_name
from deploykit.shipping import ship_folder as own
from deploykit.shipping.commands import commands
from deploykit.shipping.figures import figures, measured_with, verdict
from deploykit.shipping.given import check_files, check_fits, inputs_of
from deploykit.shipping.ship_options import ShipOptions
from deploykit.shipping.shipment import BYTES_A_MS, Purpose, Shipment, ShipStage, read_samples
from deploykit.shipping.shipped import (
    LEFT_OUT,
    Outcome,
    PlannedStage,
    Shipped,
    StageResult,
)
from deploykit.shipping.stage_cache import StageCache, full_key, key_of, sizes_of
from deploykit.shipping.stages import DESCRIBE, NAMES, STAGES, loses_too_much
from deploykit.system.doctor import gpu_refusal
from deploykit.system.machine import machine
from deploykit.transforms.common.errors import GraphError, nearest, unknown_name
from deploykit.transforms.common.flag import Flag
from deploykit.transforms.runtime.child_process import reused_children, started_ahead

DEFAULT = ShipOptions()
RUN, KEPT = "run", "kept"


@public(
    Command(
        heading="What is shipped",
        requires=("tensorflow", "matplotlib"),
        runs_graph=True,
        writes_result=False,
    ),
    interface=(),
)
def ship(
    model: ModelLike,
    output: Annotated[
        str | os.PathLike[str] | None,
        Flag("-o --output", format="path", metavar="DIR", heading="Output"),
    ] = None,
    how: ShipOptions = DEFAULT,
    *,
    from_stage: Annotated[str | None, Flag(hidden="--from", metavar="STAGE", heading="Run")] = None,
    dry_run: Annotated[bool, Flag(heading="Run")] = False,
) -> Shipped:
    """Turn a trained model into a served one with one command.

    Runs the other commands as stages, in this order: check, optimize, calibrate, quantize, verify,
    accuracy, placement, tune, benchmark, export, and a request to a served instance. The output
    folder then contains model.pb, report.html, report.json, the settings from deploykit tune, and
    NAME/1 for TensorFlow Serving. `deploykit serve DIR` serves the model with these settings.

    The result of each stage is stored in the folder. After Ctrl-C the same command resumes; a later
    run only repeats stages whose inputs changed. A stage that is not worthwhile on this machine is
    skipped, and the report gives the reason.

    Options can also be set in deploykit.toml in the current folder, in its table [ship]. Options on
    the command line override them.

    Args:
        model: any model that `open_model` accepts.
        output: Folder to write [default: NAME.ship]. A later run in the same folder only repeats
            stages whose inputs changed.
        how: data, goal and budget of the shipment.
        from_stage: Repeat this stage and all later ones: check, optimize, calibrate, quantize,
            verify, accuracy, placement, tune, benchmark, export or serve.
        dry_run: Show the stages and their estimated duration without running them.

    `deploykit.serve(output)` serves the result. FileError, GraphError: the model or the data
    cannot be read or do not fit each other, or the folder contains something else.
    VerificationError: the outputs differ from the model's. RefusedError: the model accesses files
    or processes.

    Commands:
        deploykit ship shapes.keras --calibration photos/train --evaluation photos/val
        deploykit ship shapes.keras -o shapes.ship --dry-run
        deploykit ship shapes.keras --from-stage tune

    Example:
        >>> data = {"calibration": "test_1000.npz", "evaluation": "test_1000.npz"}
        >>> found = deploykit.ship("fashion.keras", "fashion.ship", budget=3, **data)
        >>> found.figures["accuracy"]["after"]["value"] > 0.9
        True
    """
    source = source_of(model)
    how.check()
    if from_stage is not None and from_stage not in NAMES:
        raise unknown_name("stage", from_stage, NAMES, nearest(from_stage, NAMES))
    name = check_name(how.name or default_name(source.model))
    source, how = _in_memory(source, how)
    folder = Path(output if output is not None else f"{name}.ship")
    shipment = Shipment(
        source,
        folder,
        folder,
        name,
        replace(how, name=name),
        how.budget,
        size_of(source) / BYTES_A_MS,
    )
    return _planned_or_shipped(shipment, from_stage, dry_run)


def _planned_or_shipped(shipment: Shipment, from_stage: str | None, dry_run: bool) -> Shipped:
    """Run the stages in the build folder, or plan them."""
    source, how, folder = shipment.source, shipment.how, shipment.output
    check_files(how)
    inputs = inputs_of(source, how)

    def kept(place: Path) -> int:
        plan = _plan(shipment, StageCache(place), inputs, from_stage)
        return sum(item.act == KEPT for item in plan)

    given = (how.calibration, how.evaluation, how.labels)
    read = [*path_of(source), *(item for item in given if isinstance(item, str))]
    if dry_run:
        own.check(folder, *read)
        place = StageCache(own.resumed_in(folder, kept))
        return Shipped(folder, shipment.name, _plan(shipment, place, inputs, from_stage))
    if how.device == "gpu" and (refusal := gpu_refusal()) is not None:
        raise GraphError("device-gpu-refused", reason=refusal)
    with own.own_folder(folder, kept, *read) as shipment.folder:
        place = StageCache(shipment.folder)
        if from_stage is not None:
            place.forget(NAMES[NAMES.index(from_stage) :])
        return _shipped(shipment, place, inputs)


def _shipped(shipment: Shipment, retained: StageCache, inputs: Mapping[str, Any]) -> Shipped:
    """Run the stages without a cached result, and write the report."""
    started = datetime.now().astimezone().isoformat(timespec="seconds")
    plan = _plan(shipment, retained, inputs)
    expected = {item.stage: item.seconds for item in plan}
    keys: dict[str, str] = {}
    children = started_ahead() if plan[0].act == RUN else reused_children()
    with children, working("ship", *NAMES, expected=expected) as work:
        if plan[0].act == KEPT:
            check_fits(shipment)
        own.write_begun(shipment.folder, shipment.name)
        number = 0
        while number < len(STAGES):
            stage = STAGES[number]
            work.begin(stage.name)
            key = _key(shipment, stage, inputs, keys)
            result = shipment.results[stage.name] = _done(shipment, stage, retained, key, inputs)
            keys[stage.name] = full_key(key, result.outcome.used, inputs)
            if stage.name == "check" and plan[0].act != KEPT:
                check_fits(shipment)
            if stage.name == "verify":
                _done(shipment, DESCRIBE, retained, key_of(DESCRIBE, inputs, keys), inputs)
            number += 1
            if stage.name == "accuracy":
                shipment.forget_files()
            if stage.name == "accuracy" and loses_too_much(shipment):
                number = NAMES.index("quantize")
                retained.forget(NAMES[number:])
            _expect(work, shipment, STAGES[number:], expected)
        shipped = Shipped(
            shipment.output,
            shipment.name,
            tuple(plan),
            tuple(shipment.results.values()),
            _facts(shipment, started),
        )
        own.write_report(shipment.folder, shipped.document())
    return shipped


def _key(
    shipment: Shipment, stage: ShipStage, inputs: Mapping[str, Any], keys: Mapping[str, str]
) -> str:
    """Return the cache key of a stage; a skipped stage depends on nothing."""
    return LEFT_OUT if stage.left_out(shipment) else key_of(stage, inputs, keys)


def _done(
    shipment: Shipment, stage: ShipStage, retained: StageCache, key: str, inputs: Mapping[str, Any]
) -> StageResult:
    """Return the result of a stage: cached, skipped, or run now."""
    if why := stage.left_out(shipment):
        return StageResult(stage.name, Outcome(kind=LEFT_OUT, why=why), 0.0)
    if (result := retained.lookup(stage.name, key, inputs)) is not None:
        return result
    most = stage.about(shipment.call_ms) / 60
    shipment.share = max(min(stage.share * shipment.left, most), 0.0)
    began = time.monotonic()
    outcome = stage.run(shipment)
    outcome = replace(outcome, document=shipment.in_output(outcome.document))
    return retained.keep(key, StageResult(stage.name, outcome, time.monotonic() - began), inputs)


def _plan(
    shipment: Shipment,
    retained: StageCache,
    inputs: Mapping[str, Any],
    from_stage: str | None = None,
) -> tuple[PlannedStage, ...]:
    """Return what each stage would do, as far as it is known without running any."""
    plan: list[PlannedStage] = []
    keys: dict[str, str] = {}
    anew = len(NAMES) if from_stage is None else NAMES.index(from_stage)
    runs: set[str] = set()
    for number, stage in enumerate(STAGES):
        key = keys[stage.name] = _key(shipment, stage, inputs, keys)
        if why := stage.left_out(shipment):
            plan.append(PlannedStage(stage.name, LEFT_OUT, 0.0, why))
        elif (
            number < anew
            and not runs & {*stage.needs}
            and (result := retained.lookup(stage.name, key, inputs)) is not None
        ):
            keys[stage.name] = full_key(key, result.outcome.used, inputs)
            plan.append(PlannedStage(stage.name, KEPT, 0.0))
        else:
            runs.add(stage.name)
            plan.append(PlannedStage(stage.name, RUN, _seconds(shipment, stage, retained)))
    return tuple(plan)


def _seconds(shipment: Shipment, stage: ShipStage, retained: StageCache) -> float:
    """Return the estimated seconds of a stage: its last duration here, or its default."""
    known = retained.seconds(stage.name)
    if known is not None:
        return known
    seconds = stage.about(shipment.call_ms)
    return min(seconds, 60 * stage.share * shipment.minutes) if stage.share else seconds


def _expect(
    work: Work, shipment: Shipment, left: tuple[ShipStage, ...], expected: Mapping[str, float]
) -> None:
    """Update the expected durations of the remaining stages to the remaining budget."""
    work.expect({
        item.name: min(expected[item.name], max(60 * item.share * shipment.left, 1.0))
        for item in left
        if item.share and expected[item.name]
    })  # fmt: skip


def _facts(shipment: Shipment, started: str) -> dict[str, Any]:
    result, checked = figures(shipment), shipment.document("check")
    return {
        "started": started,
        "machine": machine(),
        "model": {k: checked.get(k) for k in ("source", "sha256", "bytes", "inputs", "outputs")},
        "options": _said(shipment),
        "result": "int8" if shipment.in_8_bits else "float",
        "precision": shipment.precision,
        "reason": shipment.reason,
        "engine": shipment.document("quantize").get("engine") or "tensorflow",
        "verdict": verdict(shipment, result),
        "figures": result,
        "measured": measured_with(shipment),
        "commands": commands(shipment),
    }


def _said(shipment: Shipment) -> dict[str, Any]:
    """Return the options as plain data; objects in memory are represented by their type's name."""
    results = {}
    for field_ in fields(shipment.how):
        value = getattr(shipment.how, field_.name)
        is_plain = value is None or isinstance(value, str | int | float | list | tuple | Mapping)
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        elif not is_plain:
            value = type(value).__name__
        results[field_.name] = list(value) if isinstance(value, tuple) else value
    return results


def _in_memory(source: ModelSource, how: ShipOptions) -> tuple[ModelSource, ShipOptions]:
    """Open models and data in memory, so that their contents identify them."""
    if not path_of(source):
        source = ModelSource(open_model(source))
    results: dict[str, Any] = {}
    for name in get_args(Purpose):
        data = getattr(how, name)
        if isinstance(data, os.PathLike):
            results[name] = os.fspath(data)
        elif data is not None and not isinstance(data, str):
            results[name] = read_samples(how, name, open_model(source).frozen)
    return source, replace(how, **results)


def size_of(source: ModelSource) -> int:
    """Return the size of a model's files or of its graph in bytes."""
    paths = path_of(source)
    if not paths:
        return sum(map(len, source.model.graph.serialized()))
    return sum(sizes_of(Path(paths[0])).values())
