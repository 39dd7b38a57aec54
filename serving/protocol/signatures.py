"""The signatures of a SavedModel, and the input names of image models."""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from deploykit.serving.protocol.protos import SignatureDefMap
from deploykit.transforms.common.documents import Hidden, IfSet
from deploykit.transforms.common.errors import Error, GraphError
from deploykit.transforms.ir.protos import MetaGraphDef, SavedModel, SignatureDef, TensorInfo
from deploykit.transforms.ir.tensors import type_name
from deploykit.transforms.untrusted.files import read_bytes, read_json
from deploykit.transforms.untrusted.wire import check_growth, decoded

logger = logging.getLogger("deploykit")

SERVE = "serve"
DEFAULT = "serving_default"
PREDICT = "tensorflow/serving/predict"
CLASSIFY = "tensorflow/serving/classify"
REGRESS = "tensorflow/serving/regress"
UNAVAILABLE = "unavailable_signatures"  # deploykit's metadata key: reasons by name
HIDDEN = "__saved_model_"  # prefix of signatures that only loaders use

LABELS = "assets.extra/labels.txt"
"""A file of a version with the names of its classes, one in each line."""
PROVENANCE = "assets.extra/deploykit.json"
"""A file of a version with its origin, its signatures, and the axes of its samples."""

# The aliases that Classify and Regress use.
EXAMPLES = "inputs"
CLASSES, SCORES = "classes", "scores"
RESULTS = "outputs"


@dataclass(frozen=True)
class Tensor:
    """A tensor of a signature. A size of -1 is unknown, and so is a shape of None."""

    name: str
    """The name in the graph; empty in the Open Inference Protocol."""
    dtype: str
    shape: tuple[int, ...] | None

    @property
    def is_any_shape(self) -> bool:
        """Whether [-1] may mean any shape, as in the Open Inference Protocol."""
        return not self.name and self.shape == (-1,)


@dataclass(frozen=True)
class Signature:
    """A signature of a model: its method, and tensors by alias."""

    method: str
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    proto: Hidden[SignatureDef]
    unavailable: IfSet[str] = ""
    """Why the server rejects requests for it; empty if it does not."""
    batch_axes: Hidden[Mapping[str, int]] = field(default_factory=dict)
    """Axis of the samples in inputs that take them on another axis than the first."""


def read_meta_graph(folder: Path) -> MetaGraphDef:
    """Return the MetaGraphDef of a version folder with the tag `serve`.

    FileError: saved_model.pb is missing or cannot be read. GraphError: it is not a SavedModel, or
    has no graph with that tag.
    """
    path = folder / "saved_model.pb"
    try:
        content = read_bytes(path)
        check_growth(content, SavedModel)
        model = decoded(content, SavedModel)
    except GraphError as error:
        raise GraphError("not-a", source=path, what="a SavedModel", reason=error) from None
    for meta in model.meta_graphs:
        if list(meta.meta_info_def.tags) == [SERVE]:
            return meta
    raise GraphError("graph-tag-missing", source=path, tag=SERVE)


def signatures_of(meta: MetaGraphDef) -> dict[str, Signature]:
    """Return the signatures by name, without those that only loaders use."""
    return {
        name: Signature(
            proto.method_name, tensors_of(proto.inputs), tensors_of(proto.outputs), proto
        )
        for name, proto in sorted(meta.signature_def.items())
        if not name.startswith(HIDDEN)
    }


def signatures_with_axes(folder: Path, meta: MetaGraphDef) -> dict[str, Signature]:
    """Return the signatures of a version folder, with the axes of samples that `export` stored.

    A file that cannot be read is logged: TensorFlow Serving ignores it too.
    """
    results, path = signatures_of(meta), folder / PROVENANCE
    try:
        document = read_json(path, "description of a version") if path.is_file() else {}
    except Error as error:
        logger.warning("ignoring the description of a version: %s", error)
        return results
    stored = document.get("batch_axes") if isinstance(document, Mapping) else None
    for name, axes in (stored if isinstance(stored, Mapping) else {}).items():
        if name in results and isinstance(axes, Mapping):
            inputs = results[name].inputs
            known = {a: n for a, n in axes.items() if a in inputs and isinstance(n, int) and n > 0}
            results[name] = replace(results[name], batch_axes=known)
    return results


