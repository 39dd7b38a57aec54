"""Image preprocessing in front of a model: inputs are computed from files or pixels by default."""

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deploykit.data.apply_preprocessing import in_graph
from deploykit.data.data import Data
from deploykit.data.pipeline import changes
from deploykit.data.preprocessing import Preprocessing, Steps
from deploykit.data.preprocessing_plan import Planned, plan, result_of
from deploykit.exporting.named_model import NamedModel
from deploykit.records.examples import Feature
from deploykit.serving.protocol.signatures import BYTES, KINDS, PIXELS, PLACE, READY, SCOPE, Tensor
from deploykit.serving.saved_model.proto import tensors_of
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, split
from deploykit.transforms.ir.ops import FEEDABLE_OPS
from deploykit.transforms.ir.protos import GraphDef
from deploykit.transforms.ir.tensors import Array, DType
from deploykit.transforms.runtime.child_process import call

FILE = Feature("string", (), "image")
_AT_ONCE = 8  # files of a batch decoded in parallel
_JPEG, _PNG, _GIF, _BMP = _MAGIC = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM")
_WEBP = {kind: b"WEBP" + kind for kind in (b"VP8 ", b"VP8L", b"VP8X")}  # bytes 8 to 15
_WEBP_SIDE = 1 << 14  # a side of a WebP image has fewer pixels
_HEAD = 30  # bytes that contain the image size in all formats but JPEG


@dataclass(frozen=True)
class PhotoInput:
    """An input that accepts images."""

    alias: str
    scope: str
    """Name scope of its nodes."""
    steps: Steps
    batch: int | None
    """Fixed batch size; None if it is unknown."""


def photo_graph(inputs: Sequence[PhotoInput], most_pixels: int) -> bytes:
    """Return a serialized GraphDef with the nodes `bytes`, `pixels` and `ready` of each input.

    Clients feed `bytes` or `pixels`. The graph rejects other file types and images above
    `most_pixels` before it decodes them.
    """
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        for input_ in inputs:
            with tf.name_scope(f"{input_.scope}/"):
                _add(input_, most_pixels)
    return bytes(graph.as_graph_def().SerializeToString(deterministic=True))


def _add(input_: PhotoInput, most_pixels: int) -> None:
    import tensorflow as tf

    steps = input_.steps
    channels = steps.channels or 3
    decoded = Feature("uint8", (None, None, channels))
    result = result_of(steps, FILE)
    files = tf.compat.v1.placeholder_with_default(
        tf.constant([], tf.string, [0]), [None], name=BYTES
    )
    pixels = tf.compat.v1.placeholder_with_default(
        np.zeros((0, 1, 1, channels), np.uint8), [None, *decoded.shape], name=PIXELS
    )

    def of_files() -> Any:
        checked, sizes = _checked(files), _pixels_by_head(files)
        return tf.map_fn(
            lambda item: in_graph(steps, FILE, _bounded(item, most_pixels), optimized=True),
            (tf.range(tf.size(files)), checked, sizes),
            fn_output_signature=tf.TensorSpec(result.shape, result.dtype),
            parallel_iterations=_AT_ONCE,
        )

    def of_pixels() -> Any:
        return tf.ensure_shape(
            in_graph(steps, decoded, pixels, optimized=True), [None, *result.shape]
        )

    ready = tf.cond(tf.size(files) > 0, of_files, of_pixels)
    tf.identity(tf.ensure_shape(ready, [input_.batch, *result.shape]), name=READY)


def _checked(files: Any) -> Any:
    """Return the files [n] with an assertion that all are of a known type."""
    import tensorflow as tf

    known = functools.reduce(tf.logical_or, map(functools.partial(_begin, files), _MAGIC))
    known |= _begin(files, b"RIFF") & functools.reduce(
        tf.logical_or, (tf.equal(tf.strings.substr(_heads(files), 8, 8), k) for k in _WEBP.values())
    )
    unknown = tf.boolean_mask(tf.range(tf.size(files)), ~known)
    text = f"this file is not a {KINDS}{PLACE}"
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(known), [text, unknown])]):
        return tf.identity(files)


def _bounded(results: tuple[Any, Any, Any], most: int) -> Any:
    """Return a file with an assertion that its image is not too large.

    `results` are its index, contents and number of pixels, which is not valid for a JPEG.
    """
    import tensorflow as tf

    place, file, pixels = results

    def of_jpeg() -> Any:
        shape = tf.io.extract_jpeg_shape(file, tf.int64)
        return shape[0] * shape[1]

    count = tf.cond(_begin(file, _JPEG), of_jpeg, lambda: pixels)
    text = f"this image has more than {most} pixels, the limit for decoding{PLACE}"
    with tf.control_dependencies([tf.debugging.Assert(count <= most, [text, place])]):
        return tf.identity(file)


def _begin(files: Any, magic: bytes) -> Any:
    """Return whether a file, or each of several, begins with `magic`, as a bool tensor."""
    import tensorflow as tf

    return tf.equal(tf.strings.substr(files, 0, len(magic)), magic)


