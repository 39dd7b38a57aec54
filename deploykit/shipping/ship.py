"""`deploykit ship`: run every stage in order and cache the results."""

import os
import time
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, get_args

from deploykit.api.public import Command, public
from deploykit.data.data import is_arrays
from deploykit.data.preprocessing import TRANSPOSE, preprocessing_of, refuse_batch_axes
from deploykit.exporting.export import default_name
from deploykit.exporting.named_model import callee_of_graph
from deploykit.exporting.request_sample import ADDRESS, request_command
from deploykit.exporting.signatures import signatures_for
from deploykit.importers.metadata_file import about
from deploykit.importers.model_source import ModelSource, source_of
from deploykit.importers.open_model import ModelLike, open_model, path_of
from deploykit.rendering.progress import working
from deploykit.serving.saved_model.write_version import check_name
from deploykit.shipping import ship_folder as own
from deploykit.shipping.figures import figures, verdict
from deploykit.shipping.ship_options import ShipOptions
from deploykit.shipping.shipment import FROZEN, Purpose, Shipment, read_samples
from deploykit.shipping.shipped import KEPT, NAMES, PlannedStage, Shipped
from deploykit.shipping.stage_cache import files_of, inputs_of
from deploykit.shipping.stages import graphs, serving, speed
from deploykit.storage.image_files import labels_from
from deploykit.system.doctor import gpu_refusal
from deploykit.system.machine import machine
from deploykit.transforms.common.errors import FileError, GraphError, nearest, unknown_name
from deploykit.transforms.common.flag import Flag
from deploykit.transforms.common.messages import shell_command, shell_word
from deploykit.transforms.runtime.child_process import reused_children, started_ahead

DEFAULT = ShipOptions()
STAGES = (graphs.check, graphs.optimize, graphs.calibrate, graphs.quantize, graphs.verify,
          graphs.accuracy, speed.placement, speed.tune, speed.benchmark, serving.export,
          serving.serve)  # fmt: skip
_OPTIONS = {"allow_ops": "allow-op", "pins": "pin"}


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
    began, source = time.monotonic(), source_of(model)
    how.check()
    if from_stage is not None and from_stage not in NAMES:
        raise unknown_name("stage", from_stage, NAMES, nearest(from_stage, NAMES))
    name = check_name(how.name or default_name(source.model))
    source, how = _in_memory(source, replace(how, name=name))
    output = Path(output if output is not None else f"{name}.ship")
    _check_files(how)
    shipment = Shipment(source=source, how=how, name=name, output=output, folder=output,
                        inputs=inputs_of(source, how), stages=STAGES, began=began)  # fmt: skip

    def kept(folder: Path) -> int:
        return sum(item.act == KEPT for item in _plan(shipment, folder, from_stage))

    given = (how.calibration, how.evaluation, how.labels)
    read = [*path_of(source), *(item for item in given if isinstance(item, str))]
    if dry_run:
        own.check(output, *read)
        return Shipped(output, name, _plan(shipment, own.resumed_in(output, kept), from_stage))
    if how.device == "gpu" and (refusal := gpu_refusal()) is not None:
        raise GraphError("device-gpu-refused", reason=refusal)
    with own.own_folder(output, kept, *read) as shipment.folder:
        if from_stage is not None:
            shipment.cache.forget(NAMES[NAMES.index(from_stage) :])
        return _shipped(shipment)


def _shipped(shipment: Shipment) -> Shipped:
    """Run the stages without a cached result, and write the report."""
    started = datetime.now().astimezone().isoformat(timespec="seconds")
    plan = _plan(shipment, shipment.folder, None)
    expected = {item.stage: item.seconds for item in plan}
    is_opened = plan[0].act == KEPT
    children = reused_children() if is_opened else started_ahead()
    with children, working("ship", *NAMES, expected=expected) as shipment.work:
        if is_opened:
            _check_fits(shipment)
        own.write_begun(shipment.folder, shipment.name)
        _pass_stages(shipment)
        results, facts = tuple(shipment.results.values()), _facts(shipment, started)
        shipped = Shipped(shipment.output, shipment.name, plan, results, facts)
        own.write_report(shipment.folder, shipped.document())
    return shipped


def _plan(shipment: Shipment, folder: Path, from_stage: str | None) -> tuple[PlannedStage, ...]:
    """Return what each stage would do with the results in a folder, without running any."""
    other = shipment.to_plan(folder, from_stage)
    _pass_stages(other)
    return tuple(other.plan or ())


