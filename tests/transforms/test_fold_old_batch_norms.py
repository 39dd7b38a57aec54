"""fold_old_batch_norms: the batch norm ops alone; the forms made of single ops are left."""

import pytest

from tests.support import assert_golden, error, ops, transform
from tests.transforms.test_fold_batch_norms import BAR, LAYERS, NORMS, layer_with_norm

OPS = [norm for norm in NORMS if norm.startswith(("fused", "global"))]


@pytest.mark.parametrize("layer", [name for name in LAYERS if len(LAYERS[name][1]) == 4])
@pytest.mark.parametrize("norm", OPS)
@pytest.mark.parametrize("between", ["", "bias"])
def test_folds_batch_norm_ops(layer, norm, between):
    before, feeds = layer_with_norm(layer, norm, between)
    after = transform(before, "fold_old_batch_norms")
    assert set(ops(after)) == {before["layer"].op, "BiasAdd", "Const", "Placeholder", "Relu"}
    assert error(before, after, feeds) <= BAR


def test_golden():
    before, _ = layer_with_norm("conv2d", "fused", "")
    assert_golden("fold_old_batch_norms/fused", str(transform(before, "fold_old_batch_norms")))


@pytest.mark.parametrize("norm", sorted(set(NORMS) - set(OPS)))
@pytest.mark.parametrize("between", ["", "bias", "add"])
def test_leaves_single_ops_alone(norm, between):
    before, _ = layer_with_norm("conv2d", norm, between)
    before.prune()
    assert str(transform(before, "fold_old_batch_norms")) == str(before)


def test_a_wrong_fold_is_caught():
    """Forgetting the mean must not pass the check."""
    from transforms.core import affine

    before, feeds = layer_with_norm("conv2d", "fused v3", "")
    right = affine._batch_norm

    def wrong(*arguments):
        return affine.Affine(right(*arguments).scale, right(*arguments).offset * 0)

    affine._batch_norm = wrong
    try:
        after = transform(before, "fold_old_batch_norms")
    finally:
        affine._batch_norm = right
    assert error(before, after, feeds) > 0.1
