"""The stages `verify` and `accuracy`: compare the shipped file with the original model."""

import json
from dataclasses import replace
from typing import Any

from deploykit.api import verification
from deploykit.api.quantize import RUN_BAR_DB
from deploykit.importers.graph_files import save_graph
from deploykit.importers.metadata_file import about, sidecar, sidecar_path
from deploykit.pipelines.rewrite import by_calibration
from deploykit.quantization.metrics import LOWER_IS_BETTER
from deploykit.shipping import figures
from deploykit.shipping.shipment import (
    AS_IT_CAME,
    FROZEN,
    LABELS,
    PREPROCESS,
    Shipment,
    cached,
)
from deploykit.shipping.shipped import UNDECIDED, Outcome
from deploykit.shipping.stages.graphs import SIDECAR
from deploykit.storage.files import write
from deploykit.storage.image_files import labels_from
from deploykit.storage.ship_report import MODEL
from deploykit.transforms.common.errors import UnverifiedError, VerificationError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.untrusted.files import sha256_of
from deploykit.verification.verify import ADVICE


@cached("calibration", "preprocess", "input_range", "allow_unverified", "allow_ops", seconds=8)
def verify(shipment: Shipment) -> Outcome:
    """Write the shipped graph with its metadata, and compare it with the original model."""
    how = shipment.how
    files, used = _write(shipment), shipment.calibration_options
    shipped = shipment.opened(MODEL, is_new=True)
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
    document = result.document()
    if not result.verified:
        if not how.allow_unverified:
            source, reason = shipment.path(MODEL), result.reason
            raise by_calibration(
                UnverifiedError("not-verified", source=source, reason=reason, advice=ADVICE)
            )
        return Outcome(document, files, UNDECIDED, result.reason, used)
    return Outcome(document, files, used=used)


def _write(shipment: Shipment) -> tuple[str, ...]:
    """Write the chosen graph; return the files that do not depend on the labels."""
    graph = _labelled(shipment)
    save_graph(graph, shipment.path(MODEL), force=True)
    steps = about(graph).preprocessing
    shipment.path(PREPROCESS).unlink(missing_ok=True)
    if steps is None:
        return (MODEL,)
    write(shipment.path(PREPROCESS), [f"{json.dumps(steps, indent=2)}\n".encode()], force=True)
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


@cached("evaluation", "preprocess", "labels", "allow_ops", left_out=_no_evaluation)
def accuracy(shipment: Shipment) -> Outcome:
    """Measure the accuracy before and after."""
    from deploykit.api import accuracy as api

    how = shipment.how
    models = {AS_IT_CAME: shipment.opened(FROZEN), shipment.shipped_as: shipment.opened(MODEL)}
    result = api.accuracy(
        models,
        shipment.samples("evaluation"),
        labels=how.labels,
        allow_ops=how.allow_ops,
    )
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
