"""Inputs of requests: converts values and files to arrays that fit a signature."""

import itertools
import json
import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from deploykit.client.label_image import open_image
from deploykit.data.data import one_image
from deploykit.data.pipeline import kind_of, log_inputs
from deploykit.data.preprocessing import Preprocessing, preprocessing_of, refuse_batch_axes
from deploykit.data.samples import open_feeds
from deploykit.rendering.serving import described
from deploykit.serving.client.client import as_array
from deploykit.serving.protocol.signatures import DEFAULT, Signature, Tensor, takes_files
from deploykit.storage.arrays import load_array, load_data
from deploykit.storage.data_files import NUMPY_END
from deploykit.storage.files import check_regular, read_bytes
from deploykit.storage.image_files import image_ends
from deploykit.storage.image_folders import is_image
from deploykit.transforms.common.errors import FileError, GraphError, naming, nearest, unknown_name
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import Array, DType, numpy_type, type_of
from deploykit.verification.fitting import in_type
from deploykit.verification.synthetic.sample_inputs import names_of_inputs

logger = logging.getLogger("deploykit")

_SHOWN = 4  # values of a sample that a message shows
MAX_REQUESTS, MAX_BYTES = 256, 64 << 20  # of the requests that a load test repeats


def chosen_signature(
    signatures: Mapping[str, Signature], name: str | None
) -> tuple[str, Signature]:
    """Return the named signature, or the default one, or the only one, with its name.

    GraphError: the signature does not exist.
    """
    only = next(iter(signatures)) if len(signatures) == 1 else DEFAULT
    expected = name or (DEFAULT if DEFAULT in signatures else only)
    if expected not in signatures:
        raise GraphError(
            "request-signature-unknown",
            name=expected,
            hint=nearest(expected, list(signatures)),
            known=signatures,
        )
    return expected, signatures[expected]


def arrays_from(
    given: Mapping[str, Any] | Sequence[str], signature: Signature, preprocess: Any = None
) -> tuple[dict[str, Array], dict[str, str]]:
    """Return the array of each input, and the preprocessing of files in words.

    Args:
        given: by name, arrays, values or paths; or strings such as `x=data.npy`, where `x=` may be
            omitted if there is one input, or `.npz` files of arrays by input name.
        signature: signature of the model.
        preprocess: preprocessing of images: a file, its content, or a range such as `0..1`.

    FileError, GraphError: an input is missing or unknown, or a value does not fit it.
    """
    declared = Preprocessing()
    if preprocess is not None:
        known = placeholders(signature)
        declared = preprocessing_of(preprocess).among(known)
        refuse_batch_axes(known, declared, "an image", "Give the request's array as a .npy file.")
    fed: dict[str, str] = {}
    arrays: dict[str, Array] = {}
    has_image = False
    for alias, value, name in _named(given, signature):
        is_file = signature.inputs[alias].dtype == "string" and isinstance(value, os.PathLike)
        if alias in arrays and not is_file:
            example = ["a", "b"] if signature.inputs[alias].dtype == "string" else [1, 2]
            raise GraphError("input-given-twice", name=alias, example=json.dumps(example))
        has_image = has_image or _is_image(value, signature.inputs[alias])
        with naming(name):
            array, text = _array(alias, value, signature, declared)
            array = _fitted(array, alias, signature)
            if alias in arrays:
                is_photo = takes_files(signature.inputs[alias])
                text = f"{len(arrays[alias]) + len(array)} files"
                text += " (the model decodes them)" if is_photo else ", as they are"
            fed |= {alias: text} if text else {}
            arrays[alias] = np.concatenate([arrays[alias], array]) if alias in arrays else array
    # Metadata of the Open Inference Protocol does not mark optional inputs.
    missing = [
        alias
        for alias, tensor in signature.inputs.items()
        if alias not in arrays and alias not in signature.proto.defaults and tensor.name
    ]
    if missing:
        raise GraphError("input-missing", name=missing[0], inputs=listed(signature.inputs))
    if declared != Preprocessing() and not has_image:
        raise GraphError(
            "no-effect", option="--preprocess", where="on images that are given as files"
        )
    log_inputs(fed)
    return arrays, fed


