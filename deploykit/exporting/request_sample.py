"""One sample of a request, stored in an exported version, and the command that sends it."""

import io
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from deploykit.exporting.named_model import NamedModel
from deploykit.exporting.photo_inputs import PhotoSides
from deploykit.exporting.signatures import Dataset
from deploykit.serving.protocol.signatures import DEFAULT, PREDICT
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.common.messages import shell_command
from deploykit.transforms.ir.node import normal
from deploykit.transforms.ir.protos import SignatureDef
from deploykit.transforms.ir.tensors import Array
from deploykit.verification.synthetic.encoded_files import png
from deploykit.verification.synthetic.sample_inputs import demanded_batch, made_up_feeds

SAMPLE = "assets.extra/sample.npz"
"""The arrays of one request by input, below a version's folder."""
ADDRESS = "localhost:8500"
_MOST = 64 << 20  # bytes


def request_sample(
    callee: NamedModel,
    signatures: Mapping[str, SignatureDef],
    photos: PhotoSides | None,
    samples: Dataset | None,
) -> bytes | None:
    """Return the .npz file of a request to the signature `called`.

    It contains the first of the given samples if that signature takes them, else synthetic values.
    None: no request can be generated.
    """
    name = called(signatures)
    if name is None:
        return None
    if samples is not None and samples[0] == name:
        feed = next(iter(samples[1]), None)
        given = {} if feed is None else {k.removesuffix(":0"): array for k, array in feed.items()}
        if given and (content := _archive(given)) is not None:
            return content
    return _archive(_synthetic(callee, photos, set(signatures[name].inputs)))


def called(signatures: Mapping[str, SignatureDef]) -> str | None:
    """Return the signature of the request: the default one, or else the first that has tensors."""
    names = [name for name in (DEFAULT, *sorted(signatures)) if name in signatures]
    return next((name for name in names if signatures[name].method_name == PREDICT), None)


def _synthetic(
    callee: NamedModel, photos: PhotoSides | None, inputs: set[str]
) -> Mapping[str, Array]:
    """Return synthetic values of the inputs; {}: they cannot be generated."""
    if callee.method != PREDICT:
        return {}
    try:
        feeds, _ = made_up_feeds(callee.graph, (-1.0, 1.0))
    except GraphError:
        return {}
    if not feeds:
        return {}
    count = demanded_batch(callee.graph) or 1
    aliases = {normal(tensor.name): alias for alias, tensor in callee.inputs.items()}
    axes = getattr(feeds[0], "axes", {})
    values = {
        aliases[normal(tensor)]: array if not array.ndim
        else array.take(range(min(count, array.shape[axes.get(tensor, 0)])), axes.get(tensor, 0))
        for tensor, array in feeds[0].items()
        if normal(tensor) in aliases  # the others are inputs of other signatures
    }  # fmt: skip
    if photos is not None:
        image = np.array([png(np.random.default_rng(0))], object)
        values |= {photos.renamed[alias]: image for alias in photos.steps}
    return {alias: values[alias] for alias in inputs} if inputs <= values.keys() else {}


def _archive(arrays: Mapping[str, Array]) -> bytes | None:
    """Return arrays as an .npz file; None: a file cannot hold them, or they are too large."""
    plain = {name: _plain(array) for name, array in arrays.items()}
    if not plain or sum(array.nbytes for array in plain.values()) > _MOST:
        return None
    for name, array in plain.items():
        if array.dtype.kind == "S" and array.tolist() != _bytes(arrays[name]):
            return None  # NumPy cuts zero bytes at the end
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, array in plain.items():  # np.savez takes no array of the name `file`
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w") as file:
                np.lib.format.write_array(file, np.asarray(array))
    return content.getvalue()


def _bytes(array: Array) -> object:
    return np.vectorize(lambda item: item if isinstance(item, bytes) else str(item).encode(),
                        otypes=[object])(array).tolist()  # fmt: skip


def _plain(array: Array) -> Array:
    """Return an array of a dtype that .npy files hold."""
    if array.dtype.kind == "V":  # bfloat16 and other types of ml_dtypes
        return array.astype(np.float32)
    if array.dtype.kind in "OU":
        return np.array(_bytes(array), bytes).reshape(array.shape)
    return array


def request_command(name: str, sample: Path | None, signature: str | None) -> str:
    """Return a command that sends a sample to a model, or asks for its status without a sample.

    `signature` is that of the request; None: the one that clients use if they name none.
    """
    if sample is None:
        return shell_command("deploykit", "status", ADDRESS, name)
    chosen = () if signature is None else ("--signature", signature)
    return shell_command("deploykit", "predict", ADDRESS, name, os.fspath(sample), *chosen)
