"""Rounded layers: nearer to the float graph on other samples, resumable, right in both forms."""

from dataclasses import replace

import numpy as np
import pytest

from deploykit.pipelines.int8 import codes_graph, int8_graph
from deploykit.quantization import rounding_session
from deploykit.quantization.calibrated_graph import prepare
from deploykit.quantization.rounding import _with_biases, round_layers
from deploykit.storage.resume_file import State
from deploykit.transforms.int8.plan import plan
from deploykit.transforms.int8.ranges import load_ranges
from deploykit.transforms.int8.weights import saturates
from deploykit.transforms.runtime.differences import compare
from tests.deploykit.quantization.test_calibrated_graph import FORMS, residual_net
from tests.int8_cpus import needs_exact_sums
from tests.support import building, random, run, shows, tf
from tests.transforms.int8_nets import C, image, layer, relu


def smooth(batch: int, seed: int) -> dict[str, np.ndarray]:
    """Return images as cameras take them: neighbours and channels are alike."""
    coarse = np.random.default_rng(seed).uniform(0, 1, (batch, 3, 3, 2)).astype(np.float32)
    wide = coarse.repeat(3, 1).repeat(3, 2)[:, :9, :8]
    mixed = wide @ np.random.default_rng(1).uniform(0, 1, (2, C)).astype(np.float32)
    return {"x": mixed + random(batch, 9, 8, C, seed=seed, low=0) * np.float32(0.05)}


def mixed_net():
    """Return a net of all kinds of layers, some without a bias."""

    with building(["x"], ["out"]) as graph:
        y = relu(layer("conv", image(), "stem", bias=False))
        y = relu(layer("depthwise", y, "depthwise", channels=C))
        y = relu(layer("conv", y, "strided", channels=12, strides=[1, 2, 2, 1]))
        y = tf.reshape(y, [-1, 5 * 4 * 12])
        y = relu(layer("matmul", y, "dense", channels=16))
        layer("matmul", y, "out", channels=5, bias=False)
    graph.prune()
    return graph


NETS = {"mixed": mixed_net, "residual": lambda: residual_net(FORMS[::5])}


@pytest.fixture(scope="module", params=NETS)
def net(request, tmp_path_factory):
    """Return a prepared float graph, the path of its ranges, and the feeds that calibrated it."""
    path = str(tmp_path_factory.mktemp("net") / "ranges.json")
    feeds = [smooth(8, seed) for seed in range(4)]
    graph, _ = prepare(NETS[request.param](), feeds, path)
    return graph, path, feeds


def noise(graph, found) -> float:
    """Return the noise power of outputs on samples that rounded nothing."""
    fed = smooth(64, 99)
    (difference,) = compare(run(graph, fed), run(found, fed))
    return float(10 ** (-difference.sqnr_db / 10))


@needs_exact_sums
@pytest.mark.parametrize("isa", ["vnni", "avx2"])
def test_rounded_layers_bring_less_noise(net, in_process, isa):
    graph, path, feeds = net
    found, notes = round_layers(graph, feeds, path, isa=isa)
    assert not notes
    chains = plan(graph, load_ranges(path)).chains
    assert found.keys() == {each.biased for each in chains.values()}
    plain = noise(graph, codes_graph(graph, path, isa))
    # In the deep net, most noise is that of activations.
    most = plain if len(found) > 5 else 0.8 * plain
    assert noise(graph, codes_graph(graph, path, isa, (), found)) < most
    assert noise(graph, int8_graph(graph, path, isa, (), found)) < most
    if isa == "avx2":
        for chain in chains.values():
            assert not saturates(chain.nodes[0], found[chain.biased].codes)
    # Broken biases show.
    wrong = {name: replace(each, bias=each.bias + 0.1) for name, each in found.items()}
    assert noise(graph, codes_graph(graph, path, isa, (), wrong)) > 2 * plain


@pytest.mark.sampled
def test_a_run_that_was_interrupted_goes_on(net, in_process, tmp_path):
    graph, path, feeds = net
    whole, _ = round_layers(graph, feeds, path, isa="vnni")
    state = State(tmp_path / "state", "quantizing", {})
    count = iter(range(100))

    def interrupted(name, layers):
        if next(count) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        round_layers(graph, feeds, path, isa="vnni", state=state, advance=interrupted)
    again = State(tmp_path / "state", "quantizing", {})
    assert again.stored["rounding"]
    found, _ = round_layers(graph, feeds, path, isa="vnni", state=again)
    for name, each in whole.items():
        assert (found[name].codes == each.codes).all()
        assert found[name].bias == pytest.approx(each.bias, abs=1e-6)


def test_layers_that_share_a_bias_get_their_own(in_process, tmp_path):
    """One constant of zeros is the bias of two layers, whose corrections differ."""

    with building(["x"], ["out/biased"]) as graph:
        zeros = tf.constant(np.zeros(C, np.float32), name="zeros")
        y = relu(layer("conv", image(), "stem"))
        parts = [
            tf.nn.relu(tf.nn.bias_add(layer("conv", y, name, bias=False, weights=each), zeros))
            for name, each in (("a", random(1, 1, C, C)), ("b", random(1, 1, C, C, seed=4)))
        ]
        layer("conv", tf.concat(parts, 3), "out", weights=random(1, 1, 2 * C, 3, seed=7))
    graph.prune()
    path, feeds = str(tmp_path / "ranges.json"), [smooth(8, seed) for seed in range(2)]
    prepared, _ = prepare(graph, feeds, path)
    _, planned = _with_biases(prepared, path, ())
    assert len({chain.bias for chain in planned.chains.values()}) == 4


@pytest.mark.sampled
def test_without_time_the_rest_is_rounded_to_the_nearest(net, in_process):
    graph, path, feeds = net
    asked = iter([False, False, True])
    found, (note,) = round_layers(graph, feeds, path, out_of_time=lambda: next(asked))
    assert len(found) == 2
    assert shows(note, "rounded-to-nearest")
    int8_graph(graph, path, "auto", (), found)


def test_what_is_stored_is_bounded(net, in_process, monkeypatch):
    graph, path, feeds = net
    monkeypatch.setattr(rounding_session, "MAX_STORED", 1)
    found, notes = round_layers(graph, feeds, path, isa="vnni")
    assert found
    assert not notes
