"""Classify and Regress: run a signature on tf.Examples and convert its outputs for the API."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from deploykit.serving.execution.request_inputs import as_set
from deploykit.serving.protocol.codec import MAX_FILLED_BYTES
from deploykit.serving.protocol.errors import ServingError, refused
from deploykit.serving.protocol.signatures import CLASSES, EXAMPLES, RESULTS, SCORES, Signature
from deploykit.transforms.ir.tensors import Array

Class = tuple[str, float]
"""A label and its score."""
Run = Callable[[Mapping[str, Array], Sequence[str]], Mapping[str, Array]]
"""Runs a signature: arrays by alias, and the aliases of the outputs."""


def classes_of(signature: Signature, examples: Sequence[bytes], run: Run) -> list[list[Class]]:
    """Return the (label, score) pairs of each serialized tf.Example.

    ServingError: the signature is not a classification, or its outputs have other shapes.
    """
    expected = [alias for alias in (CLASSES, SCORES) if alias in signature.outputs]
    if EXAMPLES not in signature.inputs or not expected:
        raise _unlike(signature, "classification", f"{CLASSES} or {SCORES}")
    result = run({EXAMPLES: _texts(examples)}, expected)
    for alias, array in result.items():
        if array.ndim != 2 or len(array) != len(examples):
            raise refused(
                "examples-output-shape", examples=len(examples), shape=array.shape, alias=alias
            )
    count = next(iter(result.values())).shape[1]
    labels = result.get(CLASSES, np.full((len(examples), count), b"", object))
    scores = result.get(SCORES, np.zeros((len(examples), count), np.float32))
    return [
        [
            (label.decode(errors="replace") if isinstance(label, bytes) else str(label), score)
            for label, score in zip(*item, strict=True)
        ]
        for item in zip(labels.tolist(), scores.tolist(), strict=True)
    ]


def values_of(signature: Signature, examples: Sequence[bytes], run: Run) -> list[float]:
    """Return one number per serialized tf.Example. ServingError: as in `classes_of`."""
    if EXAMPLES not in signature.inputs or RESULTS not in signature.outputs:
        raise _unlike(signature, "regression", RESULTS)
    result = run({EXAMPLES: _texts(examples)}, [RESULTS])[RESULTS]
    if result.size != len(examples) or result.ndim not in (1, 2):
        raise refused("classify-output-shape", examples=len(examples), shape=result.shape)
    return [float(value) for value in result.ravel().tolist()]


def with_context(context: bytes, examples: Sequence[bytes]) -> list[bytes]:
    """Return serialized tf.Examples, each prefixed by the context, which parsing merges.

    ServingError: the result is far larger than the request.
    """
    if len(context) * len(examples) > MAX_FILLED_BYTES:
        raise refused("context-too-large", size=len(context), examples=len(examples))
    return [context + example for example in examples]


def check_some(examples: Sequence[bytes]) -> None:
    """Raise ServingError if there are no examples."""
    if not examples:
        raise refused("examples-empty")


def _unlike(signature: Signature, kind: str, outputs: str) -> ServingError:
    return refused(
        "signature-not-for-method",
        method=kind,
        inputs=as_set(signature.inputs),
        gives=as_set(signature.outputs),
        examples=EXAMPLES,
        outputs=outputs,
    )


def _texts(examples: Sequence[bytes]) -> Array:
    result = np.empty(len(examples), object)
    result[:] = examples
    return result
