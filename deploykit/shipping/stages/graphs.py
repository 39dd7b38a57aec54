"""The stages `check`, `optimize`, `calibrate`, `quantize`, `verify` and `accuracy`."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from deploykit.api import freeze, rewriting, verification
from deploykit.api.comparison import READ_BY, VerifyOptions, reading_options
from deploykit.api.quantize import RUN_BAR_DB, quantize_model
from deploykit.importers.graph_files import save_graph
from deploykit.importers.metadata_file import about, sidecar, sidecar_path
from deploykit.importers.open_model import OpenedModel, open_model, path_of
from deploykit.pipelines.int8 import has_fake_quants
from deploykit.pipelines.rewrite import OutputFiles, by_calibration
from deploykit.quantization.calibration import calibrate_split
from deploykit.quantization.metrics import LOWER_IS_BETTER
from deploykit.quantization.quantize_options import QuantizeOptions, has_layers
from deploykit.quantization.search_task import Budget
from deploykit.quantization.timing.speed import INCONCLUSIVE
from deploykit.rendering.progress import working
from deploykit.shipping import figures
from deploykit.shipping.ship_options import ShipOptions
from deploykit.shipping.shipment import (
    AS_IT_CAME,
    EIGHT_BITS_FILE,
    FROZEN,
    LABELS,
    OPTIMIZED_FILE,
    PREPROCESS,
    Shipment,
    cached,
    class_names,
)
from deploykit.shipping.shipped import DONE, UNDECIDED, Outcome
from deploykit.storage.files import write
from deploykit.storage.image_files import labels_from
from deploykit.storage.ship_report import MODEL
from deploykit.transforms.common.documents import document
from deploykit.transforms.common.errors import UnverifiedError, VerificationError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.runtime.child_process import reused_children
from deploykit.transforms.untrusted.files import sha256_of
from deploykit.verification.verify import ADVICE

SIDECAR = ".json"
_COMPARED = ("input_range", "allow_unverified", "allow_ops")


_UNCALIBRATED = "int8 needs --calibration DATA"


def _no_calibration(shipment: Shipment) -> str:
    if shipment.how.calibration is None:
        return "the model states its int8 scales" if _states_scales(shipment) else _UNCALIBRATED
    if not shipment.path(OPTIMIZED_FILE).exists():
        return ""
    graph = shipment.opened(OPTIMIZED_FILE).graph
    return "" if has_layers(graph) else "the model has no layer that could run in int8"


def _no_8_bits(shipment: Shipment) -> str:
    if shipment.how.device == "gpu":
        return "int8 layers run on CPUs only, and --device is gpu"
    is_possible = shipment.how.calibration is not None or shipment.how.goal == "size"
    return "" if is_possible or _states_scales(shipment) else _UNCALIBRATED


def _states_scales(shipment: Shipment) -> bool:
    """Return whether the optimized model has FakeQuant ops; False before it exists."""
    if not shipment.path(OPTIMIZED_FILE).exists():
        return False
    return has_fake_quants(shipment.opened(OPTIMIZED_FILE).frozen)


@cached("source", "preprocess", *_COMPARED, seconds=8)
@reused_children()
def check(shipment: Shipment) -> Outcome:
    """Check the model, then write it as one frozen graph.

    A child process imports Keras once for all of it and exits afterwards.
    """
    source, how = shipment.source, shipment.how
    is_keras = str(source.model).endswith((".keras", ".h5", ".hdf5"))
    # A Keras model has no graph before freezing.
    model = open_model(source) if is_keras or not path_of(source) else source
    checked = model.graph if isinstance(model, OpenedModel) else model
    result = verification.check(checked, allow_ops=how.allow_ops)
    if result.error is not None:
        raise result.error
    options = {"preprocess": how.preprocess, "output": shipment.path(FROZEN)}
    graph, used = _compared(shipment, freeze.freeze, model, **options)
    shipment.forget_graph(FROZEN)
    files = graph.report.model
    plain = result.document() | {
        "source": files.source,
        "sha256": files.sha256,
        "bytes": files.bytes,
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
    }
    return Outcome(plain, (FROZEN, FROZEN + SIDECAR), used=used)


def _compared(
    shipment: Shipment, act: Callable[..., Graph], model: Any, **options: Any
) -> tuple[Graph, tuple[str, ...]]:
    """Return the graph that a command writes after comparing it with the model.

    The comparison uses synthetic inputs and, if they verify nothing, the calibration data. The
    second value names this data, and how it is read, if the result depends on it.
    UnverifiedError: this data verifies nothing either.
    """
    how = shipment.how
    options |= {"force": True, "allow_ops": how.allow_ops, "input_range": how.input_range}
    try:
        allowed = how.allow_unverified and how.calibration is None
        graph = act(model, **options, allow_unverified=allowed)
        result = graph.report.verification
        is_proven = result is None or result.verified
        return graph, () if is_proven else ("calibration",)
    except UnverifiedError as error:
        if how.calibration is None:
            raise by_calibration(error, has_shape=False) from None
    labels = class_names(how, "calibration")
    options |= reading_options(how) | {"data": how.calibration, "labels": labels}
    graph = act(model, **options, allow_unverified=how.allow_unverified)
    return graph, ("calibration", "labels", *READ_BY)


@cached("preprocess", *_COMPARED, seconds=4)
def optimize(shipment: Shipment) -> Outcome:
    """Optimize the frozen graph."""
    before, output = shipment.opened(FROZEN), shipment.path(OPTIMIZED_FILE)
    graph, used = _compared(shipment, rewriting.optimize, before, output=output)
    shipment.forget_graph(OPTIMIZED_FILE)
    made = graph.report.document()
    plain = {
        "nodes_before": made["nodes_in"],
        "nodes": made["nodes_out"],
        "bytes_before": made["bytes_in"],
        "bytes": made["bytes_out"],
        "steps": made["steps"],
        "verification": document(graph.report.verification),
    }
    return Outcome(plain, (OPTIMIZED_FILE, OPTIMIZED_FILE + SIDECAR), used=used)


@cached("calibration", *READ_BY, "allow_ops", left_out=_no_calibration, seconds=6)
def calibrate(shipment: Shipment) -> Outcome:
    """Run the samples once, so that errors in them are reported before the long search.

    The search reuses the ranges of the samples that it does not hold out.
    """
    model, samples = shipment.opened(OPTIMIZED_FILE), shipment.samples("calibration")
    model.refuse_effects(shipment.how.allow_ops)
    with working("calibrate") as work, samples.named():
        result, shipment.calibrated = calibrate_split(model.graph, samples, advance=work)
    return Outcome({**result.document(), "fed": dict(samples.fed)})


@cached(
    "calibration", "evaluation_form", *READ_BY, "max_drop", "goal",
    "device", "engine", "allow_low_accuracy", *_COMPARED,
    left_out=_no_8_bits, measures=True, seconds=100, seconds_a_ms=15, share=0.45,
)  # fmt: skip
def quantize(shipment: Shipment) -> Outcome:
    """Choose the layers to run in int8, or store int8 weights."""
    how = shipment.how
    graph: Graph | None = None
    plain: dict[str, Any] = {}
    used = shipment.calibration_options
    if how.calibration is not None or _states_scales(shipment):
        graph = _with_int8_layers(shipment)
        plain = document(graph.report)
        plain.pop("evaluation", None)  # the stage `accuracy` measures it, also on later data
        if how.evaluation is not None and plain["result"] != "int8":
            used = ("evaluation", "labels")  # on other data, int8 may be accurate enough
    if graph is None or (how.goal == "size" and plain["result"] != "int8"):
        graph, slower = _with_int8_weights(shipment), plain.get("reason")
        stored = graph.report.document()
        plain = {"result": "float", "engine": "tensorflow"}
        plain |= {key: stored[key] for key in ("weights", "notes", "reason", "precision")}
        if not graph.report.is_float:
            plain |= {"result": "int8", "stored_only": True}
        elif slower:
            plain["reason"] = slower
    shipment.forget_graph(EIGHT_BITS_FILE)
    verdict = graph.report.verification
    plain["verification"] = verdict and verdict.document()
    files = EIGHT_BITS_FILE, EIGHT_BITS_FILE + SIDECAR
    reason = str(plain.get("reason", ""))
    kind = UNDECIDED if INCONCLUSIVE in reason else DONE
    judged = plain.get("judgement") or {}
    agreement = figures.of_agreement(judged.get("agreement"), judged.get("agreement_interval"))
    return Outcome(plain, files, kind, reason, used=used, facts=agreement)


def _with_int8_layers(shipment: Shipment) -> Graph:
    """Write and return the model with int8 layers, or in float32 if int8 is rejected."""
    how, model = shipment.how, shipment.to_change(OPTIMIZED_FILE)
    options = QuantizeOptions(
        engine=how.engine,
        budget=max(shipment.share, 0.5),
        allow_low_accuracy=how.allow_low_accuracy,
        allow_float=True,
    )
    comparison, calibration, evaluation = _synthetic(how), None, None
    if how.calibration is not None:
        comparison = VerifyOptions(allow_ops=how.allow_ops)
        calibration = shipment.samples("calibration")
        if how.evaluation is not None:
            options = replace(options, max_drop=how.max_drop)
            evaluation = shipment.samples("evaluation")
            if how.labels is not None:
                model.graph.about = replace(model.about, labels=tuple(labels_from(how.labels)))
    data, target = (calibration, evaluation), OutputFiles(shipment.path(EIGHT_BITS_FILE), True)
    budget = Budget(options.budget)
    return quantize_model(model, options, data, comparison, target, budget, shipment.calibrated)


def _with_int8_weights(shipment: Shipment) -> Graph:
    """Write and return the model with 8-bit weights, or in float32 if they are rejected."""
    how = shipment.how
    options = QuantizeOptions(
        mode="weights", allow_float=True, allow_low_accuracy=how.allow_low_accuracy
    )
    samples = None if how.calibration is None else shipment.samples("calibration")
    comparison = replace(_synthetic(how), data=samples)
    model, budget = shipment.opened(OPTIMIZED_FILE), Budget(options.budget)
    target = OutputFiles(shipment.path(EIGHT_BITS_FILE), True)
    try:
        return quantize_model(model, options, (None, None), comparison, target, budget)
    except UnverifiedError as error:
        raise by_calibration(error, has_shape=False) from None


def _synthetic(how: ShipOptions) -> VerifyOptions:
    """Return options to compare a graph with the model on synthetic inputs."""
    return VerifyOptions(
        allow_ops=how.allow_ops,
        input_range=how.input_range,
        allow_unverified=how.allow_unverified,
    )


@cached("calibration", *READ_BY, *_COMPARED, seconds=8)
def verify(shipment: Shipment) -> Outcome:
    """Write the shipped graph with its metadata, and compare it with the original model."""
    how = shipment.how
    files, used = _write(shipment), shipment.calibration_options
    shipped = shipment.opened(MODEL)
    options: dict[str, Any] = {"allow_ops": how.allow_ops}
    if how.calibration is not None:
        options["data"] = shipment.samples("calibration")
    else:
        options["input_range"] = how.input_range
    if shipment.in_8_bits:
        options["min_sqnr"] = RUN_BAR_DB  # the search demanded more on held-out samples
    result = verification.verify(shipment.opened(FROZEN), shipped, **options)
    if result.differs:
        raise VerificationError("outputs-differ", source=shipment.path(MODEL), reason=result.reason)
    if result.verified:
        return Outcome(result.document(), files, used=used)
    if how.allow_unverified:
        return Outcome(result.document(), files, UNDECIDED, result.reason, used)
    source, reason = shipment.path(MODEL), result.reason
    raise by_calibration(
        UnverifiedError("not-verified", source=source, reason=reason, advice=ADVICE)
    )


def _write(shipment: Shipment) -> tuple[str, ...]:
    """Write the chosen graph; return the files that do not depend on the labels."""
    graph, path = _labelled(shipment), shipment.path(PREPROCESS)
    save_graph(graph, shipment.path(MODEL), force=True)
    shipment.forget_graph(MODEL)
    steps = about(graph).preprocessing
    path.unlink(missing_ok=True)
    if steps is None:
        return (MODEL,)
    write(path, [f"{json.dumps(steps, indent=2)}\n".encode()], force=True)
    return MODEL, PREPROCESS


def _labelled(shipment: Shipment) -> Graph:
    """Return the chosen graph with the labels of the options or else of the model."""
    graph, labels = shipment.opened(shipment.chosen).graph.copy(), shipment.how.labels
    known = shipment.opened(FROZEN).about.labels if labels is None else labels_from(labels)
    graph.about = replace(about(graph), labels=tuple(known))
    return graph


@cached("labels")
def describe(shipment: Shipment) -> Outcome:
    """Write the metadata file of the shipped graph, and its labels.

    It is a part of `verify` with a separate result, so that changed labels do not repeat `verify`.
    """
    graph, path = _labelled(shipment), shipment.path(MODEL)
    labels = about(graph).labels
    write(sidecar_path(path), sidecar(graph, sha256_of(path)), force=True)
    shipment.describe(MODEL, about(graph))
    shipment.path(LABELS).unlink(missing_ok=True)
    if not labels:
        return Outcome(files=(MODEL + SIDECAR,))
    write(shipment.path(LABELS), (f"{label}\n".encode() for label in labels), force=True)
    return Outcome(files=(MODEL + SIDECAR, LABELS))


def _no_evaluation(shipment: Shipment) -> str:
    return "" if shipment.how.evaluation is not None else "it needs --evaluation DATA with labels"


@cached("evaluation", *READ_BY, "labels", "allow_ops", left_out=_no_evaluation)
def accuracy(shipment: Shipment) -> Outcome:
    """Measure the accuracy before and after."""
    from deploykit.api import accuracy as api

    how, samples = shipment.how, shipment.samples("evaluation")
    models = {AS_IT_CAME: shipment.opened(FROZEN), shipment.shipped_as: shipment.opened(MODEL)}
    result = api.accuracy(models, samples, labels=how.labels, allow_ops=how.allow_ops)
    return Outcome(result.document(), facts=figures.of_accuracy(result))


def loses_too_much(shipment: Shipment) -> bool:
    """Return whether an int8 graph chosen on earlier evaluation data loses too much on new data."""
    result, quantized = shipment.document("accuracy"), shipment.results["quantize"]
    is_searched = shipment.how.calibration is not None and shipment.in_8_bits
    is_new = quantized.kept and not shipment.results["accuracy"].kept
    if not (result and is_searched and is_new) or shipment.document("quantize").get("stored_only"):
        return False
    first, last = (result["models"][number].get("value") for number in (0, -1))
    if result.get("metric") is None or first is None or last is None:
        return False
    drop = last - first if result["metric"] in LOWER_IS_BETTER else first - last
    return not float(drop) <= shipment.how.max_drop  # NaN loses too much