def _heads(files: Any) -> Any:
    """Return the first bytes of files, at least `_HEAD` of each."""
    import tensorflow as tf

    return tf.strings.substr(files, 0, _HEAD) + bytes(_HEAD)


def is_served(file: bytes) -> bool:
    """Return whether the graph of `photo_graph` accepts the format of an image file."""
    is_webp = file.startswith(b"RIFF") and file[8:16] in _WEBP.values()
    return is_webp or file.startswith(_MAGIC)


def accepted(
    requests: Sequence[Mapping[str, Sequence[bytes]]], steps: Mapping[str, Steps], most_pixels: int
) -> list[bool]:
    """Return for each request of image files by alias whether the image preprocessing accepts it.

    It builds and runs the graph of `photo_graph`, so call this in a child process.
    """
    import tensorflow as tf

    scopes = {alias: f"{SCOPE}/{number}" for number, alias in enumerate(steps)}
    inputs = [PhotoInput(alias, scope, steps[alias], None) for alias, scope in scopes.items()]
    definition = GraphDef.FromString(photo_graph(inputs, most_pixels))
    results = []
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.graph_util.import_graph_def(definition, name="")
        for request in requests:
            feed = {f"{scopes[alias]}/{BYTES}:0": files for alias, files in request.items()}
            try:
                session.run([f"{scopes[alias]}/{READY}:0" for alias in request], feed)
            except tf.errors.OpError:
                results.append(False)
            else:
                results.append(True)
    return results


