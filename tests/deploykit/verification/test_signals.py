"""Signals of open length: inputs made up for a Fourier transform have frames, and values differ."""

import numpy as np
import pytest

import deploykit
from deploykit.benchmarking.inputs import batches
from deploykit.verification.synthetic.sample_inputs import made_up_shapes
from deploykit.verification.verify import verify
from tests.support import building, tf

pytestmark = pytest.mark.usefixtures("in_process")


def stft(*shape: int | None, factor: complex = 1.0, transposed: bool = False):
    with building(["wave"], ["frames"]) as graph:
        wave = tf.compat.v1.placeholder(tf.float32, shape, name="wave")
        signal = tf.transpose(wave) if transposed else wave
        frames = tf.signal.stft(signal, 512, 128)
        tf.multiply(frames, tf.constant(factor, tf.complex64), name="frames")
    return deploykit.freeze(graph)


@pytest.mark.parametrize(
    ("shape", "transposed", "expected"),
    [
        ((None, None), False, (4, 4096)),
        ((None,), False, (4096,)),
        ((None, 2), True, (4096, 2)),
        ((2, 8000), False, (2, 8000)),
    ],
)
def test_a_signal_has_several_frames(shape, transposed, expected):
    graph = stft(*shape, transposed=transposed)
    assert made_up_shapes(graph, {}) == {"wave": expected}
    batch = (1,) if shape == (None, None) else expected[:1]
    assert batches(graph)[0][0].shape == (*batch, *expected[1:])


@pytest.mark.sampled
@pytest.mark.parametrize(("factor", "passed"), [(1.0, True), (1.0j, False), (1.0 + 0.01j, False)])
def test_complex_outputs_are_compared_as_complex_numbers(factor, passed):
    found = verify(stft(None, None), stft(None, None, factor=factor))
    assert found.verified
    assert found.passed is passed
    if not passed:  # both parts count
        np.testing.assert_allclose(found.max_relative_error, abs(factor - 1), rtol=1e-3)
