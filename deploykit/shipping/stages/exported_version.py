"""The stage `export`: the model version for a server, with image decoding if possible."""

import shutil
from dataclasses import replace
from typing import Any

from deploykit.api import exporting
from deploykit.benchmarking.results import load_tuned
from deploykit.benchmarking.run_config import RunConfig
from deploykit.data.preprocessing import declared_for
from deploykit.exporting.deployment import Manifests
from deploykit.exporting.export import Exported
from deploykit.exporting.named_model import NamedModel, open_named_model
from deploykit.exporting.photo_inputs import photo_aliases
from deploykit.exporting.signatures import KNOWN, aliases_of
from deploykit.importers.model_source import ModelSource
from deploykit.serving.protocol.signatures import PREDICT
from deploykit.serving.saved_model.write_version import versions_in
from deploykit.shipping.shipment import Shipment, cached
from deploykit.shipping.shipped import Outcome
from deploykit.shipping.stage_cache import digest_of_path
from deploykit.storage.ship_report import MODEL, TUNED
from deploykit.transforms.common.errors import GraphError


@cached(
    "name", "calibration", "evaluation", "preprocess", "labels", "manifests", "allow_ops", seconds=8
)
def export(shipment: Shipment) -> Outcome:
    """Write a version that takes image files if the model's inputs are images."""
    how, callee, why = shipment.how, named_model(shipment), ""
    options: dict[str, Any] = {
        "name": shipment.name,
        "warmup": _warmup(shipment, callee),
        "labels": how.labels,
        "allow_ops": how.allow_ops,
        "sample_warmup": False,  # its command is shown in the report
    }
    if how.manifests:
        options["manifests"] = Manifests(
            tuple(how.manifests), settings=_tuned(shipment), force=True
        )
    result = None
    if _takes_photos(callee):
        try:
            result = exporting.export(
                shipment.to_change(MODEL), shipment.folder, preprocess=KNOWN, **options
            )
        except GraphError as error:
            why = f"clients must send tensors, not image files: {error}"
    if result is None:
        result = exporting.export(shipment.to_change(MODEL), shipment.folder, **options)
    result = _without_twin(result)
    samples = shipment.arrays() if options["warmup"] is not None else None
    fed = result.fed if samples is None else samples.fed
    document = {**result.document(), "bytes": result.bytes, "fed": dict(fed)}
    del document["commands"]  # they name the folder in which the shipment is built
    sample = None if result.sample is None else str(result.sample.relative_to(shipment.folder))
    document["sample"] = {"file": sample, "signature": result.sample_signature}
    return Outcome(document, _written(shipment, result), why=why)


def _warmup(shipment: Shipment, callee: NamedModel) -> Any:
    """Return the samples of warm-up requests: arrays, or files that clients send as they are."""
    if callee.method != PREDICT:
        return None  # such a signature takes tf.Examples, which deploykit does not generate
    samples, how = shipment.arrays(), shipment.how
    if samples is not None:
        return dict(samples.arrays)
    return how.calibration if how.calibration is not None else how.evaluation


def _tuned(shipment: Shipment) -> RunConfig:
    """Return the tuned settings without the engine, which the version itself specifies."""
    path = shipment.path(TUNED)
    return replace(load_tuned(path), engine=None) if path.exists() else RunConfig()


def _without_twin(exported: Exported) -> Exported:
    """Remove the version if an earlier one is identical, as a server may have loaded that one."""
    written = digest_of_path(exported.folder)
    earlier = versions_in(exported.folder.parent)
    earlier.pop(exported.version)
    number = next((n for n, folder in earlier.items() if digest_of_path(folder) == written), None)
    if number is None:
        return exported
    shutil.rmtree(exported.folder)
    return replace(exported, version=number, folder=exported.folder.parent / str(number))


def _written(shipment: Shipment, exported: Exported) -> tuple[str, ...]:
    paths = [exported.folder, *exported.manifests]
    return tuple(str(path.relative_to(shipment.folder)) for path in paths)


def named_model(shipment: Shipment) -> NamedModel:
    """Return the shipped model with the aliases that clients use."""
    return open_named_model(ModelSource(shipment.to_change(MODEL)))[1]


def _takes_photos(callee: NamedModel) -> bool:
    if callee.method != PREDICT:
        return False
    inputs = aliases_of(callee)
    return bool(photo_aliases(callee, declared_for(inputs).among(inputs)))