def _pixels_by_head(files: Any) -> Any:
    """Return the number of pixels of each image from its file header; not valid for JPEGs.

    Sources: PNG specification, 11.2.2 IHDR; GIF89a, 18; BITMAPINFOHEADER; RFC 9649 (WebP).
    """
    import tensorflow as tf

    heads = _heads(files)
    bytes_ = tf.cast(tf.io.decode_raw(tf.strings.substr(heads, 0, _HEAD), tf.uint8), tf.int64)

    def number(start: int, size: int, big: bool = False) -> Any:
        places = [size - 1 - n if big else n for n in range(size)]
        weights = np.array([256**n for n in places], np.int64)
        return tf.reduce_sum(bytes_[:, start : start + size] * weights, 1)

    png = number(16, 4, big=True) * number(20, 4, big=True)
    gif = number(6, 2) * number(8, 2)
    rows = number(22, 4)  # negative: the first row is at the top
    bmp = number(18, 4) * tf.minimum(rows, (1 << 32) - rows)
    lossless = number(21, 4)
    webp = {
        b"VP8 ": (number(26, 2) % _WEBP_SIDE) * (number(28, 2) % _WEBP_SIDE),
        b"VP8L": (1 + lossless % _WEBP_SIDE) * (1 + lossless // _WEBP_SIDE % _WEBP_SIDE),
        b"VP8X": (1 + number(24, 3)) * (1 + number(27, 3)),
    }
    result = tf.where(_begin(files, _PNG), png, tf.where(_begin(files, _GIF), gif, bmp))
    for kind, pixels in webp.items():
        result = tf.where(tf.equal(tf.strings.substr(heads, 8, 8), _WEBP[kind]), pixels, result)
    # A negative product has overflowed.
    return tf.where(result < 0, np.int64(np.iinfo(np.int64).max), result)


MAX_PIXELS = 50_000_000
"""Default pixel limit of images: larger than most cameras' images; 150 MB when decoded."""
_FEATURE = "photo"


@dataclass(frozen=True)
class PhotoSides:
    """Inputs of signatures for image files and pixels, by alias, and their preprocessing."""

    files: Mapping[str, Tensor]
    pixels: Mapping[str, Tensor]
    steps: Mapping[str, Steps]
    """Preprocessing of each image input, by the model's alias."""
    renamed: Mapping[str, str]
    """Alias of the input for image files, by the model's alias."""
    fed: Mapping[str, str]
    """Description of the image preprocessing, by the model's alias."""
    most_pixels: int
    """The pixel limit of an image."""

    def accepted(self, feeds: Sequence[Mapping[str, Array]]) -> list[bool]:
        """Return for each feed, by the model's alias, whether its image files are accepted."""
        requests = [
            {alias: feed[alias].tolist() for alias in self.steps if alias in feed} for feed in feeds
        ]
        result: list[bool] = call(f"{__name__}:accepted", requests, self.steps, self.most_pixels)
        return result


def photos_in_front(
    callee: NamedModel, graph: Graph, declared: Preprocessing, most_pixels: int
) -> PhotoSides | None:
    """Add image preprocessing in front of image inputs; None: the model has no such input.

    Args:
        callee: the model, whose graph is modified.
        graph: its inputs by alias, with metadata.
        declared: the declared preprocessing.
        most_pixels: the pixel limit; larger images are rejected before decoding.

    GraphError: the preprocessing is unknown or does not fit the input.
    """
    declared = declared.among(graph)
    aliases = photo_aliases(callee, declared)
    if not aliases:
        return None
    planned = {alias: _planned(alias, graph, declared) for alias in aliases}
    inputs = []
    for number, alias in enumerate(aliases):
        _check(callee, alias)
        scope = _free_scope(callee.graph) + (f"/{number}" if len(aliases) > 1 else "")
        sizes = callee.inputs[alias].shape
        batch = sizes[0] if sizes and sizes[0] > 0 else None
        inputs.append(PhotoInput(alias, scope, planned[alias].steps, batch))
    _join(callee, inputs, most_pixels)
    names = {name: _names(aliases, name, callee) for name in (BYTES, PIXELS)}
    tensors = tensors_of(callee.graph, [f"{i.scope}/{n}" for i in inputs for n in names])
    sides = {
        name: {
            names[name][input_.alias]: _of_batch(tensors[f"{input_.scope}/{name}"], input_.batch)
            for input_ in inputs
        }
        | {alias: own for alias, own in callee.inputs.items() if alias not in aliases}
        for name in names
    }
    fed = {
        alias: f"images -> {', '.join(changes(item.steps)) or 'unchanged'} ({item.why})"
        for alias, item in planned.items()
    }
    steps = {alias: item.steps for alias, item in planned.items()}
    return PhotoSides(sides[BYTES], sides[PIXELS], steps, names[BYTES], fed, most_pixels)


def photo_aliases(callee: NamedModel, declared: Preprocessing) -> list[str]:
    """Return the aliases of a model's image inputs, from their declarations and shapes."""
    return [input_ for input_ in callee.inputs if _takes_photos(input_, callee.inputs, declared)]


def _takes_photos(alias: str, inputs: Mapping[str, Tensor], declared: Preprocessing) -> bool:
    """Return whether an input is an image, by its declaration or else by its dtype and shape."""
    tensor, steps = inputs[alias], declared.inputs.get(alias, Steps())
    if tensor.dtype in ("string", "bool") or steps.split is not None or steps.length is not None:
        return False
    if tensor.shape is None:
        return alias in declared.inputs or len(inputs) == 1
    fits = len(tensor.shape) == 4 and tensor.shape[3] in (-1, 1, 3)
    return fits and (alias in declared.inputs or declared.range is not None or not declared.inputs)


def _planned(alias: str, graph: Graph, declared: Preprocessing) -> Planned:
    """Return the fully specified preprocessing steps of an input."""
    alone = Graph([graph[alias]], [alias], [alias])
    alone.about = graph.about
    steps = {k: replace(v, feature=_FEATURE) for k, v in declared.inputs.items() if k == alias}
    data = Data("--preprocess", "images", (), {_FEATURE: FILE})
    return plan(data, alone, replace(declared, inputs=steps, columns=None))[alias]


def _of_batch(tensor: Tensor, batch: int | None) -> Tensor:
    """Return a tensor with the fixed batch size of a model, if it has one."""
    if batch is None or tensor.shape is None:
        return tensor
    return replace(tensor, shape=(batch, *tensor.shape[1:]))


def _check(callee: NamedModel, alias: str) -> None:
    """Raise GraphError if an input is not a placeholder that can be replaced."""
    node = callee.graph.producer(callee.inputs[alias].name)
    if node.op not in FEEDABLE_OPS or node.data_inputs:
        raise GraphError("input-not-placeholder", name=alias, op=node.op, what="photos")


def _free_scope(graph: Graph) -> str:
    """Return a scope that is not a prefix of any node or function name."""
    used = {node.name.split("/")[0] for node in graph}
    functions = tuple(item.signature.name for item in graph.library.function)
    for number in itertools.count():
        scope = f"{SCOPE}_{number}" if number else SCOPE
        if scope not in used and not any(name.startswith(scope) for name in functions):
            return scope
    raise AssertionError


def _join(callee: NamedModel, inputs: Sequence[PhotoInput], most_pixels: int) -> None:
    """Add the preprocessing to the graph, as the default of the model's placeholders."""
    result = call("deploykit.exporting.photo_inputs:photo_graph", list(inputs), most_pixels)
    made, graph = Graph.from_graph_def(GraphDef.FromString(result)), callee.graph
    for node in made:
        graph.add(node)
    graph.library.MergeFrom(made.library)
    graph.versions.producer = max(graph.versions.producer, made.versions.producer)
    for input_ in inputs:
        tensor = callee.inputs[input_.alias]
        placeholder = graph[split(tensor.name)[0]]
        replacing = Node(placeholder.name, "PlaceholderWithDefault", (f"{input_.scope}/{READY}",))
        replacing = replacing.with_attrs(dtype=DType(tensor.dtype), shape=tensor.shape)
        graph.replace(placeholder, replacing)
        graph.inputs = (*graph.inputs, *(f"{input_.scope}/{name}" for name in (BYTES, PIXELS)))
    graph.sort()


def _names(aliases: Sequence[str], name: str, callee: NamedModel) -> dict[str, str]:
    """Return aliases for image inputs: `bytes`, or `left_bytes` if there are several."""
    results = {alias: name if len(aliases) == 1 else f"{alias}_{name}" for alias in aliases}
    for result in results.values():
        if result in callee.inputs and result not in aliases:
            raise GraphError("input-exists", name=result)
    return results