def signatures_in(
    signature_def_map: SignatureDefMap, unavailable: Mapping[str, str] | None = None
) -> dict[str, Signature]:
    """Return the signatures by name that a server sent, with the reasons of unavailable ones."""
    meta = MetaGraphDef()
    for name, signature in signature_def_map.signature_def.items():
        meta.signature_def[name].ParseFromString(signature.SerializeToString())
    refused = unavailable or {}
    return {
        name: replace(item, unavailable=str(refused.get(name, "")))
        for name, item in signatures_of(meta).items()
    }


def signature_map(signatures: Mapping[str, Signature]) -> SignatureDefMap:
    """Return signatures as TensorFlow Serving sends them."""
    signature_def_map = SignatureDefMap()
    for name, signature in signatures.items():  # of other classes in another pool
        signature_def_map.signature_def[name].ParseFromString(signature.proto.SerializeToString())
    return signature_def_map


def unavailable_in(signatures: Mapping[str, Signature]) -> dict[str, str]:
    """Return the reason for each unavailable signature by name."""
    return {name: item.unavailable for name, item in signatures.items() if item.unavailable}


def tensors_of(infos: Mapping[str, TensorInfo]) -> dict[str, Tensor]:
    """Return the tensors of TensorInfos by alias, in alphabetical order."""
    return {alias: tensor_of(info) for alias, info in sorted(infos.items())}


def tensor_of(info: TensorInfo) -> Tensor:
    """Return the tensor of a TensorInfo."""
    shape = info.tensor_shape
    sizes = None if shape.unknown_rank else tuple(dim.size for dim in shape.dim)
    return Tensor(info.name, type_name(info.dtype), sizes)


def described(signatures: Mapping[str, SignatureDef]) -> dict[str, Any]:
    """Return signatures as plain data, with None for unknown sizes and shapes."""
    return {
        name: {
            "method": signature.method_name,
            **{
                side: {
                    alias: {"dtype": str(tensor.dtype), "shape": sizes(tensor)}
                    for alias, tensor in sorted((a, tensor_of(i)) for a, i in infos.items())
                }
                for side, infos in (("inputs", signature.inputs), ("outputs", signature.outputs))
            },
        }
        for name, signature in sorted(signatures.items())
    }


def sizes(tensor: Tensor) -> list[int | None] | None:
    """Return a shape for messages and JSON, with None for unknown sizes."""
    if tensor.shape is None:
        return None
    return [None if size < 0 else size for size in tensor.shape]


SCOPE = "photos"
BYTES = "bytes"
"""Input of image files, strings [N], in the default signature."""
PIXELS = "pixels"
"""Signature with decoded images as input, and that input: uint8 [N, height, width, channels]."""
TENSORS = "tensors"
"""Signature with the inputs of the model itself."""
READY = "ready"
"""Name of the nodes that produce the preprocessed images."""
KINDS = "JPEG, PNG, GIF, BMP or WebP"
PLACE = "; its place in the batch:"
"""End of an error message; the index in the batch follows, counted from 0."""

_IN_SCOPE = rf"{SCOPE}(?:_\d+)?/(?:.+/)?"
_BYTES = re.compile(rf"{_IN_SCOPE}{BYTES}:0")
_PIXELS = re.compile(rf"{_IN_SCOPE}{PIXELS}:0")
_READY = re.compile(rf"{_IN_SCOPE}{READY}")


def takes_files(tensor: Tensor) -> bool:
    """Return whether an input takes images as bytes of their files."""
    return tensor.dtype == "string" and bool(_BYTES.fullmatch(tensor.name))


def takes_pixels(tensor: Tensor) -> bool:
    """Return whether an input takes decoded images, of any size that its shape allows."""
    return tensor.dtype == "uint8" and bool(_PIXELS.fullmatch(tensor.name))


def is_ready(node: str) -> bool:
    """Return whether a node produces the preprocessed images."""
    return bool(_READY.fullmatch(node))


def photos_in_words(tensor: Tensor) -> str:
    """Return a description of an image input; "" for other inputs."""
    if takes_files(tensor):
        return f"photos as files ({KINDS})"
    if takes_pixels(tensor):
        return "pixels of photos, 0..255"
    return ""
