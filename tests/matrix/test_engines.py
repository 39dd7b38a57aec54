"""Kinds of layers in OpenVINO: each is right, or refused by the names of its ops.

What it gives is also held against Keras itself, so that a comparison that lets anything pass is
seen.
"""

import importlib

import numpy as np
import pytest

import deploykit
from deploykit.transforms.engines.openvino_model import Compiling
from deploykit.transforms.runtime.child_process import call
from deploykit.verification.engine_check import EngineCheck, compared_in
from tests.matrix.kinds import kinds
from tests.matrix.models import forms, randomise
from tests.matrix.test_matrix import assert_close

pytest.importorskip("openvino")
NAMES = tuple(kinds(importlib.import_module("keras")))
REFUSED = {
    "double": "float64",
    "hashing": "string",
    "string_lookup": "string",
    "string_lookup_learned": "string",
    "string_lookup_inverse": "string",
    "integer_lookup": "HashTableV2",
    "text_vectorization": "string",
    "text_vectorization_learned": "string",
    "category_encoding": "DenseBincount",
}
QUICK = ("dense", "pooling", "half", "lstm", "integer_lookup", "category_encoding")
NO_EMPTY = ("pooling",)


def check(name: str) -> EngineCheck:
    """Compare OpenVINO with TensorFlow on a kind, and what it gives with Keras."""
    keras = importlib.import_module("keras")
    keras.utils.set_random_seed(1)
    kind = kinds(keras)[name]
    model = forms(keras, kind)["functional"]()
    randomise(model)
    expected = np.asarray(model(kind.samples, training=False))
    graph = deploykit.freeze(model)
    feeds = {graph.inputs[0]: kind.samples}
    found = compared_in(graph, data=feeds)
    if found.is_right:
        given = (b"".join(graph.serialized()), list(graph.outputs), feeds)
        (answer,) = call("tests.matrix.test_engines:computed", *given)
        assert_close(answer, expected, max(5 * kind.tolerance, 1e-4))
    return found


def computed(content, outputs, feeds):
    """Return what OpenVINO gives; this is for a child process."""
    from deploykit.transforms.engines.engine_session import OpenVinoSession

    return OpenVinoSession(content, Compiling()).run(outputs, feeds)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in NAMES]
)
def test_each_kind_is_right_or_refused(name):
    found = check(name)
    assert not found.departs
    assert not found.not_compared
    assert REFUSED.get(name, "") in found.refused
    assert found.is_right == (name not in REFUSED)
    assert found.takes_empty == (name not in NO_EMPTY)
