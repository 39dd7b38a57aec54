"""Replicas of a graph in one session, one per device, and their inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deploykit.benchmarking.devices import CPU
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.session import full_name
from deploykit.transforms.runtime.tensorflow_start import start_tensorflow

_SCOPE = "deploykit_input"  # avoids clashes with the graph's names
Batches = Sequence[tuple[Array, ...]]


@dataclass(frozen=True)
class GraphReplica:
    """A replica of the graph on one device, with its input and output tensors."""

    device: str
    inputs: list[Any]
    outputs: list[Any]


@dataclass(frozen=True)
class Supply:
    """Input pipelines: the input tensors of each device, and their initializers and feeds."""

    elements: list[tuple[Any, ...]]
    initializers: list[Any]
    feeds: Mapping[Any, Array]


def import_replicas(
    graph_def: Any,
    inputs: Sequence[str],
    outputs: Sequence[str],
    devices: Sequence[str],
    supply: Supply | None = None,
) -> list[GraphReplica]:
    """Import a GraphDef into the current graph once per device, including its constants.

    A node with an explicit device keeps it. With a supply, its elements are the inputs. A single
    replica keeps the node names; several are in scopes `tower_N`. ValueError, OpError: TensorFlow
    does not accept the graph.
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
        results.append(GraphReplica(device, tensors[: len(inputs)], tensors[len(inputs) :]))
    return results


def dataset_of(
    graph_def: Any, inputs: Sequence[str], batches: Batches, devices: Sequence[str]
) -> Supply:
    """Return a tf.data pipeline that repeats the batches and distributes them over the devices.

    The arrays are fed once, to the initializers; as constants they would be part of the graph.
    Elements have the shapes that the graph's placeholders declare, so TensorFlow knows no more than
    with feeds.
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
        holds_text = any(stack.dtype == tf.string for stack in stacks)  # GPUs have no strings
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
    """Return variables that contain one batch per device; they are fed once.

    They have the shapes that the graph's placeholders declare. Strings stay on the CPU.
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
    """Return the arrays of each call, where each of `count` replicas gets the next batch."""
    return [
        sum((tuple(batches[(call * count + n) % len(batches)]) for n in range(count)), ())
        for call in range(len(batches))
    ]


def _declared(
    graph_def: Any, inputs: Sequence[str], batch: tuple[Array, ...]
) -> list[tuple[Any, Sequence[int | None]]]:
    """Return the declared type and shape of each input, or else those of its array."""
    known = _placeholders(graph_def, inputs)
    results = []
    for tensor, array in zip(inputs, batch, strict=True):
        type_, shape = known.get(tensor, (array.dtype, None))
        if shape is None or len(shape) != array.ndim:
            shape = array.shape
        results.append((type_, shape))
    return results


def _placeholders(graph_def: Any, inputs: Sequence[str]) -> dict[str, tuple[Any, Any]]:
    """Return type and shape of the inputs that are placeholders; shape None: unknown rank."""
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
