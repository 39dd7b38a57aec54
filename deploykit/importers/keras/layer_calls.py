"""Recording and patching of layer calls in a Keras model.

This runs in a process with Keras: a child process, or that of an in-memory model.
"""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.differences import compare

Call = Callable[[Sequence[Any]], list[list[Any]]]
"""A function from the tensors of all inputs to the tensors of each output."""


@dataclass
class LayerCalls:
    """Layer calls in the order in which they return: inner layers before outer ones."""

    outputs: dict[tuple[str, int], list[Any]] = field(default_factory=dict)
    """Output tensors by layer name and number of its earlier calls."""
    in_training: list[str] = field(default_factory=list)
    """Names of layers called with training=True, without those inside such a layer."""


@contextlib.contextmanager
def layer_calls(keras: Any) -> Iterator[LayerCalls]:
    """Record the calls of all layers in the block."""
    import tensorflow as tf

    calls, outer = LayerCalls(), list[str]()
    counts: dict[str, int] = {}
    original = keras.layers.Layer.__call__

    def called(layer: Any, *args: Any, **kwargs: Any) -> Any:
        is_training = kwargs.get("training") is True
        if is_training and not outer and layer.name not in calls.in_training:
            calls.in_training.append(layer.name)
        if is_training:
            outer.append(layer.name)
        try:
            result = original(layer, *args, **kwargs)
        finally:
            if is_training:
                outer.pop()
        count = counts.get(layer.name, 0)
        counts[layer.name] = count + 1
        calls.outputs[layer.name, count] = tf.nest.flatten(result, expand_composites=True)
        return result

    with _patched(keras.layers.Layer, called):
        yield calls


@contextlib.contextmanager
def augmentation_off(keras: Any) -> Iterator[list[str]]:
    """Run layers whose default is training=True in inference mode; yield their names.

    Image augmentation layers have that default, without a choice of the model's author. Keras'
    `predict()` also turns them off.
    """
    names: list[str] = []
    original = keras.layers.Layer.__call__

    def called(layer: Any, *args: Any, **kwargs: Any) -> Any:
        if _trains_by_default(type(layer)):
            kwargs["training"] = False
            if layer.name not in names:
                names.append(layer.name)
        return original(layer, *args, **kwargs)

    with _patched(keras.layers.Layer, called):
        yield names


def _patched(layers: Any, called: Callable[..., Any]) -> Any:
    """Return a context in which `called` replaces the `__call__` of a layer class."""
    from unittest import mock  # it loads asyncio, which only Keras commands need

    return mock.patch.object(layers, "__call__", called)


def _trains_by_default(layer: Any) -> bool:
    """Return whether a layer class has training=True as its default."""
    parameter = inspect.signature(layer.call).parameters.get("training")
    return parameter is not None and parameter.default is True


@contextlib.contextmanager
def variables_restored(model: Any) -> Iterator[None]:
    """Restore variables that calls in the block change: moving averages, seeds, states."""
    before = [(variable, variable.numpy()) for variable in model.non_trainable_variables]
    try:
        yield
    finally:
        for variable, value in before:
            variable.assign(value)


def differing_layer(
    keras: Any, model: Any, call: Call, feed: Sequence[Array], tolerance: float
) -> str:
    """Return the name of the first layer whose outputs differ between traced and eager calls.

    It is an empty string if there is none. `tolerance` is relative to an output's largest value.
    """
    import numpy as np
    import tensorflow as tf

    traced: dict[tuple[str, int], list[Any]] = {}

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def graph(*tensors: Any) -> list[list[Any]]:
        with layer_calls(keras) as calls:
            call(tensors)
        here = tf.compat.v1.get_default_graph()
        for key, outputs in calls.outputs.items():
            if all(tf.is_symbolic_tensor(output) and output.graph is here for output in outputs):
                traced[key] = [tf.identity(output) for output in outputs]
        return list(traced.values())

    tensors = [tf.constant(array) for array in feed]
    specs = [tf.TensorSpec([None] * tensor.shape.rank, tensor.dtype) for tensor in tensors]
    with variables_restored(model):
        values = graph.get_concrete_function(*specs)(*tensors)
        results = dict(zip(traced, values, strict=True))
    with variables_restored(model), layer_calls(keras) as calls:
        call(tensors)
    for key, outputs in calls.outputs.items():
        if key in results and len(results[key]) == len(outputs):
            eager, others = (list(map(np.asarray, item)) for item in (outputs, results[key]))
            if any(not d.max_relative_error <= tolerance for d in compare(eager, others)):
                return key[0]
    return ""
