"""Options of functions that have no effect beside the others are refused."""

import numpy as np
import pytest

import deploykit
from deploykit.transforms.common.errors import GraphError
from tests.deploykit.benchmarking.nets import dense
from tests.support import raises

ACTS = {
    "optimize": deploykit.optimize,
    "transform": lambda model, **how: deploykit.transform(model, "remove_device", **how),
}


@pytest.mark.parametrize(
    "options",
    [
        {"tolerance": 1e-3},
        {"shapes": {"x": (2, 3)}},
        {"input_range": (0.0, 1.0)},
        {"allow_unverified": True},
        {"preprocess": "0..1"},
        {"labels": np.array(["a", "b"])},
    ],
)
@pytest.mark.parametrize("act", ACTS)
def test_options_of_a_comparison_that_is_not_made(act, options):
    (name,) = options
    with raises(GraphError, "no-effect", where="with verify=True", option=name):
        ACTS[act](dense(), **options)


def test_what_is_allowed_or_default_needs_no_comparison():
    for act in ACTS.values():
        assert act(dense(), allow_ops=("WriteFile",), input_range=(-1.0, 1.0)).report
    assert deploykit.optimize(dense(), verify=True, tolerance=1e-3).report.verification.passed


def test_data_for_a_transform_that_is_not_verified():
    with raises(GraphError, "no-effect", option="data"):
        deploykit.transform(dense(), "remove_device", data={"x": np.ones((3, 8), np.float32)})


def test_the_part_of_a_model_that_is_not_given(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.ones((4, 2), np.float32))
    with raises(GraphError, "no-effect", option="outputs", where="with model"):
        deploykit.write_input(tmp_path / "x.npz", outputs=["y"])
