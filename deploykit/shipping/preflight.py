"""What is given to `ship`, checked before anything in its folder changes or anything long runs."""

from pathlib import Path
from typing import get_args

from deploykit.exporting.named_model import callee_of_graph
from deploykit.exporting.signatures import signatures_for
from deploykit.freezing.sidecar import about
from deploykit.input.data import is_arrays
from deploykit.input.preprocessing import preprocessing_of
from deploykit.photos.class_names import labels_from
from deploykit.shipping.kept import files_of
from deploykit.shipping.ship_options import ShipOptions
from deploykit.shipping.shipment import FROZEN, Purpose, Shipment
from deploykit.transforms.core.errors import FileError


def check_files(how: ShipOptions) -> None:
    """Raise FileError or GraphError for a file that is missing or is not what it should be."""
    if how.labels is not None:
        labels_from(how.labels)
    if how.preprocess is not None:
        preprocessing_of(how.preprocess)
    for data in (how.calibration, how.evaluation):
        if isinstance(data, str) and not any(files_of(Path(data))):
            raise FileError("not-found", source=data, expected="samples")


def check_fits(shipment: Shipment) -> None:
    """Raise GraphError for labels or samples that do not fit the model's inputs and outputs.

    Samples in folders are not read here: the first stage that needs them does.
    """
    how, graph = shipment.how, shipment.opened(FROZEN).graph
    if how.labels is not None:
        callee = callee_of_graph(graph.copy(), about(graph).signatures)
        signatures_for(callee, None, labels=labels_from(how.labels))
    for which in get_args(Purpose):
        data = getattr(how, which)
        if isinstance(data, str) and how.preprocess is None and is_arrays(data):
            shipment.samples(which)
