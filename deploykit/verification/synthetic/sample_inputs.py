"""Dtypes and shapes of a graph's inputs, and synthetic values for them.

Shapes come from either graph of a comparison, from the caller, or from the constants that an input
is combined with (`open_sizes`). Values are those that the reading ops accept (`whole_numbers`,
`texts`).
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from deploykit.transforms.common.errors import GraphError, unknown_name
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import split
from deploykit.transforms.ir.ops import (
    FEEDABLE_OPS,
    LAST_VERSION_WITHOUT_SCALARS,
    op_defs,
    output_types,
)
from deploykit.transforms.ir.tensors import Array, numpy_type
from deploykit.transforms.shapes.sizes import Shape
from deploykit.transforms.shapes.static_shapes import Shapes, element_shapes
from deploykit.verification.feeds import AxesFeed, Feed, refuse_missing_axis
from deploykit.verification.synthetic.input_uses import Use, uses
from deploykit.verification.synthetic.integer_inputs import limits, whole_numbers
from deploykit.verification.synthetic.open_sizes import OpenSizes
from deploykit.verification.synthetic.texts import meaning, strings, table_keys

BATCH = 4  # samples: one would not reveal a mix-up of samples, and two may be equal
LARGEST_BATCH = 64  # a larger first size is not a batch size
FRAMES = 8  # Fourier transform frames in a signal of open length
UNKNOWN_SIZE = 96  # for unknown sizes; the smallest that InceptionV3 accepts

Shaped = Mapping[str, Sequence[int]]

_MOST = 1 << 32  # limit of values of one input, far above real models


def type_and_shape(graph: Graph, tensor: str) -> tuple[str, tuple[int, ...] | None, str]:
    """Return the dtype and shape of an input, and why it cannot have synthetic values."""
    node, port = graph.producer(tensor), split(tensor)[1]
    types = output_types(node) if node.op in op_defs() else None
    if types is None or port >= len(types):
        return "", None, f"the dtype of input '{tensor}' is unknown"
    shape = node.attr("shape") if node.op in ("Placeholder", "PlaceholderWithDefault") else None
    if node.op == "Const":
        shape = node.shape
    elif elements := element_shapes(graph, node):
        shape = elements[port]
    return types[port].removesuffix("_ref"), shape, ""


def names_of_inputs(graph: Graph) -> dict[str, tuple[str, ...]]:
    """Return the accepted names of each input: its node, its tensor, and its aliases."""
    signatures = getattr(graph.about, "signatures", {}).values()
    aliases = [
        (tensor, alias) for signature in signatures for alias, tensor in signature.inputs.items()
    ]
    return {
        t: tuple(dict.fromkeys((split(t)[0], t, "{}:{}".format(*split(t)),
                                *(alias for tensor, alias in aliases if tensor == t))))
        for t in graph.inputs
    }  # fmt: skip


def batch_axes(graph: Graph) -> dict[str, int]:
    """Return the axis of the samples by input, for inputs where it is not the first.

    The preprocessing in the graph's metadata states it. GraphError: the input has no such axis.
    """
    document = getattr(graph.about, "preprocessing", None) or {}
    stated = {
        name: axis
        for name, steps in document.get("inputs", {}).items()
        if (axis := steps.get("batch_axis"))
    }
    results: dict[str, int] = {}
    for tensor, names in (names_of_inputs(graph) if stated else {}).items():
        axis = next((stated[name] for name in names if name in stated), 0)
        shape = type_and_shape(graph, tensor)[1]
        if shape is not None:
            refuse_missing_axis(tensor, shape, axis)
        results |= {tensor: axis} if axis else {}
    return results


def made_up_feeds(
    graph: Graph,
    input_range: tuple[float, float],
    shapes: Shaped | None = None,
    other: Graph | None = None,
    rounds: int = 1,
) -> tuple[list[Feed], str]:
    """Return synthetic feeds with at least four samples in total, or [] and the reason.

    Args:
        graph: the graph to feed.
        input_range: range of floats; integers are valid indices of the tables that they index.
        shapes: sizes of inputs by name, for open sizes.
        other: the second graph of a comparison, which may contain further shapes.
        rounds: factor for the number of feeds, each with other values.

    There are several feeds if the fixed batch size is below four. GraphError: `shapes` contains an
    unknown input or contradicts the graph.
    """
    types = {}
    for tensor in graph.inputs:
        types[tensor], _, reason = type_and_shape(graph, tensor)
        if reason or not can_be_made_up(types[tensor]):
            unknown = f"input '{tensor}' has dtype {types[tensor]}, which cannot be generated"
            return [], reason or unknown
    sizes = made_up_shapes(graph, shapes or {}, other)
    for tensor, shape in sizes.items():
        if math.prod(shape) > _MOST:
            return [], _too_large(tensor, shape)
    values = MadeUp(graph, sizes, input_range)
    axes = batch_axes(graph)
    at_once = next((shape[axes.get(name, 0)] for name, shape in sizes.items() if shape), 1)
    count = -(-BATCH // max(at_once, 1)) if sizes else 1
    feeds: list[Feed] = [
        {tensor: values.of(tensor, types[tensor], sizes[tensor]) for tensor in graph.inputs}
        for _ in range(count * rounds)
    ]
    return [AxesFeed(feed, axes) for feed in feeds] if axes else feeds, ""


def made_up_shapes(
    graph: Graph, shapes: Shaped, other: Graph | None = None
) -> dict[str, tuple[int, ...]]:
    """Return a shape for each input of a graph; the arguments are those of `made_up_feeds`.

    GraphError: an input has no axis for its samples in the requested or chosen shape.
    """
    expected = requested_sizes(graph, shapes)
    pairs = paired_inputs(graph, other) if other is not None else None
    known = {t: expected.get(t, _declared(graph, t)) for t in graph.inputs}
    if other is not None and pairs:
        theirs = OpenSizes(other, {t: _declared(other, t) for t in pairs.values()}).found()
        for tensor, its in pairs.items():
            known[tensor] = _either(known[tensor], theirs[its])
    axes = batch_axes(graph)
    _refuse_missing_axes(axes, known)
    batches = [s[axes.get(t, 0)] for t, s in known.items() if s]
    first = next((size for size in batches if 0 < size <= LARGEST_BATCH), BATCH)
    known |= {t: _with_batch(known[t], axis, first) for t, axis in axes.items()}
    chosen = _chosen_shapes(graph, known, first)
    _refuse_missing_axes(axes, chosen)
    return chosen


def _chosen_shapes(
    graph: Graph, known: dict[str, Shape | None], batch: int
) -> dict[str, tuple[int, ...]]:
    """Return shapes whose open sizes fit the graph, and whole frames of a Fourier transform."""
    lengths = [graph.constant(n.data_inputs[1]) for n in graph if n.op in ("IRFFT", "RFFT")]
    frame = max((int(item.value.max()) for item in lengths if item is not None), default=0)
    if not frame or any(size >= frame for shape in known.values() for size in shape or ()):
        return OpenSizes(graph, known).shapes(batch, UNKNOWN_SIZE)
    is_whole_signal = all(not shape or -1 not in shape[1:] for shape in known.values())
    length = FRAMES * frame
    return OpenSizes(graph, known).shapes(length if is_whole_signal else batch, length)


def _refuse_missing_axes(axes: Mapping[str, int], shapes: Mapping[str, Shape | None]) -> None:
    """Raise GraphError if the samples of an input lie on an axis that its shape lacks."""
    for tensor, axis in axes.items():
        if (shape := shapes[tensor]) is not None:
            refuse_missing_axis(tensor, shape, axis)


def size_advice(graph: Graph, shapes: Shaped | None = None) -> str:
    """Return how to give the sizes that a graph and `shapes` leave open, or "" if none are open."""
    try:
        given, chosen = requested_sizes(graph, shapes or {}), made_up_shapes(graph, shapes or {})
    except GraphError:  # the sizes contradict the graph, which is another error
        return ""
    tried = []
    axes = batch_axes(graph)
    for tensor in graph.inputs:
        declared = type_and_shape(graph, tensor)[1]
        open_axes = [n for n, size in enumerate(declared or ()) if size < 0]
        if tensor not in given and (declared is None or {*open_axes} - {axes.get(tensor, 0)}):
            tried.append((tensor.removesuffix(":0"), chosen[tensor], declared))
    if not tried:
        return ""
    shown = " and ".join(f"'{name}' [{listed(sizes, '?')}]" for name, sizes, _ in tried)
    options = " ".join(
        f"--shape {name}={listed(declared or [-1] * max(1, len(sizes)), '?')}"
        for name, sizes, declared in tried
    )
    return f"The model leaves sizes open, and random inputs had {shown}: {_FITTING} ({options})."


_FITTING = "give sizes that fit instead of each ?"


def without_shape_option(advice: str) -> str:
    """Return `size_advice` within a text for a command that takes samples but has no --shape."""
    return re.sub(rf": {re.escape(_FITTING)} \([^)]*\)", ", which do not fit", advice)


def requested_sizes(graph: Graph, shapes: Shaped) -> dict[str, tuple[int, ...]]:
    """Return sizes by input. GraphError: an input is unknown, or sizes contradict the graph."""
    inputs = {tensor.removesuffix(":0"): tensor for tensor in graph.inputs}
    results = {}
    for name, given in shapes.items():
        tensor = inputs.get(name.removesuffix(":0"))
        if tensor is None:
            raise unknown_name("input", name, inputs)
        declared = type_and_shape(graph, tensor)[1]
        if declared is not None and not (
            len(given) == len(declared)
            and all(d < 0 or d == g for d, g in zip(declared, given, strict=True))
        ):
            raise GraphError(
                "input-size-fixed", name=name, shape=listed(declared, "?"), got=listed(given, "?")
            )
        results[tensor] = tuple(given)
    return results


def listed(sizes: Sequence[int], unknown: str) -> str:
    """Return sizes as a comma-separated text."""
    return ",".join(unknown if size < 0 else str(size) for size in sizes)


def can_be_made_up(type_: str) -> bool:
    """Return whether values of a dtype can be created outside of the graph."""
    return type_ not in ("resource", "variant") and not type_.startswith("type")


class MadeUp:
    """Random values that the readers of a graph's inputs accept."""

    def __init__(
        self,
        graph: Graph,
        sizes: Mapping[str, Sequence[int]],
        input_range: tuple[float, float] = (-1.0, 1.0),
        seed: int = 0,
    ) -> None:
        """Store the graph and the shapes of its inputs."""
        self._graph, self._sizes, self._range = graph, sizes, input_range
        self._random = np.random.default_rng(seed)
        self._inside = 0

    def of(self, tensor: str, type_: str, sizes: Sequence[int]) -> Array:
        """Return values for an input: floats in the range, valid indices, or strings."""
        if math.prod(sizes) > _MOST:
            raise GraphError("input-too-large", reason=_too_large(tensor, sizes))
        default = _default(self._graph, tensor)
        return default if default is not None else self._of(self._graph, tensor, type_, sizes)

    def _of(self, graph: Graph, tensor: str, type_: str, sizes: Sequence[int]) -> Array:
        dtype, shape, random = numpy_type(type_), tuple(sizes), self._random
        if dtype.kind == "b":
            return random.integers(0, 2, shape).astype(dtype)
        if dtype.kind == "c":
            parts = random.uniform(*self._range, (2, *shape))
            return np.asarray((parts[0] + 1j * parts[1]).astype(dtype))
        reading = [] if self._inside > 1 else list(uses(graph, tensor))
        if dtype.kind == "O":
            self._inside += 1  # an Example within an Example contains no further one
            result = strings(shape, meaning(reading, self._of), random)
            self._inside -= 1
            return result
        bound = limits(reading, lambda tensor: self._shapes.shape(tensor))
        if dtype.kind in "iu":
            keys = _keys(reading)
            if keys is not None:
                return random.choice(keys.ravel(), shape).astype(dtype)
            most = int(np.iinfo(dtype).max)
            bound = replace(bound, low=min(bound.low, most), high=min(bound.high, most))
            return whole_numbers(shape, bound, random).astype(dtype)
        if bound.is_bound and any(use.node.op == "Cast" for use in reading):
            return whole_numbers(shape, bound, random).astype(dtype)
        return random.uniform(*self._range, shape).astype(dtype)

    @cached_property
    def _shapes(self) -> Shapes:
        """Shapes of all tensors for the chosen input shapes."""
        sized = self._graph.copy()
        for tensor, sizes in self._sizes.items():
            node = sized.producer(tensor)
            if node.op in FEEDABLE_OPS:
                sized.replace(node, node.with_attrs(shape=tuple(sizes)))
        return Shapes(sized)


