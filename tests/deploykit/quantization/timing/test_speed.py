"""A layer's time is that of its nodes; a plan's tensors are borders; the faster graph is kept."""

import re
from dataclasses import replace

import numpy as np
import pytest

from deploykit.benchmarking.run_config import RunConfig
from deploykit.benchmarking.speed_verdict import SpeedVerdict
from deploykit.benchmarking.statistics import Ratio
from deploykit.pipelines.int8 import int8_graph
from deploykit.quantization.target import IN_TENSORFLOW
from deploykit.quantization.timing import layer_times as timing
from deploykit.quantization.timing import speed
from deploykit.quantization.timing.int8_choice import FLOAT, NEVER, borders, choose
from deploykit.quantization.timing.layer_times import (
    LayerTimes,
    Line,
    PartTimes,
    Times,
    layer_times,
)
from deploykit.quantization.timing.speed import (
    FEWER,
    INT8,
    PLAIN,
    WITHOUT_ONEDNN,
    Gain,
    gain,
    undecided,
)
from deploykit.transforms.common.documents import document
from deploykit.transforms.int8.plan import plan
from deploykit.transforms.int8.ranges import Ranges, TensorRange
from deploykit.transforms.ir.graph import Graph
from tests.deploykit.benchmarking.made_up_results import measurement, result
from tests.support import because, build, random, says, tf

BATCH = 2
LOADED = "measured on a loaded machine: other processes used 1.9 of 2 cores"


def residual_net():
    """Return convolutions, of which the third adds the first to its own, and a dense layer."""

    def conv(x, shape, name):
        y = tf.nn.conv2d(x, random(*shape, low=0), 1, "SAME", name=name)
        return tf.nn.bias_add(y, random(shape[-1], low=0), name=f"{name}_biased")

    def body():
        x = tf.compat.v1.placeholder(tf.float32, [None, 8, 8, 4], name="x")
        first = tf.nn.relu(conv(x, (3, 3, 4, 8), "first"), name="first_relu")
        inner = tf.nn.relu(conv(first, (3, 3, 8, 4), "inner"), name="inner_relu")
        second = conv(inner, (1, 1, 4, 8), "second")
        y = tf.nn.relu(tf.raw_ops.AddV2(x=second, y=first, name="sum"), name="summed")
        y = tf.nn.max_pool2d(y, 2, 2, "VALID", name="pool")
        y = tf.nn.relu(conv(y, (3, 3, 8, 8), "third"), name="third_relu")
        y = tf.sigmoid(y, name="sigmoid")
        y = tf.nn.relu(conv(y, (1, 1, 8, 8), "fourth"), name="fourth_relu")
        tf.matmul(tf.reduce_mean(y, [1, 2], name="mean"), random(8, 4), name="dense")

    return build(body, ["x"], ["dense"])


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    """The float graph, its plan, and its 8-bit graph."""
    graph = residual_net()
    ranges = Ranges("", 1, {node.name: TensorRange(0, 5) for node in graph})
    path = tmp_path_factory.mktemp("ranges") / "ranges.json"
    path.write_text(ranges.text())
    return graph, plan(graph, ranges), int8_graph(graph, str(path))


LAYERS = {"first", "inner", "second", "third", "fourth", "dense"}


def made_up_times(found, **parts):
    """Return 100 in float and 50 in 8 bits of each part, and 10 for each conversion."""
    names = {*found.chains, *found.passing}
    times = {name: PartTimes(300, 100, 50) for name in names} | parts
    return Times(times, {}, {}, Line(10, 0), Line(10, 0), {}, True)


def steady(found, **parts):
    """Return such times, of which the least are the medians."""
    times = made_up_times(found, **parts)
    return LayerTimes(times, times)


def test_the_borders_of_a_plan(net):
    _, found, _ = net
    assert found.chains.keys() == LAYERS
    assert found.passing == {"pool"}
    lines = {
        (b.producer, b.readers, b.quantize_ns) for b in borders(*net[:2], made_up_times(found))
    }
    assert lines == {
        (FLOAT, ("first",), 10),
        ("first", ("inner", "second"), 10),  # the second one adds it
        ("inner", ("second",), 10),
        ("second", ("pool",), 10),
        ("second", ("pool",), NEVER),
        ("pool", ("third",), 10),
        ("third", (FLOAT,), 10),  # the sigmoid
        (FLOAT, ("fourth",), 10),
        ("fourth", (FLOAT,), 10),  # the mean
        (FLOAT, ("dense",), 10),  # MatMul's own result is float already
    }


