"""Image classification: decode, resize and scale an image, and score it with a model.

A file declares the preprocessing, as for benchmarks and calibration; otherwise it is that of
label_image. TensorFlow decodes and resizes images in the child process that also runs the model.
"""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deploykit.client.call_options import LabelOptions
from deploykit.data.apply_preprocessing import in_python
from deploykit.data.data import one_image
from deploykit.data.pipeline import Pipeline
from deploykit.data.preprocessing import Preprocessing, Steps
from deploykit.data.preprocessing_plan import expected_range_of, plan
from deploykit.importers.image_range import UNIT
from deploykit.records.examples import Feature
from deploykit.storage import image_files
from deploykit.storage.files import read_bytes
from deploykit.transforms.common.errors import GraphError, failed
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import split
from deploykit.transforms.ir.tensors import Array, numpy_type
from deploykit.transforms.runtime.child_process import call
from deploykit.verification.synthetic.sample_inputs import names_of_inputs, type_and_shape

logger = logging.getLogger("deploykit")

STD, SIZE = 255.0, 299  # label_image's defaults
_GREY = np.array([[0.299], [0.587], [0.114]], np.float32)  # luma of ITU-R BT.601


@dataclass(frozen=True)
class ImageInput:
    """An image input of a graph, and its preprocessing steps."""

    tensor: str
    type: str
    batch: int
    steps: Steps
    why: str = ""
    """Source of the expected value range, in words."""
    declared: bool = False
    """Whether a file declares the steps, so that they run exactly as in pipelines."""
    channels_first: bool = False

    def preprocessing(self) -> Preprocessing:
        """Return the declaration that gives the same values."""
        return Preprocessing({self.tensor: replace(self.steps, feature="", dtype="")})

    def fed(self, image: str) -> dict[str, str]:
        """Return the preprocessing of an image file, in words."""
        steps = {self.tensor: replace(self.steps, feature="image")}
        return Pipeline(one_image(image), steps, why={self.tensor: self.why}).fed

    def feed(self, image: bytes) -> Array:
        """Return a batch with the image of a file. TensorFlow may raise an OpError."""
        if self.declared:
            values = in_python(self.steps, Feature("string", (), "image"), image)
            return np.repeat(values[np.newaxis], self.batch, axis=0)
        pixels = _decoded(image)
        if self.steps.channels == 1:
            pixels = pixels @ _GREY
        values = in_python(self.steps, Feature("float32", (None, None, pixels.shape[2])), pixels)
        if self.channels_first:
            values = values.transpose(2, 0, 1)
        dtype = numpy_type(self.type)
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            values = np.clip(np.rint(values), limits.min, limits.max)
        return np.repeat(values.astype(dtype)[np.newaxis], self.batch, axis=0)


def _decoded(image: bytes) -> Array:
    """Return an image, or the first frame of an animation, as float32 [height, width, 3]."""
    # TensorFlow decodes other formats only with their own number of channels.
    channels = 3 if image_files.format_name(image) in ("JPEG", "PNG", "GIF") else 0
    pixels: Array = image_files.decoded(image, channels).astype(np.float32)
    return np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels[:, :, :3]


def image_input(graph: Graph, how: LabelOptions) -> ImageInput:
    """Return the preprocessing of the graph's only input, as label_image does it.

    Sizes default to those of the graph, else 299. A pixel x becomes (x - mean) / std. `mean`
    defaults to 0. `std` defaults to 255, or to 1 for integer inputs, which take pixels unchanged.
    If neither is given and the graph expects another range, that range is used, with a warning.

    GraphError: the graph has several inputs, or its input is not an image.
    """
    tensor, type_, shape = _one_input(graph)
    where, sizes = f"input '{tensor}'", (-1, -1, -1, -1) if shape is None else shape
    if type_ in ("resource", "variant") or numpy_type(type_).kind not in "fiuV":
        raise GraphError("not-an-image-input", what=where, type=type_)
    first = len(sizes) == 4 and sizes[1] in (1, 3) and sizes[3] not in (1, 3)
    if len(sizes) != 4 or sizes[1 if first else 3] not in (-1, 1, 3):
        shown = str(list(sizes)).replace("-1", "?")
        raise GraphError("image-input-shape", what=where, shape=shown)
    batch, *rest = sizes
    channels = rest.pop(0 if first else 2)
    pairs = [*zip((how.input_height, how.input_width), rest, strict=True)]
    if any(requested is None and own < 0 for requested, own in pairs):
        logger.info("%s has no fixed size, using %d (--input_height, --input_width)",
                    where, SIZE)  # fmt: skip
    height, width = (requested or (own if own > 0 else SIZE) for requested, own in pairs)
    mean, std, why = _values(graph, tensor, type_, how)
    steps = Steps(
        channels=3 if channels < 0 else channels,
        resize=(height, width),
        corners=True,
        mean=(mean,),
        std=(std,),
        dtype="float32",
    )
    return ImageInput(tensor, type_, max(batch, 1), steps, why, channels_first=first)


