"""Every batch norm of the Fashion-MNIST nets folds, and the numbers stay."""

import pytest

import deploykit
from deploykit.pipelines.transform import OPTIMIZE
from deploykit.transforms.runtime.child_process import call
from deploykit.verification.verify import verify
from models.fashion_nets.nets import NETS
from tests.real.keras_nets import randomise
from tests.real.leftovers import COMPUTED, FOLDABLE, NO_LAYER, SHARED, leftovers
from tests.support import ops

# Batch norms; scales and shifts that fold; those that stay, which are residual adds, gates and the
# x of a hard swish (COMPUTED), its x + 3 (SHARED) and its division by 6 (NO_LAYER).
EXPECTED = {
    "resnet": (11, 11, {COMPUTED: 4}),
    "inception": (22, 22, {}),
    "mobilenet_v3": (14, 14 + 2, {COMPUTED: 2 + 2 + 6, SHARED: 6, NO_LAYER: 6 + 2}),
}


def save(name: str, path: str) -> None:
    """Save an untrained net with random batch norms; this is done in a child process."""
    import keras

    keras.utils.set_random_seed(0)
    model = keras.Model(*NETS[name]())
    randomise(model)
    model.save(path)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "name",  # this net has all kinds of leftovers
    [pytest.param(name, marks=() if name == "mobilenet_v3" else pytest.mark.slow) for name in NETS],
)
def test_every_batch_norm_folds_and_the_numbers_are_kept(name, tmp_path):
    path = tmp_path / "net.keras"
    call("tests.models.test_fashion_nets:save", name, str(path))
    frozen = deploykit.freeze(path)
    optimized = deploykit.optimize(frozen)
    batch_norms, folded, left = EXPECTED[name]
    assert ops(frozen)["Rsqrt"] == batch_norms
    unfolded = deploykit.transform(frozen, OPTIMIZE.replace("fold_batch_norms", ""))
    assert leftovers(unfolded)[FOLDABLE] == folded
    assert leftovers(optimized) == left
    found = verify(frozen, optimized, input_range=(0, 1))
    assert found.verified
    assert found.passed, found
