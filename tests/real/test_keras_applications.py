"""The main job on whole Keras networks with random statistics: three of them in the slow tests."""

from dataclasses import dataclass

import pytest

import deploykit
from deploykit.pipelines.transform import OPTIMIZE
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.runtime.child_process import call
from deploykit.verification.verify import verify
from tests import pairwise
from tests.real.everywhere import run_everywhere
from tests.real.leftovers import COMPUTED, FOLDABLE, NO_LAYER, SHARED, leftovers
from tests.support import ops

pytestmark = pytest.mark.sampled

# Batch norms; scales and shifts that fold; those that stay, which are
#   COMPUTED: residual adds (MobileNetV2 10, V3Small 6, ResNet50 16, EfficientNetB0 9), the gate of
#             squeeze-and-excite (9, 16), and x times the sigmoid in swish (hard 19, 49);
#   NO_LAYER: what scales the image (2, 4), a hard sigmoid's division by 6 behind its Relu6 (28),
#             and in DenseNet121, which normalises what it concatenates or pools, a Mul and an AddV2
#             for each of 62 batch norms;
#   SHARED:   the x + 3 of a hard swish (19) and the 1 * x of Keras's swish (49), which use x again.
# What folds in V3Small besides batch norms is the x + 3 of 9 gates.
NETS = {
    "MobileNet": (27, 27, {}),
    "MobileNetV2": (52, 52, {COMPUTED: 10}),
    "MobileNetV3Small": (34, 34 + 9, {COMPUTED: 6 + 9 + 19, NO_LAYER: 2 + 28, SHARED: 19}),
    "ResNet50": (53, 53, {COMPUTED: 16}),
    "InceptionV3": (94, 94, {}),
    "DenseNet121": (121, 121 - 62, {NO_LAYER: 2 * 62}),
    "EfficientNetB0": (49, 49, {COMPUTED: 9 + 16 + 49, NO_LAYER: 4, SHARED: 49}),
}


@dataclass(frozen=True)
class Net:
    """A network at each stage."""

    name: str
    frozen: Graph
    optimized: Graph
    quantized: Graph


@pytest.fixture(scope="module", params=pairwise.drawn(__name__, [*NETS], 2))
def net(request, tmp_path_factory) -> Net:
    path = tmp_path_factory.mktemp(request.param) / "model.keras"
    call("tests.real.keras_nets:save", request.param, str(path))
    frozen = deploykit.freeze(path)
    optimized = deploykit.optimize(frozen)
    quantized = deploykit.transform(optimized, "quantize_weights sort_by_execution_order")
    path.unlink()  # all of them together take half a gigabyte
    return Net(request.param, frozen, optimized, quantized)


def test_every_batch_norm_behind_a_layer_folds(net):
    batch_norms, folded, left = NETS[net.name]
    assert ops(net.frozen)["Rsqrt"] == batch_norms
    unfolded = deploykit.transform(net.frozen, OPTIMIZE.replace("fold_batch_norms", ""))
    # a decomposed batch norm is a Mul and an AddV2, and only the Mul reads the layer
    assert leftovers(unfolded)[FOLDABLE] == folded
    assert leftovers(net.optimized) == left


def test_the_numbers_are_kept(net):
    found = verify(net.frozen, net.optimized)
    assert found.verified
    assert found.passed, found


def test_8_bits_are_close_and_small(net):
    found = verify(net.frozen, net.quantized)
    assert found.verified
    assert found.bar == "SQNR >= 15 dB"
    assert found.passed, found
    sizes = [sum(map(len, graph.serialized())) for graph in (net.frozen, net.quantized)]
    assert sizes[1] <= 0.27 * sizes[0]


def test_results_run_everywhere(net):
    run_everywhere(net.optimized, net.quantized)