def demanded_batch(graph: Graph) -> int | None:
    """Return the fixed batch size of the inputs, or None if it is open."""
    axes = batch_axes(graph)
    shapes = {tensor: type_and_shape(graph, tensor)[1] for tensor in graph.inputs}
    sizes = (shape[axes.get(tensor, 0)] for tensor, shape in shapes.items() if shape)
    return next((size for size in sizes if size > 0), None)


def takes_scalars(graph: Graph) -> bool:
    """Return whether all inputs are scalars, so that a run takes one sample and no batch axis."""
    shapes = [type_and_shape(graph, tensor)[1] for tensor in graph.inputs]
    return bool(shapes) and all(shape == () for shape in shapes)


def per_sample(graph: Graph) -> dict[str, tuple[str, tuple[int, ...] | None]]:
    """Return the dtype of each input, and its shape with the axis of the samples in front.

    If all inputs are scalars, each sample runs separately. GraphError: an input has no such axis.
    """
    results = {tensor: type_and_shape(graph, tensor)[:2] for tensor in graph.inputs}
    for tensor, axis in batch_axes(graph).items():
        type_, shape = results[tensor]
        results[tensor] = (
            type_,
            None if shape is None else (shape[axis], *shape[:axis], *shape[axis + 1 :]),
        )
    if takes_scalars(graph):
        return {tensor: (type_, (-1,)) for tensor, (type_, _) in results.items()}
    return results