def _values(graph: Graph, tensor: str, type_: str, how: LabelOptions) -> tuple[float, float, str]:
    """Return the mean and the divisor of pixels, and their source in words."""
    is_whole = numpy_type(type_).kind in "iu"
    mean, std = how.input_mean or 0.0, 1.0 if is_whole else STD
    if how.input_mean is not None or how.input_std is not None:
        std = std if how.input_std is None else how.input_std
        return mean, std, "from --input_mean and --input_std"
    if is_whole:
        return mean, std, f"{type_} input"
    expected = expected_range_of(graph, tensor)
    if expected is None or expected.range == UNIT:
        return mean, std, f"label_image's defaults: mean {mean:g}, std {std:g}"
    logger.warning(
        "input '%s' gets values in %s (%s), unlike in label_image; for its 0..1, pass "
        "--input_mean 0 --input_std 255", split(tensor)[0], expected.range, expected.why,
    )  # fmt: skip
    std = STD / (expected.range.high - expected.range.low)
    return 0.0 - expected.range.low * std, std, expected.why


def declared_input(graph: Graph, image: str, declared: Preprocessing) -> ImageInput:
    """Return the graph's only input with the preprocessing that is declared for records.

    GraphError: the graph has several inputs, or the result of the steps does not fit its input.
    """
    tensor, type_, shape = _one_input(graph)
    steps = declared.of(names_of_inputs(graph)[tensor])
    steps, why = plan(one_image(image, steps.feature or "image"), graph, declared)[tensor]
    return ImageInput(tensor, type_, max(shape[0] if shape else 1, 1), steps, why, declared=True)


def _one_input(graph: Graph) -> tuple[str, str, tuple[int, ...] | None]:
    """Return name, dtype and shape of the graph's only input."""
    if len(graph.inputs) != 1:
        count = len(graph.inputs)
        raise GraphError("image-input-ambiguous", inputs_count=count, known=graph.inputs)
    type_, shape, reason = type_and_shape(graph, graph.inputs[0])
    if reason:
        raise GraphError("input-not-described", reason=reason)
    return graph.inputs[0], type_, shape


@dataclass(frozen=True)
class Image:
    """The bytes of an image file, and its name for messages."""

    name: str
    content: bytes


def open_image(image: Any) -> Image:
    """Return an image from a file, or from an array [height, width] or [height, width, channels].

    FileError: the file cannot be read. GraphError: unknown image format, or the array does not have
    1, 3 or 4 channels of integers from 0 to 255.
    """
    if not isinstance(image, str | os.PathLike):
        return Image("the image", image_files.png(np.asarray(image)))
    content = read_bytes(image)
    if not image_files.is_image_content(content):
        kind = "is empty" if not content else "is something else"
        known = [each.name for each in image_files.image_formats()]
        raise GraphError("not-an-image", source=image, got=kind, known=known)
    if refused := image_files.undecodable(content):
        raise refused.within(image)
    return Image(os.fspath(image), content)


def scores(graph: Graph, image: Image, image_input_: ImageInput) -> Array:
    """Return the score of each class, float64 [classes], for an image.

    GraphError: the image cannot be decoded, the graph has several outputs, or its output is not one
    finite score per class.
    """
    if len(graph.outputs) != 1:
        raise GraphError(
            "scores-output-ambiguous", outputs_count=len(graph.outputs), outputs=graph.outputs
        )
    (tensor,) = graph.outputs
    graph_def = b"".join(graph.serialized())
    value = call(f"{__name__}:run_on_image", graph_def, image, image_input_, tensor)
    if value.dtype.kind not in "fiuV" or value.size == 0 or value.ndim == 0:
        raise GraphError("output-not-scores", tensor=tensor, dtype=value.dtype, shape=value.shape)
    array: Array = value[0] if value.ndim > 1 else value
    if max(array.shape) != array.size:
        raise GraphError("output-scores-shape", tensor=tensor, shape=value.shape)
    array = array.reshape(-1).astype(np.float64)
    if not np.isfinite(array).all():
        raise GraphError("class-scores-nan", name=tensor)
    return array


def run_on_image(graph_def: bytes, image: Image, image_input_: ImageInput, output: str) -> Array:
    """Return a graph's output for an image; runs in a child process.

    GraphError: the image cannot be decoded, or the graph cannot be loaded or run.
    """
    import tensorflow as tf

    from deploykit.transforms.runtime.session import Session

    try:
        feed = image_input_.feed(image.content)
    except tf.errors.ResourceExhaustedError as error:
        raise failed("image-not-decoded", error, reason=error.message[:200]) from None
    except tf.errors.OpError as error:
        cause = error.message.splitlines()[0].split("} ")[-1].split(" [Op:")[0]
        raise GraphError("image-not-decoded-file", source=image.name, reason=cause) from None
    return Session(graph_def).run([output], {image_input_.tensor: feed})[0]


def predictions(array: Array, labels: Sequence[str], top: int) -> list[dict[str, Any]]:
    """Return the `top` best classes, best first, ties by number: class, label, score."""
    if len(labels) != len(array):
        logger.warning(
            "the model scores %d classes, but there are %d labels", len(array), len(labels)
        )
    order = np.argsort(-array, kind="stable")[:top].tolist()
    return [
        {
            "class": number,
            "label": labels[number] if number < len(labels) else None,
            "score": float(array[number]),
        }
        for number in order
    ]
