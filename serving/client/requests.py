"""Builds requests of the TensorFlow Serving API from arrays and examples."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deploykit.serving.protocol.codec import encode
from deploykit.serving.protocol.protos import Example, Input, ModelSpec, PredictRequest
from deploykit.transforms.common.errors import Error
from deploykit.transforms.ir.tensors import Array

Features = Mapping[str, Any]
"""The features of a tf.Example by name: a number, text or bytes, or a list of one of these."""

_NARROWER = {"float64": np.float32, "int64": np.int32}


def predict_request(
    model: str,
    inputs: Mapping[str, Any],
    version: int | None = None,
    label: str = "",
    signature: str = "",
    outputs: Sequence[str] = (),
) -> Any:
    """Return a PredictRequest. The arguments are those of `Client.predict`."""
    request = PredictRequest(
        model_spec=model_spec(model, version, label, signature), output_filter=outputs
    )
    for alias, value in inputs.items():
        request.inputs[alias].CopyFrom(encode(as_array(value), as_content=True))
    return request


def as_array(value: Any) -> Array:
    """Return an array. Python numbers and lists become float32 or int32 if the values fit."""
    array = np.asarray(value)
    if isinstance(value, np.ndarray | np.generic) or array.dtype.name not in _NARROWER:
        return array
    narrower = _NARROWER[array.dtype.name]
    fits = array.dtype.kind == "f" or (array == array.astype(narrower)).all()
    return array.astype(narrower) if fits else array


def model_spec(model: str, version: int | None, label: str, signature: str = "") -> Any:
    """Return the ModelSpec of a request. Error: both a version and a label are given."""
    if version is not None and label:
        raise Error("version-and-label", version=version, label=label, model=model)
    spec = ModelSpec(name=model, signature_name=signature, version_label=label or None)
    if version is not None:
        spec.version.value = version
    return spec


def examples_input(examples: Sequence[Features], context: Features | None) -> Any:
    """Return tf.Examples and their context. Error: a feature mixes types of values."""
    given = Input()
    kind = given.example_list if context is None else given.example_list_with_context
    kind.examples.extend([_example(example) for example in examples])
    if context is not None:
        given.example_list_with_context.context.CopyFrom(_example(context))
    return given


def _example(features: Features) -> Any:
    example = Example()
    for name, value in features.items():
        feature = example.features.feature[name]
        values = np.asarray(value, object).reshape(-1).tolist()
        if all(isinstance(value, bytes | str) for value in values):
            texts = [value.encode() if isinstance(value, str) else value for value in values]
            feature.bytes_list.value.extend(texts)
        elif all(isinstance(value, int | np.integer) for value in values):
            feature.int64_list.value.extend(values)
        else:
            feature.float_list.value.extend(_numbers(name, values))
    return example


def _numbers(name: str, values: Sequence[Any]) -> list[float]:
    try:
        return [float(value) for value in values]
    except (TypeError, ValueError):
        raise Error("feature-mixed", name=name) from None