def described_by(given: Any) -> dict[str, Tensor]:
    """Return inputs with the dtypes of the given values, and of any shape.

    It serves for a server that does not describe the model's inputs. `given` is as in
    `arrays_from`, or a `.npz` file of arrays by input name; other data give no inputs. FileError,
    GraphError: a file is missing, or cannot be read.
    """
    if isinstance(given, str | os.PathLike):
        path = os.fspath(given)
        given = load_data(path) if path.lower().endswith(NUMPY_END) else [path]
    if not isinstance(given, Mapping):
        values: dict[str, Any] = {}
        for text in given:
            alias, sign, value = text.partition("=")
            if _is_archive(text):
                values |= load_data(text)
            elif sign:
                found = _file_or_value(value)
                values[alias] = found if isinstance(found, os.PathLike) else found.tolist()
        given = values
    return {alias: Tensor("", _type_of(value), (-1,)) for alias, value in given.items()}


def _type_of(value: Any) -> str:
    if not isinstance(value, os.PathLike):
        return type_of(as_array(value))
    path = os.fspath(value)
    return type_of(load_array(path)) if path.lower().endswith(".npy") else "string"


def feeds_from_data(
    data: Any, signature: Signature, preprocess: Any, batch: int
) -> tuple[list[dict[str, Array]], Mapping[str, str]]:
    """Return the inputs of each request, and the preprocessing of files in words.

    `data` are samples as `open_samples` takes them. FileError, GraphError: they do not fit.
    """
    samples, fed = open_feeds(data, placeholders(signature), preprocess, batch)
    feeds: list[dict[str, Array]] = []
    size = 0
    for feed in itertools.islice(samples, MAX_REQUESTS):
        size += sum(array.nbytes for array in feed.values())
        if feeds and size > MAX_BYTES:
            break
        feeds.append({name.removesuffix(":0"): array for name, array in feed.items()})
    return feeds, fed


def placeholders(signature: Signature) -> Graph:
    """Return a graph with a placeholder for each input of a signature, to prepare data for."""
    nodes = []
    for alias, tensor in signature.inputs.items():
        node = Node(alias, "Placeholder").with_attrs(dtype=DType(tensor.dtype))
        is_open = tensor.shape is None or tensor.is_any_shape
        nodes.append(node if is_open else node.with_attrs(shape=tensor.shape))
    graph = Graph(nodes)
    graph.inputs = graph.outputs = tuple(signature.inputs)
    return graph


def listed(tensors: Mapping[str, Tensor]) -> list[str]:
    """Return names, dtypes and shapes: `x float32[?, 224, 224, 3]`."""
    return [f"{alias} {_described(item)}" for alias, item in tensors.items()]


def _described(tensor: Tensor) -> str:
    return described(tensor.dtype, tensor.shape)


def _named(
    given: Mapping[str, Any] | Sequence[str], signature: Signature
) -> Iterator[tuple[str, Any, str]]:
    """Yield the input of each value, the value, and its name for messages.

    GraphError: the input does not exist.
    """
    if isinstance(given, Mapping):
        for alias, value in given.items():
            if alias not in signature.inputs:
                hint = nearest(alias, list(signature.inputs))
                raise unknown_name("input", alias, listed(signature.inputs), hint)
            yield alias, value, f"input '{alias}'"
        return
    for text in [given] if isinstance(given, str) else given:
        if _is_archive(text):
            with naming(text):
                named = list(_named(load_data(text), signature))
            for alias, value, name in named:
                yield alias, value, f"{text}: {name}"
        else:
            yield *_parted(text, signature), text


def _is_archive(text: str) -> bool:
    """Return whether an argument is a file of arrays by input name."""
    return text.lower().endswith(NUMPY_END) and os.path.isfile(text)


def _parted(text: str, signature: Signature) -> tuple[str, Any]:
    """Return the input that an argument names, and its file or value."""
    alias, sign, value = text.partition("=")
    if sign and alias in signature.inputs:
        return alias, _file_or_value(value, signature.inputs[alias], alias)
    only = next(iter(signature.inputs)) if len(signature.inputs) == 1 else None
    is_text = bool(only and sign) and _takes_text(signature.inputs[str(only)])
    if only and (not sign or Path(text).exists() or (is_text and not nearest(alias, [only]))):
        return only, _file_or_value(text, signature.inputs[only], only)
    hint = nearest(alias, list(signature.inputs)) if sign else ""
    raise GraphError("input-argument-form", source=text, hint=hint, inputs=listed(signature.inputs))


def _takes_text(tensor: Tensor) -> bool:
    return tensor.dtype == "string" and not takes_files(tensor)


def _file_or_value(text: str, tensor: Tensor | None = None, alias: str = "") -> Any:
    """Return the path of an existing file, or the value of JSON; else plain text for strings."""
    if os.path.exists(text):
        return Path(text)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    is_text = tensor is not None and _takes_text(tensor) and not text.endswith((".npz", ".npy"))
    if is_text and not _has_strings(value):
        logger.info("%s: the text %s", alias, json.dumps(text, ensure_ascii=False)[:100])
        return np.array(text)
    try:
        array = np.array(value)
    except ValueError:  # lists of several lengths
        array = np.empty(0, object)
    if array.dtype.kind not in "biufU":
        raise FileError("input-file-missing", source=text)
    return array