@pytest.mark.parametrize(
    ("parts", "stay_float", "expected"),
    [
        ({}, (), set()),
        ({"first": PartTimes(0, 20, 200)}, (), {"first"}),
        ({"second": PartTimes(0, 50, 55)}, (), set()),  # two conversions cost more than it loses
        ({"dense": PartTimes(0, 100, 115)}, (), {"dense"}),  # its conversion adds to it
        ({"dense": PartTimes(0, 100, 95)}, (), set()),  # no clear gain
        ({"dense": PartTimes(0, 5, 1)}, (), set()),  # a clear gain, of nearly nothing
        ({}, ("third",), {"third"}),
        ({}, ("second",), {"second"}),  # so the pool behind it is float too
    ],
)
def test_the_choice(net, parts, stay_float, expected):
    graph, found, _ = net
    choice = choose(graph, found, steady(found, **parts), stay_float)
    assert choice.stay_float == expected
    assert choice.int8 == LAYERS - expected
    assert choice.ns < choice.float_ns
    assert (choice.ns < choice.int8_ns < NEVER) == (expected > set(stay_float))
    assert not choice.undecided


def test_the_faster_float_kernel_counts_where_both_can_be_had(net):
    graph, found, _ = net
    names = {*found.chains, *found.passing}
    slow = {name: PartTimes(40, 100, 50) for name in names}
    times = made_up_times(found, **slow)
    for is_on, expected in ((True, LAYERS), (False, set())):
        each = replace(times, onednn_is_on=is_on)
        assert choose(graph, found, LayerTimes(each, each)).int8 == expected


@pytest.mark.parametrize(
    ("least", "usual", "stays_float", "undecided"),
    [
        ((200, 90), (210, 100), True, False),  # not even its least is as short as float's median
        ((90, 90), (210, 100), False, True),  # most calls took it longer, not all
        ((45, 95), (50, 210), False, False),
        ((200, 90), (210, 450), False, False),  # what it takes in float may be disturbed as well
    ],
)
def test_a_layer_is_float_for_its_time_only_beyond_doubt(net, least, usual, stays_float, undecided):
    graph, found, _ = net
    least, usual = (
        made_up_times(found, third=PartTimes(0, onednn, int8)) for int8, onednn in (least, usual)
    )
    choice = choose(graph, found, LayerTimes(least, usual))
    assert choice.stay_float == ({"third"} if stays_float else set())
    assert choice.undecided == ({"third"} if undecided else set())


@pytest.mark.parametrize(
    ("fewer", "code", "fields"),
    [
        (None, "layer-speed-unknown", {}),
        (
            (0.9, 1.2),
            "layer-speed-open",
            {"ratio": "1.05x (99.8 % CI 0.9-1.2)", "busy": f", {LOADED}"},
        ),
        ((0.995, 1.015), "", {}),  # no difference that matters
        ((0.7, 0.9), "", {}),
    ],
)
def test_what_is_undecided_is_said(fewer, code, fields):
    judged = None if fewer is None else SpeedVerdict(Ratio(sum(fewer) / 2, *fewer), None, LOADED)
    found = Gain(SpeedVerdict(Ratio(2, 1.9, 2.1), None), PLAIN, INT8, judged)
    assert found.is_decided == (fewer != (0.9, 1.2))
    assert undecided(found, (), ()) == []
    said = undecided(found, {"b", "a"}, ())
    assert said == ([because(code, layers="a, b", **fields)] if code else [])
    (line,) = undecided(found, (), {"e", "d", "c", "b", "a"})
    assert line == because("layer-times-open", layers="a, b, c and 2 more")


def test_measured_conversions_go_before_the_line():
    line = Line(1000, 0.5)
    times = Times({}, {"a": 7}, {"b": 8}, line, line, {"a": 4000, "b": 4000}, True)
    assert (times.quantize_ns("a"), times.quantize_ns("b")) == (7, 3000)
    assert (times.dequantize_ns("a"), times.dequantize_ns("b")) == (3000, 8)
    assert times.quantize_ns("of unknown shape") == 1000


