"""Applies the preprocessing steps of an input to tensors of a graph or to values in Python.

Both compute in float32 and in the same order. Python and Grappler replace a division by the
deviation by a product with its reciprocal. `pipeline_code.py` writes the same ops as Python code.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from deploykit.data.preprocessing import Steps
from deploykit.data.preprocessing_plan import is_computed, keeps_files, result_of
from deploykit.records.examples import Feature
from deploykit.storage.image_files import decoded
from deploykit.transforms.ir.tensors import Array, numpy_type
from deploykit.verification.fitting import in_type


def in_graph(steps: Steps, feature: Feature, value: Any, optimized: bool = False) -> Any:
    """Return the tensor for an input, from one record or from a batch of equal shapes.

    Images are decoded one by one; other values may have a batch axis in front. `optimized` builds
    the ops that Grappler would produce, for a graph that may run without Grappler.
    """
    import tensorflow as tf

    if keeps_files(steps, feature):
        return value
    if feature.content == "image":
        value = tf.io.decode_image(value, steps.channels, expand_animations=False)
        value.set_shape((None, None, steps.channels))
    elif feature.content == "raw":
        value = raw_in_graph(feature, value)
    if steps.split is not None:
        value = tf.strings.split(value, steps.split)
    if steps.length is not None:
        value = value[: steps.length]
    if steps.resize is not None:
        value = _resize(steps)(value, steps.resize)
    if steps.crop is not None:
        value = _cropped(steps, value, steps.resize or tf.shape(value)[-3:-1])
    factor, mean, deviation = _numbers(steps)
    if value.dtype != tf.float32 and any(n is not None for n in (factor, mean, deviation)):
        value = tf.cast(value, tf.float32)
    if factor is not None:
        value = value * factor
    if mean is not None:
        value = value - mean
    if deviation is not None:
        value = value * (1 / deviation) if optimized else value / deviation
    if may_lose(value.dtype.name, steps.dtype):
        value = checked_cast(value, steps.dtype, is_computed(steps, feature))
    elif value.dtype != steps.dtype:
        value = tf.cast(value, steps.dtype)
    shape = result_of(steps, feature).shape
    ahead = value.shape.rank - len(shape)  # 1 with a batch axis, else 0
    value.set_shape((*value.shape[:ahead], *shape))
    return value


def may_lose(dtype: str, result: str) -> bool:
    """Return whether a cast between dtypes may wrap, truncate or overflow a value."""
    given, expected = numpy_type(dtype), numpy_type(result)
    if "O" in (given.kind, expected.kind) or np.can_cast(given, expected):
        return False
    is_rounded = given.kind in "biu" and expected.kind in "fc" and expected.itemsize > 2
    return not is_rounded


def checked_cast(values: Any, dtype: str, is_computed: bool) -> Any:
    """Return a tensor in another dtype. InvalidArgumentError, at run time: a value does not fit it.

    Values that were computed lose their fraction in an integer; others have none.
    """
    import tensorflow as tf

    result = tf.cast(values, dtype)
    if result.dtype.is_bool:
        fits = tf.equal(values, 0) | tf.equal(values, 1)
    elif result.dtype.is_floating or result.dtype.is_complex:
        given = values if values.dtype.is_complex else tf.cast(values, tf.float64)
        is_finite = tf.math.is_finite
        is_kept, was_finite = (
            is_finite(tf.math.real(item)) & is_finite(tf.math.imag(item))
            for item in (result, given)
        )
        fits = is_kept | ~was_finite
    elif values.dtype.is_integer:
        least = max(values.dtype.min, result.dtype.min)
        fits = (values >= least) & (values <= min(values.dtype.max, result.dtype.max))
    else:
        whole = tf.sign(values) * tf.floor(tf.abs(values))
        most = float(result.dtype.max) + 1
        fits = (whole >= float(result.dtype.min)) & (whole < most)
        fits = fits if is_computed else fits & tf.equal(whole, values)
    said = [f"a value does not fit {dtype}", values]
    check = tf.debugging.Assert(tf.reduce_all(fits), said)
    with tf.control_dependencies([check]):
        return tf.identity(result)


def raw_in_graph(feature: Feature, value: Any) -> Any:
    """Return the arrays that are stored as raw bytes, as tensors."""
    import tensorflow as tf

    shape = [-1 if size is None else size for size in feature.shape]
    flat = tf.io.decode_raw(value, feature.dtype)
    return tf.reshape(flat, [*([-1] if value.shape.rank else []), *shape])


def in_python(steps: Steps, feature: Feature, value: Any) -> Array:
    """Return the array for an input, from one record.

    TensorFlow's eager kernels decode and resize images, so call this in a child process and not
    while building a graph. It raises the errors of these kernels.
    """
    if keeps_files(steps, feature):
        return np.asarray(value, object)
    if feature.content == "image":
        value = decoded(value, steps.channels or 0)
    elif feature.content == "raw":
        shape = [-1 if size is None else size for size in feature.shape]
        dtype = numpy_type(feature.dtype).newbyteorder("<")
        value = np.frombuffer(value, dtype).reshape(shape)
    if steps.split is not None:
        text = bytes(value)
        value = np.array(text.split(steps.split.encode() or None), object)
    value = np.asarray(value, object if steps.dtype == "string" else None)
    if steps.length is not None:
        value = value[: steps.length]
    if steps.resize is not None:
        value = _resized(steps, value)
    if steps.crop is not None:
        value = _cropped(steps, value, value.shape[-3:-1])
    factor, mean, deviation = _numbers(steps)
    if factor is not None or mean is not None or deviation is not None:
        value = value.astype(np.float32)
    if factor is not None:
        value = value * factor
    if mean is not None:
        value = value - mean
    if deviation is not None:
        value = value * (1 / deviation)
    if is_computed(steps, feature):
        is_whole = numpy_type(steps.dtype).kind in "iu" and value.dtype.kind == "f"
        value = np.trunc(value) if is_whole else value
        if not may_lose(value.dtype.name, steps.dtype):
            return np.asarray(value.astype(numpy_type(steps.dtype)))
    return in_type(steps.feature, value, steps.dtype)


def together(arrays: list[Array]) -> Array:
    """Return the arrays of several records as a batch, padding shorter ones with "" or 0."""
    longest = tuple(map(max, zip(*(array.shape for array in arrays), strict=True)))
    if all(array.shape == longest for array in arrays):
        return np.stack(arrays)
    is_text = arrays[0].dtype == object
    result = np.full((len(arrays), *longest), b"" if is_text else 0, arrays[0].dtype)
    for row, item in zip(result, arrays, strict=True):
        row[tuple(map(slice, item.shape))] = item
    return result


def _numbers(steps: Steps) -> tuple[Array | None, Array | None, Array | None]:
    """Return scale, mean and deviation in float32: scalars, or one value for each channel."""
    factor = None if steps.scale is None else np.asarray(steps.scale, np.float32)
    mean, deviation = (
        np.asarray(item if len(item) > 1 else item[0], np.float32) if item else None
        for item in (steps.mean, steps.std)
    )
    return factor, mean, deviation


def _cropped(steps: Steps, value: Any, sizes: Any) -> Any:
    assert steps.crop is not None
    height, width = steps.crop
    top, left = (sizes[0] - height) // 2, (sizes[1] - width) // 2
    return value[..., top : top + height, left : left + width, :]


def _resized(steps: Steps, value: Array) -> Array:
    import tensorflow as tf

    with tf.init_scope():
        array: Array = _resize(steps)(value, steps.resize).numpy()
    return array


def _resize(steps: Steps) -> Callable[[Any, Any], Any]:
    import tensorflow as tf

    function: Callable[[Any, Any], Any] = tf.image.resize
    return tf.compat.v1.image.resize if steps.corners else function
