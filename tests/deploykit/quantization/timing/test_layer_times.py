"""On a busy machine the same layers are chosen as on a quiet one, or it is said what is open."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from deploykit.benchmarking.run_config import RunConfig
from deploykit.pipelines.int8 import int8_graph
from deploykit.quantization.timing import layer_times as timing
from deploykit.quantization.timing.int8_choice import Int8Choice, choose
from deploykit.quantization.timing.layer_times import CALLS, PROBED, ROUNDS, layer_times
from deploykit.transforms.int8.plan import plan
from deploykit.transforms.int8.ranges import Ranges, TensorRange
from tests.support import building, random, tf
from tests.transforms.int8_nets import ranges_of
from tests.transforms.test_quantize_static_inputs import feeds_of as signed_feeds
from tests.transforms.test_quantize_static_inputs import net as signed_net

LAYERS = tuple(f"conv_{number}" for number in range(8))
Load = Callable[[np.random.Generator, str, int, int], np.ndarray]
"""How many times as long nodes take, by graph, number of rounds and of nodes: [rounds, nodes]."""


def chain_of_layers():
    """Return eight convolutions, one behind the other."""

    with building(["x"], [f"{LAYERS[-1]}_relu"]) as graph:
        y = tf.compat.v1.placeholder(tf.float32, [None, 8, 8, 8], name="x")
        for layer in LAYERS:
            y = tf.nn.conv2d(y, random(3, 3, 8, 8), 1, "SAME", name=layer)
            y = tf.nn.relu(y, name=f"{layer}_relu")
    return graph


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    """The float graph, its 8-bit graph and its plan."""
    graph = chain_of_layers()
    ranges = Ranges("", 1, {node.name: TensorRange(0, 5) for node in graph})
    path = tmp_path_factory.mktemp("ranges") / "ranges.json"
    path.write_text(ranges.text())
    found = plan(graph, ranges)
    assert found.chains.keys() == set(LAYERS)
    return graph, int8_graph(graph, str(path)), found


def made_up_calls(noise: np.random.Generator, load: Load, int8_us: Mapping[str, float]):
    """Return what stands for the tracing: 60 us in 8 bits unless it is said, 100 us in float."""

    def traced(jobs, rounds, advance, found_of, decided):
        calls = {job: [] for job in jobs}
        for job, found in calls.items():
            times = times_ns(job, int8_us)
            longer = load(noise, job, rounds, len(times))
            for number in range(CALLS * rounds):
                each = longer[number // CALLS] * noise.uniform(1, 1.05, len(times))
                found.append(
                    {n: round(t) for n, t in zip(times, each * [*times.values()], strict=True)}
                )
        return found_of(calls, True)

    return traced


def times_ns(job: str, int8_us: Mapping[str, float]) -> dict[str, float]:
    """Return the time of each node of a graph on an idle machine."""
    if job == "conversions":
        names = [f"{kind}_{n}" for kind in ("quantized", "floats") for n in range(len(PROBED))]
        return {name: 5e3 + PROBED[int(name[-1])] / 100 for name in names}
    if job == "int8":
        layers = {f"{layer}_relu/codes": 1e3 * int8_us.get(layer, 60) for layer in LAYERS}
        return layers | {"x/quantized": 5e3, f"{LAYERS[-1]}_relu": 5e3}
    return {f"{layer}_relu": 1e5 for layer in LAYERS}


def chosen(net, monkeypatch, seed: int, load: Load, **int8_us: float) -> Int8Choice:
    traced = made_up_calls(np.random.default_rng(seed), load, int8_us)
    monkeypatch.setattr(timing, "_traced", traced)
    graph, int8, found = net
    return choose(graph, found, layer_times(graph, int8, found, RunConfig(batch=1)))


def idle(noise, job, rounds, nodes):
    return np.ones((rounds, nodes))


def turns_disturbed(noise, job, rounds, nodes):
    """Take every node of most turns up to four times as long: a neighbour has the cores."""
    return np.where(noise.random((rounds, 1)) < 0.6, noise.uniform(1.5, 4, (rounds, 1)), 1)


def nodes_disturbed(noise, job, rounds, nodes):
    """Take some nodes of every turn up to thirty times as long: they lose their core meanwhile."""
    size = (rounds, nodes)
    return np.where(noise.random(size) < 0.4, noise.uniform(1, 30, size), 1)


def one_graph_disturbed(noise, job, rounds, nodes):
    """Take most turns of the 8-bit graph four times as long, and of no other."""
    return np.where(noise.random((rounds, 1)) < 0.6 * (job == "int8"), 4, 1)


def float_is_lucky(noise, job, rounds, nodes):
    """Take all turns twice as long, but for some of the float graphs."""
    return np.where(noise.random((rounds, 1)) < 0.25 * (job != "int8"), 1, 2)


LOADS = [idle, turns_disturbed, nodes_disturbed, one_graph_disturbed, float_is_lucky]


@pytest.mark.sampled
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("seed", range(8))
def test_load_turns_no_layer_to_float(net, monkeypatch, load, seed):
    found = chosen(net, monkeypatch, seed, load)
    assert found.int8 == set(LAYERS)
    assert load is not idle or not found.undecided


@pytest.mark.sampled
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("seed", range(8))
def test_load_hides_no_layer_that_is_faster_in_float(net, monkeypatch, load, seed):
    found = chosen(net, monkeypatch, seed, load, conv_3=300)
    assert found.stay_float <= {"conv_3"}
    assert found.stay_float or found.undecided
    assert load is not idle or (found.stay_float == {"conv_3"} and not found.undecided)


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(8))
def test_next_to_nothing_turns_no_layer_to_float(net, monkeypatch, seed):
    found = chosen(net, monkeypatch, seed, idle, conv_0=103, conv_1=103)  # 108 with a conversion
    assert found.int8 == set(LAYERS)
    assert not found.undecided


def test_what_was_measured_is_told_twice(net, monkeypatch):
    traced = made_up_calls(np.random.default_rng(1), turns_disturbed, {})
    monkeypatch.setattr(timing, "_traced", traced)
    times = layer_times(*net, RunConfig(batch=1), rounds=ROUNDS)
    for layer in LAYERS:
        assert 60e3 <= times.least.parts[layer].int8 < 63e3
        assert times.usual.parts[layer].int8 > 80e3
    assert times.least.quantize.at(10**6) < 17e3 < times.usual.quantize.at(10**6)


def test_zeros_that_are_put_around_codes_count_for_their_layer(tmp_path):
    graph, path = signed_net("float", "conv", "SAME"), str(tmp_path / "net.ranges.json")
    known = ranges_of(graph, [signed_feeds(graph, 3)])
    Path(path).write_text(known.text())
    int8, planned = int8_graph(graph, path), plan(graph, known)
    times = {"out/codes": 500, "layer/zeros/uint8": 30, "x/quantized": 7}
    assert times.keys() <= {node.name for node in int8}
    onednn = timing.with_onednn_kernels(graph)
    parts = timing._parts(graph, onednn, planned, {"Eigen": {}, "oneDNN": {}, "int8": times})
    assert parts["layer"].int8 == 530