def _has_strings(value: Any) -> bool:
    """Return whether a value of JSON is a string, or a list with strings at any depth."""
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, str):
            return True
        if isinstance(item, list):
            left += item
    return False


def _array(
    alias: str, value: Any, signature: Signature, declared: Preprocessing
) -> tuple[Array, str]:
    """Return the array of a value, or of a file: its array, its image or its bytes.

    The second result is the preprocessing of a file, in words.
    """
    is_text = signature.inputs[alias].dtype == "string"
    if takes_files(signature.inputs[alias]) and isinstance(value, os.PathLike):
        if declared != Preprocessing():
            raise GraphError("preprocess-decided", name=alias)
        text = f"the file {Path(value).name} (the model decodes it)"
        return np.array([open_image(value).content], object), text
    if not isinstance(value, os.PathLike) and (is_text or not isinstance(value, str)):
        try:  # bytes keep their trailing zeros
            return np.asarray(value, object if isinstance(value, bytes) else None), ""
        except ValueError as error:
            raise GraphError("not-a", what="an array", reason=error) from None
    path = os.fspath(value)
    check_regular(path)
    if path.lower().endswith(".npy"):
        array = load_array(path)
        return array, f"{kind_of(str(array.dtype), array.shape, path)}, as they are"
    if is_text:
        return np.array([read_bytes(path)], object), f"the bytes of {Path(path).name}, as they are"
    if _is_image(value, signature.inputs[alias]):
        return _of_image(alias, path, signature, declared)
    raise GraphError("not-npy-or-image", endings=image_ends())


def _is_image(value: Any, tensor: Tensor) -> bool:
    """Return whether a value is the path of an image that is decoded here."""
    is_path = isinstance(value, str | os.PathLike) and tensor.dtype != "string"
    return is_path and is_image(os.fspath(value))


def _of_image(
    alias: str, path: str, signature: Signature, declared: Preprocessing
) -> tuple[Array, str]:
    """Return a batch of one image, decoded and resized as for calibration and benchmarks."""
    from deploykit.data.pipeline import pipeline_for
    from deploykit.data.samples import Feeds

    graph = placeholders(replace(signature, inputs={alias: signature.inputs[alias]}))
    (names,) = names_of_inputs(graph).values()
    only = {name: steps for name, steps in declared.inputs.items() if name in names}
    how = replace(declared, inputs=only)
    pipeline = pipeline_for(one_image(path), graph, preprocessing=how, batch=1, epochs=1, threads=1)
    return next(iter(Feeds(pipeline)))[alias], pipeline.fed[alias]


def _fitted(array: Array, alias: str, signature: Signature) -> Array:
    """Return an array with the input's dtype and rank. GraphError: it does not fit."""
    tensor = signature.inputs[alias]
    requested = numpy_type(tensor.dtype)
    if requested.kind == "O":
        if array.dtype.kind not in "OSU":
            raise GraphError(
                "does-not-fit", what="the value", got=array.dtype, expected=f"strings for '{alias}'"
            )
    elif array.dtype.kind in "OSU" or not np.can_cast(array.dtype, requested, "same_kind"):
        raise GraphError(
            "does-not-fit",
            what="the value",
            got=array.dtype,
            expected=f"{_described(tensor)} for '{alias}'",
        )
    else:
        array = in_type(alias, array, tensor.dtype)  # which refuses a value beyond the type
    shape = tensor.shape
    if shape is None or (array.ndim and tensor.is_any_shape):
        return array
    if array.ndim == len(shape) - 1 or (array.size == 1 and array.ndim < len(shape)):
        array = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
    fits = array.ndim == len(shape) and all(
        size in (-1, given) for size, given in zip(shape, array.shape, strict=True)
    )
    if not fits:
        raise GraphError(
            "value-shape",
            shape=array.shape,
            name=alias,
            expected=_described(tensor),
            hint=_nested(tensor),
        )
    return array


def _nested(tensor: Tensor) -> str:
    """Return how two samples of a small input are written, or an empty string."""
    sizes = (tensor.shape or ())[1:]
    if not sizes or -1 in sizes or math.prod(sizes) > _SHOWN:
        return ""
    value = "a" if tensor.dtype == "string" else 1
    return f"; two samples are written as {json.dumps(np.full((2, *sizes), value).tolist())}"
