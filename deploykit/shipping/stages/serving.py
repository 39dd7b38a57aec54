"""The stages `export` and `serve`: a version for a server, and the response of a server with it."""

import logging
import os
import shutil
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from deploykit.api import exporting
from deploykit.api.comparison import READ_BY
from deploykit.api.requests import predict
from deploykit.benchmarking.results import load_tuned
from deploykit.benchmarking.run_config import RunConfig
from deploykit.data.preprocessing import declared_for
from deploykit.data.samples import open_feeds
from deploykit.exporting.deployment import Manifests
from deploykit.exporting.export import Exported
from deploykit.exporting.named_model import NamedModel, open_named_model
from deploykit.exporting.photo_inputs import is_served, photo_aliases
from deploykit.exporting.signatures import KNOWN, aliases_of
from deploykit.importers.metadata_file import about
from deploykit.importers.model_source import ModelSource
from deploykit.serving.client.endpoint import CallError
from deploykit.serving.protocol.signatures import CLASSES, DEFAULT, PREDICT, SCORES, TENSORS
from deploykit.serving.saved_model.write_version import versions_in
from deploykit.shipping.request_speed import request_speed, served
from deploykit.shipping.shipment import Purpose, Shipment, cached, is_folder
from deploykit.shipping.shipped import UNDECIDED, Outcome
from deploykit.shipping.stage_cache import digest_of_path
from deploykit.storage.files import read_bytes
from deploykit.storage.image_folders import list_images
from deploykit.storage.ship_report import MODEL, TUNED
from deploykit.transforms.common.errors import GraphError, VerificationError
from deploykit.transforms.engines.engines import TENSORFLOW
from deploykit.transforms.ir.node import normal
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.child_process import call
from deploykit.verification.synthetic.sample_inputs import demanded_batch, made_up_feeds

logger = logging.getLogger("deploykit")

Sample = dict[str, Array]

CLOSE = 1e-3
"""Relative tolerance: the same kernels differ this much with other threads and batch sizes."""
_MAX_PHOTOS = 20
"""Maximum number of images to send until the server accepts one."""
CLOSE_8_BITS = 0.05
"""Relative tolerance for int8: a value halfway between two codes may round to either."""


@cached(
    "name", "calibration", "evaluation", *READ_BY, "labels", "manifests", "allow_ops", seconds=8
)  # fmt: skip
def export(shipment: Shipment) -> Outcome:
    """Write a version that takes image files if the model's inputs are images."""
    how, callee, folder, why = shipment.how, _named_model(shipment), shipment.folder, ""
    options: dict[str, Any] = {
        "name": shipment.name,
        "warmup": _warmup(shipment, callee),
        "header": how.header,
        "labels": how.labels,
        "allow_ops": how.allow_ops,
        "sample_warmup": False,  # its command is shown in the report
    }
    if isinstance(options["warmup"], str | os.PathLike):  # arrays have the columns already
        options["columns"] = how.columns
    if how.manifests:
        path = shipment.path(TUNED)  # each version states its engine itself
        settings = replace(load_tuned(path), engine=None) if path.exists() else RunConfig()
        options["manifests"] = Manifests(tuple(how.manifests), settings=settings, force=True)
    result, inputs = None, aliases_of(callee) if callee.method == PREDICT else None
    if inputs is not None and photo_aliases(callee, declared_for(inputs).among(inputs)):
        try:
            model = shipment.to_change(MODEL)
            result = exporting.export(model, folder, preprocess=KNOWN, **options)
        except GraphError as error:
            why = f"clients must send tensors, not image files: {error}"
    if result is None:
        result = exporting.export(shipment.to_change(MODEL), folder, **options)
    result = _without_twin(result)
    samples = shipment.arrays() if options["warmup"] is not None else None
    fed = result.fed if samples is None else samples.fed
    document = {**result.document(), "bytes": result.bytes, "fed": dict(fed)}
    del document["commands"]  # they name the folder in which the shipment is built
    sample = None if result.sample is None else str(result.sample.relative_to(folder))
    document["sample"] = {"file": sample, "signature": result.sample_signature}
    files = [str(path.relative_to(folder)) for path in (result.folder, *result.manifests)]
    return Outcome(document, tuple(files), why=why)


