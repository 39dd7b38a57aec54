"""Models of all kinds are shipped, and a served instance gives their answers."""

import numpy as np
import pytest

import deploykit
from tests import pairwise
from tests.matrix.left_out import drawn_at_random
from tests.matrix.test_matrix import kinds, quick, written

SHIPPED = [each for each in quick() if not drawn_at_random(*each[1:])][::4]
EVERY = [(*each, calibrated) for calibrated in (False, True) for each in SHIPPED]
SLOW = pairwise.sample(EVERY, lambda each: enumerate(each[:1] + each[2:]), pairwise.seed())
"""Those with every library, form and file, calibrated or not: each ships and serves a model."""


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("library", "name", "form", "writer", "calibrated"),
    [
        pytest.param(
            *each,
            id="-".join((*each[:4], "calibrated" if each[4] else "float")),
            marks=pairwise.marks(each, SLOW),
        )
        for each in EVERY
    ],
)
def test_each_kind_is_served(library, name, form, writer, calibrated, tmp_path):
    import keras

    path = written(library, name, form, writer, tmp_path)
    model = deploykit.open_model(path)
    samples = np.concatenate([kinds(keras)[name].samples] * 24)
    samples = np.random.default_rng(0).permutation(samples)  # every fourth is held out
    data = {model.graph.inputs[0].partition(":")[0]: samples} if calibrated else None
    found = deploykit.ship(
        path, tmp_path / "out", calibration=data, budget=0.1, allow_low_accuracy=True
    )
    stages = {each["stage"]: each for each in found.document()["stages"]}
    served = stages["serve"]["document"]
    assert served["agrees"] is True, served
    assert found.figures["p50"]["after"]["value"] > 0
    assert (tmp_path / "out" / "report.html").stat().st_size < 2_000_000