def test_a_line_through_conversions():
    expected = {f"quantized_{n}": 900 + 0.5 * size for n, size in enumerate(timing.PROBED)}
    line = timing._line(expected, "quantized")
    np.testing.assert_allclose((line.fixed_ns, line.ns_each), (900, 0.5))
    falling = {f"quantized_{n}": 1000 - n for n, _ in enumerate(timing.PROBED)}
    assert timing._line(falling, "quantized").ns_each == 0


@pytest.fixture(scope="module")
def measured(net):
    """What was measured, and the turns that were announced."""
    turns = []
    settings = RunConfig(batch=BATCH, threads=(1, 1))
    times = layer_times(
        *(net[0], net[2], net[1], settings),
        rounds=2,
        advance=lambda name, count: turns.append(name),
    )
    return times, turns


@pytest.mark.slow
def test_every_part_is_timed_in_every_form(net, measured):
    _, found, _ = net
    times, _ = measured
    assert times.usual.parts.keys() == {*found.chains, *found.passing}
    choice = choose(*net[:2], times)
    assert choice.int8 | choice.stay_float == LAYERS
    assert choice.undecided <= choice.int8
    for name, part in times.usual.parts.items():
        least = times.least.parts[name]
        assert 0 < least.eigen <= part.eigen
        assert 0 < least.onednn <= part.onednn
        assert 0 < least.int8 <= part.int8
    times = times.usual
    assert times.quantized.keys() == {"x", "sigmoid", "mean"}
    assert times.dequantized.keys() == {"third_relu", "fourth_relu"}
    assert times.elements["pool"] == BATCH * 4 * 4 * 8
    assert times.quantize.at(10**6) > 0


def test_graphs_are_traced_in_turn(measured):
    names = ["Eigen", "oneDNN", "int8", "conversions"]
    assert measured[1] == [*(f"load {name}" for name in names), *names, *names]


def test_a_layers_time_is_that_of_its_nodes(net):
    graph, found, _ = net
    onednn = timing.with_onednn_kernels(graph)
    eigen = {"first": 1, "first_biased": 2, "first_relu": 4, "second_biased": 8, "sum": 16,
             "summed": 32, "pool": 64, "dense": 128, "sigmoid": 256}  # fmt: skip
    fused = {"first_relu": 1, "summed": 2, "pool": 4, "dense": 8, "sigmoid": 16}
    codes = {"first_relu/codes": 1, "summed/codes": 2, "pool/codes": 4, "dense": 8,
             "third_relu": 16, "x/quantized": 32}  # fmt: skip
    times = {"Eigen": eigen, "oneDNN": fused, "int8": codes}
    parts = timing._parts(graph, onednn, found, times)
    assert parts["first"] == PartTimes(7, 1, 1)
    assert parts["second"] == PartTimes(56, 2, 2)
    assert parts["third"] == PartTimes(0, 0, 0)
    assert parts["pool"] == PartTimes(64, 4, 4)
    assert parts["dense"] == PartTimes(128, 8, 8)


@pytest.mark.parametrize(
    ("int8", "plain", "without", "rival", "kept"),
    [
        (5.0, 10.0, 8.0, WITHOUT_ONEDNN, True),
        (9.0, 10.0, 2.0, WITHOUT_ONEDNN, False),
        (10.0, 10.002, 30.0, PLAIN, True),  # no difference
        (10.0, 9.0, 30.0, PLAIN, False),
    ],
)
def test_it_is_held_against_the_faster_float_graph(int8, plain, without, rival, kept):
    times = {PLAIN: plain, INT8: int8, WITHOUT_ONEDNN: without}
    found = gain([measurement(n, p50, seed=len(n)) for n, p50 in times.items()])
    assert (found.rival, found.is_kept) == (rival, kept)
    np.testing.assert_allclose(found.ratio.value, min(plain, without) / int8, rtol=0.01)
    assert rival.removeprefix("float") in str(found)
    assert document(found)["verdict"] == found.judgement.verdict


@pytest.mark.parametrize(("fewer", "name"), [(9.998, INT8), (9.0, FEWER), (11.0, INT8)])
def test_fewer_layers_have_to_be_faster_for_sure(fewer, name):
    times = {PLAIN: 20.0, INT8: 10.0, FEWER: fewer}
    found = gain([measurement(n, p50, seed=len(n)) for n, p50 in times.items()])
    assert found.name == name
    np.testing.assert_allclose(found.ratio.value, 20 / times[name], rtol=0.01)


