"""What models answer in 8 bits, beside what the same runtime answers in float."""

from collections.abc import Iterator, Sequence

import numpy as np

from tests.benchmarks.figures import Figure
from tests.benchmarks.peers.contestants import Contestant
from tests.benchmarks.peers.nets import DECIBELS, IN_OPENVINO


def answers(contestants: Sequence[Contestant]) -> Iterator[Figure]:
    """Yield how each one's outputs for the same samples differ from those of its own float.

    The class with the highest output is an answer where the net is trained; of others, the least
    cosine of a sample says what its direction keeps.
    """
    for each in contestants:
        if each.is_int8:
            own = next(e for e in contestants if (e.runtime, e.form) == (each.runtime, "float"))
            exact, outputs = own.outputs(), each.outputs()
            what = f"{each.net.name}: {each.name}"
            keeps, asked = sqnr_db(outputs, exact), each.form == IN_OPENVINO and each.net.trained
            yield Figure(f"{what}, SQNR of {len(exact)} samples", "dB", [keeps],
                         at_least=DECIBELS if asked else None)  # fmt: skip
            if each.net.trained:
                yield from _of_trained(each, outputs.argmax(1), exact.argmax(1))
            else:
                yield Figure("... least cosine of a sample", "", [least_cosine(outputs, exact)])


def _of_trained(each: Contestant, found: np.ndarray, exact: np.ndarray) -> Iterator[Figure]:
    with np.load(each.net.samples) as samples:
        labels = samples["labels"]
    same = float(np.sum(found == exact))
    right = [float(np.sum(each == labels)) for each in (found, exact)]
    yield Figure(f"... answers as in float, of {len(labels)}", "", [same])
    yield Figure("... right answers, and those in float", "", right[:1], right[1:])


def sqnr_db(outputs: np.ndarray, exact: np.ndarray) -> float:
    """Return the signal over the noise of outputs, in dB."""
    signal, noise = (np.sum(np.square(each, dtype=float)) for each in (exact, outputs - exact))
    return float(10 * np.log10(signal / noise))


def least_cosine(outputs: np.ndarray, exact: np.ndarray) -> float:
    """Return the least cosine of the angle between what a sample gives and what it should."""
    rows, exact_rows = (each.reshape(len(each), -1).astype(float) for each in (outputs, exact))
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(exact_rows, axis=1)
    return float(np.min(np.sum(rows * exact_rows, axis=1) / lengths))