def _warmup(shipment: Shipment, callee: NamedModel) -> Any:
    """Return the samples of warm-up requests: arrays, or files that clients send as they are."""
    if callee.method != PREDICT:
        return None  # such a signature takes tf.Examples, which deploykit does not generate
    samples, how = shipment.arrays(), shipment.how
    if samples is not None:
        return dict(samples.arrays)
    return how.calibration if how.calibration is not None else how.evaluation


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


def _named_model(shipment: Shipment) -> NamedModel:
    """Return the shipped model with the aliases that clients use."""
    return open_named_model(ModelSource(shipment.to_change(MODEL)))[1]


@cached(
    "name", "calibration", "evaluation", *READ_BY, "allow_ops", measures=True, seconds=32
)  # fmt: skip
def serve(shipment: Shipment) -> Outcome:
    """Start a server as a user would, send requests, and compare the response with the graph."""
    callee = _named_model(shipment)
    sample, said = _sample(shipment, callee)
    began = time.monotonic()
    with served(shipment.folder, shipment.how.allow_ops) as server:
        seconds, address = time.monotonic() - began, f"127.0.0.1:{server['port']}"
        document: dict[str, Any] = {
            "address": address,
            "seconds": round(seconds, 2),
            "warm_up_requests": shipment.document("export")["warm_up_requests"],
            "tuned": shipment.path(TUNED).exists(),
            "request": said,
        }
        if sample is None:
            document |= dict.fromkeys(("answer", "agrees", "difference", "bar"))
        else:
            document |= _asked(shipment, callee, address, sample)
        document["photo"] = photo = _photo(shipment, address)
        document["requests"] = {"why": said}
        if sample is not None:
            inputs = _request(shipment, callee, sample, photo)
            document["requests"] = request_speed(shipment, address, inputs)
    if document["agrees"] is False:
        raise VerificationError(
            "served-model-differs",
            source=shipment.folder,
            model=MODEL,
            difference=document["difference"],
            most=document["bar"],
        )
    if document["agrees"] is None:
        return Outcome(document, (), UNDECIDED, f"nothing was compared: {document['request']}")
    return Outcome(document)


def _asked(shipment: Shipment, callee: NamedModel, address: str, sample: Sample) -> dict[str, Any]:
    """Send a sample to the signature with the model's own inputs, and compare the response."""
    signature = callee.signature
    if TENSORS in shipment.document("export")["signatures"]:
        signature = TENSORS
    began = time.monotonic()
    result = predict(address, shipment.name, sample, signature=signature)
    milliseconds = 1000 * (time.monotonic() - began)
    use = about(callee.graph).engine
    tensors = {alias: callee.outputs[alias].name for alias in result.outputs
               if alias in callee.outputs}  # fmt: skip
    own = call(
        "deploykit.transforms.engines.engine_session:run_once",
        TENSORFLOW if use is None else use.engine,
        b"".join(callee.graph.serialized()),
        list(tensors.values()),
        {callee.inputs[alias].name: array for alias, array in sample.items()},
    )
    expected = dict(zip(tensors, own, strict=True))
    if CLASSES in result.outputs and CLASSES not in callee.outputs and SCORES in expected:
        highest = np.flip(np.sort(expected[SCORES], axis=-1), axis=-1)
        expected[SCORES] = highest[..., : result.outputs[SCORES].shape[-1]]
    difference = max((_difference(expected[a], result.outputs[a]) for a in tensors), default=None)
    bar = CLOSE_8_BITS if shipment.in_8_bits else CLOSE
    return {
        "answer": _shown(result.document()["values"]),
        "milliseconds": round(milliseconds, 2),
        "agrees": None if difference is None else difference <= bar,
        "difference": difference,
        "bar": bar,
    }


