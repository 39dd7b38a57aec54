"""Validation of the inputs of `ship` before long stages run, and their digests for cache keys."""

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from deploykit.data.data import is_arrays
from deploykit.data.preprocessing import TRANSPOSE, preprocessing_of, refuse_batch_axes
from deploykit.exporting.named_model import callee_of_graph
from deploykit.exporting.signatures import signatures_for
from deploykit.importers.metadata_file import about
from deploykit.importers.model_source import ModelSource
from deploykit.importers.open_model import path_of
from deploykit.shipping.ship_options import ShipOptions
from deploykit.shipping.shipment import FROZEN, Purpose, Shipment
from deploykit.shipping.stage_cache import digest_of, files_of
from deploykit.storage.arrays import load_forms
from deploykit.storage.image_files import labels_from
from deploykit.transforms.common.errors import Error, FileError
from deploykit.verification.samples import Dataset


def check_files(how: ShipOptions) -> None:
    """Raise FileError or GraphError for a missing or invalid input file."""
    if how.labels is not None:
        labels_from(how.labels)
    if how.preprocess is not None:
        preprocessing_of(how.preprocess)
    for data in (how.calibration, how.evaluation):
        if isinstance(data, str) and not any(files_of(Path(data))):
            raise FileError("not-found", source=data, expected="samples")


def check_fits(shipment: Shipment) -> None:
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


def inputs_of(source: ModelSource, how: ShipOptions) -> dict[str, Any]:
    """Return digests of the model and of each option.

    `evaluation_form` contains names, dtypes and shapes of the evaluation data: a model's speed
    depends on nothing else of it.
    """
    results = {field_.name: digest_of(getattr(how, field_.name)) for field_ in fields(how)}
    stated = asdict(replace(source, model=None))
    del stated["model"]
    paths = path_of(source)
    results["model"] = digest_of(paths[0]) if paths else source.model.sha256
    results["evaluation_form"] = _form(how.evaluation)
    return results | {"source": {**stated, "graph": digest_of(stated["graph"])}}


def _form(data: Any) -> Any:
    """Return names, dtypes and shapes of samples in arrays; {} for other files."""
    if data is None:
        return None
    forms: Mapping[str, tuple[Any, tuple[int, ...]]] = {}
    if isinstance(data, Dataset):
        arrays = {name: np.asarray(item) for name, item in data.arrays.items()}
        forms = {name: (item.dtype, item.shape) for name, item in arrays.items()}
    elif is_arrays(data):
        try:
            forms = load_forms(data)
        except Error:
            return "unreadable"
    return {name: [str(dtype), *shape[1:]] for name, (dtype, shape) in forms.items()}
