"""Replicas of a graph in one session, one per device, and the split of their inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deploykit.benchmarking.devices import CPU
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.session import full_name
from deploykit.transforms.runtime.tensorflow_start import start_tensorflow

_SCOPE = "deploykit_input"  # keeps the names of the graph free
Batches = Sequence[tuple[Array, ...]]


@dataclass(frozen=True)
class Tower:
    """A copy of the graph on one device, with TensorFlow's tensors of its inputs and outputs."""

    device: str
    inputs: list[Any]
    outputs: list[Any]


@dataclass(frozen=True)
class Supply:
    """Inputs that no call feeds: an element for each device, and what starts it with what."""

    elements: list[tuple[Any, ...]]
    initializers: list[Any]
    feeds: Mapping[Any, Array]


def towers(
    graph_def: Any,
    inputs: Sequence[str],
    outputs: Sequence[str],
    devices: Sequence[str],
    supply: Supply | None = None,
) -> list[Tower]:
    """Import a GraphDef once for each device, into the current graph; its constants come along.

    A node with a device of its own keeps it. With a supply, the inputs are its elements. A graph
    that is alone keeps its names, else each is in a scope `tower_N`. ValueError, OpError:
    TensorFlow does not accept the graph.
    """
    parts = start_tensorflow()
    names = [full_name(name) for name in (*inputs, *outputs)]
    results = []
    for number, device in enumerate(devices):
        fed = {} if supply is None else dict(zip(names, supply.elements[number], strict=False))
        with parts.ops.device_v2(device):
            tensors = parts.importer.import_graph_def(
                graph_def,
                input_map=fed,
                return_elements=names,
                name=f"tower_{number}" if len(devices) > 1 else "",
            )
        results.append(Tower(device, tensors[: len(inputs)], tensors[len(inputs) :]))
    return results


def dataset_of(
    graph_def: Any, inputs: Sequence[str], batches: Batches, devices: Sequence[str]
) -> Supply:
    """Return a dataset that gives the batches again and again, each to the next of the devices.

    The arrays are fed once, to its initializers: as constants they would be part of the graph. An
    element has the shape that the graph's placeholder declares, so that TensorFlow knows no more of
    it than if it were fed.
    """
    import tensorflow as tf

    elements, initializers = [], []
    with tf.name_scope(_SCOPE), tf.device(CPU):
        feeds, stacks = {}, []
        several = [np.stack(arrays) for arrays in zip(*batches, strict=True)]
        declared = _declared(graph_def, inputs, batches[0])
        for stack, (type_, shape) in zip(several, declared, strict=True):
            stacks.append(tf.compat.v1.placeholder(type_, (None, *shape)))
            feeds[stacks[-1]] = stack
        dataset = tf.data.Dataset.from_tensor_slices(tuple(stacks)).repeat()
        holds_text = any(stack.dtype == tf.string for stack in stacks)  # which no GPU does
        for number, device in enumerate(devices):
            target = CPU if holds_text else device
            share = dataset.shard(len(devices), number)
            if target == CPU:
                share = share.prefetch(tf.data.AUTOTUNE)
            else:
                share = share.apply(tf.data.experimental.prefetch_to_device(target))
            with tf.device(target):
                iterator = tf.compat.v1.data.make_initializable_iterator(share)
                elements.append(iterator.get_next())
            initializers.append(iterator.initializer)
    return Supply(elements, initializers, feeds)


def resident(
    graph_def: Any, inputs: Sequence[str], batches: Batches, devices: Sequence[str]
) -> Supply:
    """Return variables that hold a batch on each of the devices, which are fed once.

    They too have the shapes that the graph's placeholders declare. Text stays on the CPU.
    """
    import tensorflow as tf

    elements: list[tuple[Any, ...]] = []
    initializers, feeds = [], {}
    with tf.name_scope(_SCOPE):
        for number, device in enumerate(devices):
            batch, held = batches[number % len(batches)], []
            declared = _declared(graph_def, inputs, batch)
            for array, (type_, shape) in zip(batch, declared, strict=True):
                with tf.device(CPU):
                    given = tf.compat.v1.placeholder(type_, array.shape)
                with tf.device(CPU if type_ == tf.string else device):
                    variable = tf.Variable(given, trainable=False, shape=tf.TensorShape(shape))
                    held.append(variable.read_value())
                feeds[given] = array
                initializers.append(variable.initializer)
            elements.append(tuple(held))
    return Supply(elements, initializers, feeds)


def fed_together(batches: Batches, count: int) -> list[tuple[Array, ...]]:
    """Return what is fed, call by call, where each of `count` towers takes the next batch."""
    return [
        sum((tuple(batches[(call * count + n) % len(batches)]) for n in range(count)), ())
        for call in range(len(batches))
    ]


def _declared(
    graph_def: Any, inputs: Sequence[str], batch: tuple[Array, ...]
) -> list[tuple[Any, Sequence[int | None]]]:
    """Return type and shape that a graph declares for each input, or else those of what it gets."""
    known = _placeholders(graph_def, inputs)
    results = []
    for tensor, array in zip(inputs, batch, strict=True):
        type_, shape = known.get(tensor, (array.dtype, None))
        if shape is None or len(shape) != array.ndim:
            shape = array.shape
        results.append((type_, shape))
    return results


def _placeholders(graph_def: Any, inputs: Sequence[str]) -> dict[str, tuple[Any, Any]]:
    """Return type and shape, None if of unknown rank, of those inputs that are placeholders."""
    import tensorflow as tf

    expected = {full_name(tensor): tensor for tensor in inputs}
    results = {}
    for node in graph_def.node:
        tensor = expected.get(f"{node.name}:0")
        if tensor is not None and node.op in ("Placeholder", "PlaceholderWithDefault"):
            shape = tf.TensorShape(node.attr["shape"].shape)
            type_ = tf.as_dtype(node.attr["dtype"].type)
            results[tensor] = (type_, None if shape.rank is None else tuple(shape.as_list()))
    return results