def _pass_stages(shipment: Shipment) -> None:
    """Run or plan all stages; each gets the results that it reads."""
    checked = graphs.check(shipment)
    if shipment.plan is None and not checked.kept:
        _check_fits(shipment)
    optimized = graphs.optimize(shipment, checked)
    graphs.calibrate(shipment, optimized)
    while True:
        quantized = graphs.quantize(shipment, optimized)
        verified = graphs.verify(shipment, optimized, quantized)
        if shipment.plan is None:
            graphs.describe.result(shipment, checked, verified)
        graphs.accuracy(shipment, verified)
        shipment.forget_files()
        if not graphs.loses_too_much(shipment):
            break
        shipment.cache.forget(NAMES[NAMES.index("quantize") :])
    speed.placement(shipment, verified)
    tuned = speed.tune(shipment, verified)
    speed.benchmark(shipment, verified, tuned)
    exported = serving.export(shipment, verified, tuned)
    serving.serve(shipment, checked, exported, tuned)


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


def _check_files(how: ShipOptions) -> None:
    """Raise FileError or GraphError for a missing or invalid input file."""
    if how.labels is not None:
        labels_from(how.labels)
    if how.preprocess is not None:
        preprocessing_of(how.preprocess)
    for data in (how.calibration, how.evaluation):
        if isinstance(data, str) and not any(files_of(Path(data))):
            raise FileError("not-found", source=data, expected="samples")


def _check_fits(shipment: Shipment) -> None:
    """Raise GraphError for labels or samples that do not fit the model's inputs and outputs.

    The first stage that needs samples in folders reads them, not this function.
    """
    how, graph = shipment.how, shipment.opened(FROZEN).graph
    advice = f"{TRANSPOSE} Or run optimize, quantize and export one by one."
    refuse_batch_axes(graph, how.preprocess, "the server that ship checks", advice)
    if how.labels is not None:
        callee = callee_of_graph(graph.copy(), about(graph).signatures)
        signatures_for(callee, None, labels=labels_from(how.labels))
    for which in get_args(Purpose):
        data = getattr(how, which)
        if isinstance(data, str) and how.preprocess is None and is_arrays(data):
            shipment.samples(which)


def _facts(shipment: Shipment, started: str) -> dict[str, Any]:
    result, checked = figures(shipment), shipment.document("check")
    quantized = shipment.document("quantize")
    return {
        "started": started,
        "machine": machine(),
        "model": {k: checked.get(k) for k in ("source", "sha256", "bytes", "inputs", "outputs")},
        "options": {
            item.name: _plain(getattr(shipment.how, item.name)) for item in fields(ShipOptions)
        },
        "result": "int8" if shipment.in_8_bits else "float",
        "precision": shipment.precision,
        "reason": str(quantized.get("reason") or shipment.outcome("quantize").why),
        "engine": quantized.get("engine") or "tensorflow",
        "verdict": verdict(shipment, result),
        "figures": result,
        "measured": shipment.outcome("benchmark").facts.get("measured", {}),
        "commands": _commands(shipment),
    }


def _plain(value: Any) -> Any:
    """Return an option as plain data; an object in memory is represented by its type's name."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, list | tuple):
        return list(value)
    is_plain = value is None or isinstance(value, str | int | float | Mapping)
    return value if is_plain else type(value).__name__


def _commands(shipment: Shipment) -> list[dict[str, str]]:
    """Return commands to serve a folder, send a request, rebuild the report, and ship again."""
    folder, source = shell_word(os.fspath(shipment.output)), shipment.source
    photo, sample = shipment.document("serve").get("photo"), shipment.document("export")["sample"]
    if photo:
        request = shell_command("deploykit", "predict", ADDRESS, shipment.name, photo["file"])
    else:
        path = None if sample["file"] is None else shipment.output / sample["file"]
        request = request_command(shipment.name, path, sample["signature"])
    paths = path_of(source)
    words = ["deploykit", "ship", *(paths or ("MODEL",))]
    for given, default in ((source, ModelSource(None)), (shipment.how, ShipOptions())):
        for field in fields(given):
            value = getattr(given, field.name)
            if field.name not in ("model", "name") and value != getattr(default, field.name):
                option = f"--{_OPTIONS.get(field.name, field.name).replace('_', '-')}"
                words += _words(option, value)
    if not paths or shipment.name != default_name(*paths):
        words += ["--name", shipment.name]
    again = shell_command(*words, "-o", os.fspath(shipment.output))
    return [
        {"what": "serve the model", "command": f"deploykit serve {folder}"},
        {"what": "send a request", "command": request},
        {"what": "rebuild the report", "command": f"deploykit report {folder} --force"},
        {"what": "ship again", "command": again},
    ]


def _words(option: str, value: Any) -> list[str]:
    if value is True:
        return [option]
    if isinstance(value, str | int | float | os.PathLike):
        return [option, str(value)]
    if isinstance(value, Mapping):
        return [word for k, v in value.items() for word in (option, f"{k}={v}")]
    if isinstance(value, list | tuple) and all(isinstance(item, str | float) for item in value):
        if option == "--allow-op":
            return [word for item in value for word in (option, item)]
        return [option, ",".join(map(str, value))]
    return [option, option.strip("-").upper()]