SAID = {
    "faster": says("int8-faster", rival="float32"),
    "slower": says("int8-slower", rival="float32"),
    "more work": says("int8-more-work", rival="float32"),
    "no difference": says("int8-as-fast", rival="float32"),
    "inconclusive": says("int8-speed-open", rival="float32"),
}


def test_on_a_loaded_machine_more_cpu_time_alone_is_no_reason_for_float32():
    """Threads that wait for each other used it: the whole graph is faster on an idle machine."""
    wall, cpu = Ratio(1.4, 0.4, 3.0), Ratio(0.34, 0.218, 0.546)
    assert not Gain(SpeedVerdict(wall, cpu), PLAIN).is_kept
    loaded = Gain(SpeedVerdict(wall, cpu, LOADED), PLAIN)
    assert loaded.is_kept
    assert re.match(SAID["inconclusive"], str(loaded))
    assert not Gain(SpeedVerdict(Ratio(0.9, 0.4, 1.2), cpu, LOADED), PLAIN).is_kept


@pytest.mark.parametrize("busy", ["", LOADED])
@pytest.mark.parametrize(
    ("wall", "cpu", "said"),
    [
        ((1.2, 1.35, 1.5), None, "faster"),
        ((1.2, 1.35, 1.5), (0.7, 0.8, 0.9), "faster"),
        ((0.6, 0.7, 0.8), None, "slower"),
        ((0.6, 0.7, 0.8), (1.05, 1.4, 1.6), "slower"),
        ((0.215, 1.42, 9.33), None, "inconclusive"),
        ((0.215, 1.42, 9.33), (1.05, 1.4, 1.6), "inconclusive"),
        ((0.215, 0.42, 1.001), None, "inconclusive"),
        ((0.215, 0.42, 1.001), (0.9, 1.0, 1.1), "inconclusive"),
        ((0.0, 0.5, np.inf), None, "inconclusive"),
        ((0.9, 1.0, 1.1), (0.7, 0.8, 0.9), "more work"),
        ((0.99, 1.0, 1.01), None, "no difference"),
        ((0.97, 1.01, 1.04), (1.05, 1.4, 1.6), "no difference"),
    ],
)
def test_int8_is_kept_unless_it_is_significantly_slower(wall, cpu, said, busy):
    wall, cpu = (each and Ratio(each[1], each[0], each[2]) for each in (wall, cpu))
    found = Gain(SpeedVerdict(wall, cpu, busy), PLAIN)
    assert found.is_kept == (said not in ("slower", "more work"))
    assert [each for each in SAID if re.match(SAID[each], str(found))] == [said]
    assert (LOADED in str(found)) == bool(busy)
    assert document(found)["verdict"] == found.judgement.verdict


@pytest.mark.parametrize("is_on", [False, True])
def test_who_is_measured(net, monkeypatch, is_on):
    measured = {}

    def measure(candidates, **more):
        measured.update({each.name: each.job.settings for each in candidates})
        return result(*(measurement(name) for name in measured), interrupted=not is_on)

    monkeypatch.setattr(speed, "measure", measure)
    graph, _, int8 = net
    settings = RunConfig(batch=BATCH)

    def standing(is_on):
        entrants = IN_TENSORFLOW.entrants(graph, {INT8: int8}, settings, is_on)
        return speed.faster(graph, [entrants])[0]

    if is_on:
        assert standing(True).gain.is_kept
        assert measured.pop(WITHOUT_ONEDNN).onednn is False
    else:
        with pytest.raises(KeyboardInterrupt):
            standing(False)
        assert measured.pop(speed.ON_ONEDNN_KERNELS) == settings
    assert measured == {PLAIN: settings, INT8: settings}


@pytest.mark.parametrize(
    ("least", "usual", "is_compared"),
    [(2.0, 2.0, False), (1.2, 2.0, True), (2.0, 1.2, True), (0.5, 0.5, True)],
)
def test_eigen_is_left_out_only_where_all_calls_say_that_it_is_slow(least, usual, is_compared):
    none = Line(0.0, 0.0)
    times = LayerTimes(
        *(
            Times({"layer": PartTimes(int(1000 * each), 1000, 500)}, {}, {}, none, none, {}, True)
            for each in (least, usual)
        )
    )
    graph = Graph()
    found = IN_TENSORFLOW.entrants(graph, {INT8: graph}, RunConfig(), True, times)
    assert found.graphs.keys() == {PLAIN, INT8} | ({WITHOUT_ONEDNN} if is_compared else set())