def _sample(shipment: Shipment, callee: NamedModel) -> tuple[Sample | None, str]:
    """Return a sample by alias and its description, or None and the reason."""
    if callee.method != PREDICT:
        return None, f"{callee.method} takes tf.Examples, which are not generated"
    how = shipment.how
    which: Purpose = "calibration" if how.evaluation is None else "evaluation"
    data = getattr(how, which)
    batch = demanded_batch(callee.graph) or 1
    feed: Mapping[str, Array]
    if data is None:
        feeds, why = made_up_feeds(callee.graph, (-1.0, 1.0))
        if not feeds:
            return None, f"no synthetic request is possible: {why}"
        feed, said = feeds[0], "synthetic values"
    elif is_folder(data):  # one batch is read, not all of it
        feed = next(iter(open_feeds(data, callee.graph, how.read_by, batch)[0]))
        said = f"the first sample of {data}"
    else:
        feed = shipment.samples(which).feeds(batch)[0]
        said = f"the first sample of {data if isinstance(data, str) else 'the samples'}"
    aliases = {normal(tensor.name): alias for alias, tensor in callee.inputs.items()}
    return {aliases[normal(tensor)]: array for tensor, array in feed.items()}, said


def _difference(expected: Array, got: Array) -> float:
    """Return the largest difference relative to the largest value; inf if shapes differ."""
    if expected.shape != got.shape:
        return float("inf")
    if expected.dtype.kind not in "fiuV":
        return 0.0 if np.array_equal(expected, got) else float("inf")
    first, second = (item.astype(np.float64) for item in (expected, got))
    if not np.array_equal(np.where(np.isfinite(first), 0, first),
                          np.where(np.isfinite(second), 0, second), equal_nan=True):  # fmt: skip
        return float("inf")  # NaN or Inf in only one of them
    first, second = (np.nan_to_num(item, posinf=0.0, neginf=0.0) for item in (first, second))
    largest = max(float(np.abs(first).max(initial=0.0)), float(np.finfo(np.float32).tiny))
    return float(np.abs(first - second).max(initial=0.0)) / largest


def _shown(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the dtypes, shapes and first few values of a response."""
    results = {}
    for alias, item in values.items():
        rows = item["values"]
        row = rows[0] if isinstance(rows, list) and rows else rows
        results[alias] = {**item, "values": row[:10] if isinstance(row, list) else row}
    return results


def _photo(shipment: Shipment, address: str) -> dict[str, Any] | None:
    """Classify an image of the data if the default signature accepts image files.

    An image that the server refuses, such as a damaged one, is skipped. CallError: all were.
    """
    how = shipment.how
    if TENSORS not in shipment.document("export")["signatures"]:
        return None
    paths = chain.from_iterable(map(_photos_in, (how.evaluation, how.calibration)))
    refused = None
    for path in islice(paths, _MAX_PHOTOS):
        try:
            result = predict(address, shipment.name, [str(path)])
        except CallError as error:
            if error.status != "INVALID_ARGUMENT":
                raise
            logger.warning("%s: skipped, because the server refuses it: %s", path, error)
            refused = error
            continue
        best = result.classes[0][:3] if result.classes else None
        return {"file": str(path), "classes": best}
    if refused is not None:
        raise refused
    return None


def _request(
    shipment: Shipment, callee: NamedModel, sample: Sample, photo: Mapping[str, Any] | None
) -> Sample:
    """Return the inputs of a request to the default signature."""
    signatures = shipment.document("export")["signatures"]
    takes = signatures[DEFAULT if DEFAULT in signatures else callee.signature]["inputs"]
    own = {alias: array for alias, array in sample.items() if alias in takes}
    images = [alias for alias in takes if alias not in own]
    if images:
        if photo is not None:
            content = read_bytes(photo["file"])
        else:
            shape = next(array.shape for array in sample.values() if array.ndim == 4)
            content = _random_bmp(*shape[1:3])
        own |= {alias: np.array([content, b""], object)[:1] for alias in images}
    return own


def _random_bmp(height: int, width: int) -> bytes:
    """Return random pixels as a 24-bit BMP file."""
    pixels = np.random.default_rng(0).integers(0, 256, (height, width * 3), dtype=np.uint8)
    rows = np.zeros((height, -(-width * 3 // 4) * 4), np.uint8)
    rows[:, : width * 3] = pixels
    sizes = b"BM", 54 + rows.size, 0, 0, 54, 40, width, height, 1, 24, 0, rows.size, 0, 0, 0, 0
    return struct.pack("<2sIHHIIiiHHIIiiII", *sizes) + rows.tobytes()


def _photos_in(data: Any) -> Iterator[Path]:
    """Yield the images of a folder whose format servers decode."""
    if isinstance(data, str) and os.path.isdir(data):
        images = map(Path, list_images(data).images)
        yield from (image for image in images if is_served(read_bytes(image)))