def paired_inputs(reference: Graph, result: Graph) -> dict[str, str] | None:
    """Return the inputs of the result by those of the reference, or None if they do not match.

    The result may have fewer inputs, because pinned placeholders are not fed.
    """
    names, others = reference.inputs, result.inputs
    if set(others) <= set(names):
        return {name: name for name in others}
    return dict(zip(names, others, strict=True)) if len(names) == len(others) else None


def _too_large(tensor: str, sizes: Sequence[int]) -> str:
    return f"input '{tensor}' of shape {list(sizes)} is too large to be generated"


def _declared(graph: Graph, tensor: str) -> Shape | None:
    """Return the shape of an input or of its default value; None if it is unknown."""
    shape = type_and_shape(graph, tensor)[1]
    node = graph.producer(tensor)
    if node.op == "PlaceholderWithDefault" and shape is None:
        default = graph.constant(node.data_inputs[0])
        return None if default is None else default.shape
    is_old = 0 < graph.versions.producer <= LAST_VERSION_WITHOUT_SCALARS
    return None if shape == () and is_old and node.op == "Placeholder" else shape


def _default(graph: Graph, tensor: str) -> Array | None:
    """Return the scalar default value of an input, such as a rate or a switch, or None."""
    node = graph.producer(tensor)
    if node.op != "PlaceholderWithDefault":
        return None
    default = graph.constant(node.data_inputs[0])
    return None if default is None or default.shape else default.value


def _with_batch(shape: Shape | None, axis: int, batch: int) -> Shape | None:
    """Return a shape with the batch size on its axis, and a length on the first axis."""
    if shape is None:
        return None
    sizes = [UNKNOWN_SIZE if n == 0 and size < 0 else size for n, size in enumerate(shape)]
    sizes[axis] = batch if sizes[axis] < 0 else sizes[axis]
    return tuple(sizes)


def _either(shape: Shape | None, other: Shape | None) -> Shape | None:
    """Merge two partially known shapes; the first takes precedence."""
    if shape is None or other is None or len(shape) != len(other):
        return shape if shape is not None else other
    return tuple(b if a < 0 else a for a, b in zip(shape, other, strict=True))


def _keys(reading: Sequence[Use]) -> Array | None:
    """Return the integer keys of the table in which a tensor is looked up, or None."""
    for use in reading:
        if use.node.op in ("LookupTableFind", "LookupTableFindV2") and use.port == 1:
            keys = table_keys(use)
            if keys is not None and keys.value.dtype.kind in "iu" and keys.value.size:
                return keys.value
    return None
