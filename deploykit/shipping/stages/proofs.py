"""The file that is shipped, held against the model as it came."""

import json
from dataclasses import replace
from typing import Any

from deploykit.api.quantize import RUN_BAR_DB
from deploykit.api.verify import verify
from deploykit.freezing.graph_files import save_graph
from deploykit.freezing.sidecar import about
from deploykit.photos.class_names import labels_from
from deploykit.rewriting.proof import by_calibration
from deploykit.shipping.shipment import AS_IT_CAME, FROZEN, LABELS, PREPROCESS, Shipment
from deploykit.shipping.stage import ShipStage
from deploykit.shipping.stage_result import Outcome
from deploykit.shipping.stages.graphs import SIDECAR
from deploykit.storage.files import write
from deploykit.storage.ship_report import MODEL
from deploykit.transforms.core.errors import UnverifiedError, VerificationError
from deploykit.verification.verify import ADVICE


def _verify(shipment: Shipment) -> Outcome:
    """Write what is shipped, with all that is known of it, and compare it with what came."""
    how = shipment.how
    files = _write(shipment)
    shipment.forget(MODEL)
    options: dict[str, Any] = {"allowed_ops": how.allowed_ops}
    if how.calibration is not None:
        options |= {"data": how.calibration, "preprocess": how.preprocess}
    else:
        options["input_range"] = how.input_range
    if shipment.in_8_bits:
        options["min_sqnr"] = RUN_BAR_DB  # the search held out samples, and kept more on these
    found = verify(shipment.opened(FROZEN), shipment.opened(MODEL), **options)
    if found.differs:
        raise VerificationError(f"{shipment.path(MODEL)}: {found.reason}")
    document = found.document()
    if not found.verified:
        if not how.allow_unverified:
            reason = f"{shipment.path(MODEL)}: not verified: {found.reason}. {ADVICE}"
            raise by_calibration(UnverifiedError(reason))
        return Outcome(document, files, "undecided", found.reason)
    return Outcome(document, files)


def _write(shipment: Shipment) -> tuple[str, ...]:
    """Write the graph that was chosen; return the files."""
    graph = shipment.opened(shipment.chosen).graph.copy()
    known, labels = about(graph), shipment.how.labels
    if labels is not None:
        known = replace(known, labels=tuple(labels_from(labels)))
    graph.about = known
    save_graph(graph, shipment.path(MODEL), force=True)
    files = [MODEL, MODEL + SIDECAR]
    beside: dict[str, str] = {}
    if known.preprocessing is not None:
        beside[PREPROCESS] = f"{json.dumps(known.preprocessing, indent=2)}\n"
    if known.labels:
        beside[LABELS] = "".join(f"{label}\n" for label in known.labels)
    for name in (PREPROCESS, LABELS):
        shipment.path(name).unlink(missing_ok=True)
        if name in beside:
            write(shipment.path(name), [beside[name].encode()], force=True)
            files.append(name)
    return tuple(files)


def _accuracy(shipment: Shipment) -> Outcome:
    from deploykit.api.accuracy import accuracy

    how = shipment.how
    models = {AS_IT_CAME: shipment.opened(FROZEN), shipment.shipped_as: shipment.opened(MODEL)}
    found = accuracy(
        models,
        how.evaluation,
        preprocess=how.preprocess,
        labels=how.labels,
        allowed_ops=how.allowed_ops,
    )
    return Outcome(found.document())


def _no_evaluation(shipment: Shipment) -> str:
    return "" if shipment.how.evaluation is not None else "there is no --eval DATA with labels"


VERIFY = ShipStage(
    "verify",
    _verify,
    ("calibration", "preprocess", "labels", "input_range", "allow_unverified", "allowed_ops"),
    ("optimize", "quantize"),
    seconds=8,
)
ACCURACY = ShipStage(
    "accuracy",
    _accuracy,
    ("evaluation", "preprocess", "labels", "allowed_ops"),
    ("verify",),
    left_out=_no_evaluation,
    seconds=10,
)
