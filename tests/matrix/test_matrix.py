"""Layer kinds x forms of models x kinds of files: frozen and optimized, they answer as in Keras.

What Keras itself cannot build, write or read is left out, and `left_out.py` says so. The quick
tests take each kind once, through all forms and files in turn; the slow ones a sample with every
pair of a library, a kind, a form and a file.
"""

import importlib
import itertools
import random
from pathlib import Path

import numpy as np
import pytest

import deploykit
from tests import pairwise
from tests.matrix.kinds import kinds
from tests.matrix.left_out import FORMS, WRITERS, drawn_at_random, left_out
from tests.matrix.models import forms, randomise, writers
from tests.support import run, tf

LIBRARIES = {"keras_3": "keras", "keras_2": "tf_keras"}
NAMES = tuple(kinds(importlib.import_module("keras")))
BATCHES = (1, 3)
REFUSED = 6  # of what Keras refuses, in the sample


def pairs() -> list[tuple[str, str]]:
    """Return the forms with the files that they can be written to; code is in no file of Keras."""
    found = itertools.product(FORMS, WRITERS)
    return [(f, w) for f, w in found if f != "subclassed" or not w.startswith(".")]


def quick() -> list[tuple[str, str, str, str]]:
    """Return each kind once, through all pairs in turn, and every fourth in Keras 2 too."""
    found = []
    for place, name in enumerate(NAMES):
        chosen = [pair for pair in pairs() if not left_out("keras_3", name, *pair)]
        found.append(("keras_3", name, *chosen[place * 5 % len(chosen)]))
    old = [("functional", ".h5"), ("nested", ".keras"), ("sequential_called", ".keras")]
    for place, name in enumerate(NAMES[::4]):
        pair = old[place % len(old)]
        if not left_out("keras_2", name, *pair):
            found.append(("keras_2", name, *pair))
    return found


def check(library: str, name: str, form: str, writer: str, folder: Path) -> None:
    """Write a model, freeze and optimize it, and compare all with the model itself."""
    keras = importlib.import_module(LIBRARIES[library])
    keras.utils.set_random_seed(1)
    kind = kinds(keras)[name]
    model = forms(keras, kind)[form]()
    randomise(model)
    expected = np.asarray(model(tf.constant(kind.samples), training=False))
    path = writers(keras, kind)[writer](model, folder)
    if drawn_at_random(name, form, writer):
        frozen = deploykit.freeze(path)
        feeds = {frozen.inputs[0]: kind.samples}
        first, second = (run(frozen, feeds)[0] for _ in range(2))
        assert not np.array_equal(first, second), "each call draws, as in the file"
        return
    frozen = deploykit.freeze(path)
    assert len(frozen.inputs) == len(frozen.outputs) == 1
    for graph in (frozen, deploykit.optimize(frozen)):
        shape = graph[graph.inputs[0]].attr("shape")
        taken = BATCHES if not shape or shape[0] < 0 else shape[:1]  # some signatures fix it
        for batch in taken:
            (found,) = run(graph, {graph.inputs[0]: kind.samples[:batch]})
            assert_close(found, expected[:batch], kind.tolerance)


def assert_close(found: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    assert found.shape == expected.shape
    if expected.dtype.kind not in "fV":
        np.testing.assert_array_equal(found, expected)
        return
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize(
    ("library", "name", "form", "writer"), pairwise.drawn(__name__, quick(), 50, quick=12)
)
def test_each_kind(library, name, form, writer, tmp_path):
    check(library, name, form, writer, tmp_path)


def every() -> list[tuple[str, str, str, str]]:
    """Return all combinations, those that Keras refuses too."""
    return [(*first, *pair) for first in itertools.product(LIBRARIES, NAMES) for pair in pairs()]


def slow(seed: int) -> set[tuple[str, str, str, str]]:
    """Return a sample of all, and a few that Keras refuses."""
    possible = [each for each in every() if not left_out(*each)]
    refused = [each for each in every() if left_out(*each)]
    chosen = pairwise.sample(possible, pairwise.pairs, seed, covered=quick())
    return {*chosen, *random.Random(seed).sample(refused, REFUSED)}


SLOW = slow(pairwise.seed())


@pytest.mark.parametrize(
    ("library", "name", "form", "writer"),
    [pytest.param(*each, marks=pairwise.marks(each, SLOW)) for each in every()],
)
def test_all(library, name, form, writer, tmp_path):
    reason = left_out(library, name, form, writer)
    if not reason:
        check(library, name, form, writer, tmp_path)
        return
    with pytest.raises(Exception):  # noqa: B017, PT011  Keras raises whatever it meets
        written(library, name, form, writer, tmp_path)


def written(library: str, name: str, form: str, writer: str, folder: Path) -> Path:
    """Build and write a model, as its own Keras does it."""
    keras = importlib.import_module(LIBRARIES[library])
    kind = kinds(keras)[name]
    model = forms(keras, kind)[form]()
    randomise(model)
    model(tf.constant(kind.samples), training=False)
    return writers(keras, kind)[writer](model, folder)


def test_a_wrong_weight_is_seen():
    with pytest.raises(AssertionError):
        assert_close(np.array([1.0, 2.001]), np.array([1.0, 2.0]), 1e-5)
