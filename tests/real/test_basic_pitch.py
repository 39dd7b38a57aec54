"""The main job on basic-pitch, an old Keras SavedModel, judged by chords that it has to hear."""

import numpy as np
import pytest

import deploykit
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.runtime.session import Session
from deploykit.verification.verify import verify
from tests.real.everywhere import run_everywhere
from tests.real.leftovers import FOLDABLE, SHARED, leftovers
from tests.support import ops

pytestmark = pytest.mark.sampled

RATE, SAMPLES, LOWEST = 22050, 43844, 27.5  # of the piano's 88 keys, the lowest is 27.5 Hz
CHORDS = [(39, 43, 46), (36, 39, 43, 48), (27, 34, 41)]
NOTE = 1  # the signature's outputs in order: contour, note, onset


def sound(keys: tuple[int, ...]) -> np.ndarray:
    """Return keys struck together and fading: each a tone with three overtones."""
    time = np.arange(SAMPLES) / RATE
    tones = (LOWEST * 2 ** (key / 12) * k * time for key in keys for k in (1, 2, 3, 4))
    wave = sum(np.sin(2 * np.pi * tone) / (1 + i % 4) for i, tone in enumerate(tones))
    wave *= np.exp(-1.5 * time) * np.minimum(1, time / 0.01)
    return (0.8 * wave / np.abs(wave).max()).astype(np.float32)[:, np.newaxis]


@pytest.fixture(scope="module")
def frozen(basic_pitch) -> Graph:
    return deploykit.freeze(basic_pitch)


@pytest.fixture(scope="module")
def optimized(frozen) -> Graph:
    return deploykit.optimize(frozen)


@pytest.fixture(scope="module")
def feeds(frozen) -> dict[str, np.ndarray]:
    return {frozen.inputs[0]: np.stack([sound(chord) for chord in CHORDS])}


@pytest.fixture(scope="module")
def quantized(frozen) -> Graph:
    return deploykit.transform(deploykit.optimize(frozen), "quantize_weights")


def test_every_batch_norm_folds(frozen, optimized):
    """The first of three normalises a spectrogram that no layer made: it becomes a Mul and an Add.

    The layers behind it cannot take these in: the offset would have to pass a Pad with zeros.
    """
    assert ops(frozen)["FusedBatchNormV3"] == 3
    assert "FusedBatchNormV3" not in ops(optimized)
    assert not {FOLDABLE, SHARED} & set(leftovers(optimized))


def test_the_numbers_are_kept(frozen, optimized, feeds):
    assert verify(frozen, optimized).passed
    found = verify(frozen, optimized, data={k.split(":")[0]: v for k, v in feeds.items()})
    assert found.passed, found


def test_8_bits_are_close(frozen, quantized):
    found = verify(frozen, quantized)
    assert found.bar == "SQNR >= 15 dB"
    assert found.passed, found


@pytest.mark.parametrize("stage", ["frozen", "optimized", "quantized"])
def test_chords_are_heard(request, stage, feeds):
    graph = request.getfixturevalue(stage)
    session = Session(b"".join(graph.serialized()))
    (note,) = session.run([graph.outputs[NOTE]], feeds)
    heard = [tuple(np.flatnonzero((part > 0.5).mean(0) > 0.5)) for part in note]
    assert heard == CHORDS


def test_results_run_everywhere(optimized, quantized, feeds):
    # a logarithm magnifies what oneDNN rounds in silence: the frozen graph differs by 7.5e-4 too
    run_everywhere(optimized, quantized, feeds=feeds, tolerance=2e-3)
