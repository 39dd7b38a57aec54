"""The whole way to 8 bits: each choice is made for its reason, and what is wrong never leaves."""

import itertools
import re

import numpy as np
import pytest

import deploykit
from deploykit.benchmarking.speed_verdict import SpeedVerdict
from deploykit.benchmarking.statistics import Ratio
from deploykit.quantization import calibrated_graph, candidates, layer_search, search, target
from deploykit.quantization.calibration import Calibration, KnownRanges
from deploykit.quantization.quantize_options import PREFERENCES
from deploykit.quantization.result import Quantized
from deploykit.quantization.search import QuantizeOptions, quantize_calibrated
from deploykit.quantization.search_task import Budget
from deploykit.quantization.timing.layer_times import LayerTimes, Line, PartTimes, Times
from deploykit.quantization.timing.speed import FEWER, INT8, PLAIN, Gain, Standing
from deploykit.rendering.formatters.quantization import lines
from deploykit.transforms import quantize_static
from deploykit.transforms.common.errors import CrashError, GraphError, NotQuantizedError
from deploykit.transforms.int8.ranges import Ranges
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from deploykit.transforms.runtime.child_process import call
from tests.support import (
    Containing,
    assert_golden,
    because,
    build,
    building,
    built,
    ops,
    raises,
    random,
    refusal,
    run,
    says,
    showing,
    shows,
    tf,
)

LAYERS = ("conv", "depthwise", "linear", "dense")
INT8_OPS = frozenset(quantize_static.OPS.values())


@built(["x"], ["out"])
def residual_net():
    """Return convolutions with Relu6 and Relu, a residual sum, a mean and a dense layer."""
    x = tf.compat.v1.placeholder(tf.float32, [None, 8, 8, 3], name="x")
    y = tf.nn.conv2d(x, random(3, 3, 3, 16), 1, "SAME", name="conv")
    a = tf.nn.relu6(tf.nn.bias_add(y, random(16)), name="a")
    y = tf.nn.depthwise_conv2d(a, random(3, 3, 16, 1), [1, 1, 1, 1], "SAME", name="depthwise")
    b = tf.nn.relu(tf.nn.bias_add(y, random(16, seed=1)), name="b")
    y = tf.nn.conv2d(b, random(1, 1, 16, 16), 1, "SAME", name="linear")
    y = tf.nn.relu(tf.nn.bias_add(y, random(16, seed=2)) + a, name="c")
    y = tf.reduce_mean(y, [1, 2], name="mean")
    tf.nn.bias_add(tf.matmul(y, random(16, 10), name="dense"), random(10), name="out")


@pytest.fixture(scope="module")
def net() -> Graph:
    return deploykit.optimize(residual_net())


@pytest.fixture(scope="module")
def data() -> dict[str, np.ndarray]:
    return {"x": random(64, 8, 8, 3, low=0)}


class Clock:
    """What `layer_times` and `faster` would measure, in figures that do not depend on a clock."""

    def __init__(self) -> None:
        self.int8_ns = dict.fromkeys(LAYERS, 10_000)
        self.least_ns = dict[str, int]()
        """Where it is not the median."""
        self.gain, self.fewer_wins = 2.0, True
        self.interval: tuple[float, float, float] | None = None
        self.beside_fewer: SpeedVerdict | None = None
        self.asked = list[tuple[str, ...]]()
        self.is_decided: bool | None = None
        """Whether fewer rounds were enough."""

    def layer_times(self, graph, int8, plan, settings, *, data, rounds, advance, decided):
        self.asked.append(("times",))
        advance("int8", 1)
        names, none = {*plan.chains, *plan.passing}, Line(0.0, 0.0)

        def times(**least):
            int8_ns = self.int8_ns | least
            parts = {name: PartTimes(60_000, 50_000, int8_ns.get(name, 1_000)) for name in names}
            return Times(parts, {}, {}, none, none, {}, True)

        found = LayerTimes(times(**self.least_ns), times())
        self.is_decided = decided(found)
        return found

    def faster(self, graph, entrants, *, data, depth, advance):
        found = []
        for each in entrants:
            int8 = tuple(name for name in each.graphs if name in (INT8, FEWER))
            self.asked.append(int8)
            name = FEWER if FEWER in int8 and self.fewer_wins else INT8
            ratio = Ratio(*(self.interval or (np.array([1, 0.95, 1.05]) * self.gain).tolist()))
            gain = Gain(SpeedVerdict(ratio, None), PLAIN, name, self.beside_fewer)
            found.append(Standing(gain if int8 else None, ()))
        return found


@pytest.fixture
def clock(monkeypatch, in_process) -> Clock:
    made = Clock()
    monkeypatch.setattr(target, "layer_times", made.layer_times)
    monkeypatch.setattr(candidates, "faster", made.faster)
    return made


@pytest.fixture(autouse=True)
def ops_are_there(monkeypatch):
    """Take the private ops for granted: the tests of `probe` are elsewhere."""
    monkeypatch.setattr(target, "probe", frozenset)


def int8_of(found: Quantized) -> set[str]:
    return {each.layer for each in found.layers if not each.why_float}


def why(found: Quantized, layer: str) -> str:
    return next(each.why_float for each in found.layers if each.layer == layer)


@pytest.mark.sampled
def test_all_layers_that_are_right_and_fast(net, data, clock):
    found = quantize_calibrated(net, data, QuantizeOptions(min_sqnr=15))
    assert not found.is_float
    assert int8_of(found) == set(LAYERS)
    assert found.int8_layers == 4
    assert set(ops(found.graph)) >= INT8_OPS
    assert found.judgement.sqnr_db >= 15
    assert found.judgement.samples == 16, "every fourth is held out"
    assert found.samples == 48
    assert found.gain.ratio.value == 2
    assert clock.asked == [("times",), (INT8,)]
    assert clock.is_decided
    values = [run(each, data) for each in (net, found.graph)]
    noise = np.square(values[0][0] - values[1][0]).sum() / np.square(values[0][0]).sum()
    assert -10 * np.log10(noise) >= 15, "it is as right as it was said to be"


def test_a_layer_that_is_slow_stays_float(net, data, clock):
    clock.int8_ns["dense"] = 80_000
    found = quantize_calibrated(net, data, QuantizeOptions(min_sqnr=15))
    assert int8_of(found) == {"conv", "depthwise", "linear"}
    assert why(found, "dense") == because("int8-not-faster")
    assert not clock.is_decided
    assert "MatMul" in ops(found.graph)
    assert clock.asked == [("times",), (INT8, FEWER)]


@pytest.mark.sampled
def test_a_layer_whose_time_alone_misleads_is_in_8_bits(net, data, clock):
    clock.int8_ns["dense"], clock.fewer_wins = 80_000, False
    found = quantize_calibrated(net, data, QuantizeOptions(min_sqnr=15))
    assert int8_of(found) == set(LAYERS)
    assert "MatMul" not in ops(found.graph)


@pytest.mark.sampled
def test_what_is_undecided_is_in_8_bits_and_said(net, data, clock):
    clock.int8_ns["dense"], clock.fewer_wins = 80_000, False
    clock.beside_fewer = SpeedVerdict(Ratio(1.0, 0.8, 1.2), None, "the machine is busy")
    by_the_whole = quantize_calibrated(net, data, QuantizeOptions(min_sqnr=15))
    clock.least_ns, clock.beside_fewer = {"dense": 10_000}, None
    by_its_times = quantize_calibrated(net, data, QuantizeOptions(min_sqnr=15))
    assert clock.asked == [("times",), (INT8, FEWER), ("times",), (INT8,)]
    for found, code, fields in (
        (by_the_whole, "layer-speed-open", {"ratio": Containing("1.00x (99.8 % CI 0.8-1.2)")}),
        (by_its_times, "layer-times-open", {}),
    ):
        assert int8_of(found) == set(LAYERS)
        assert any(shows(note, code, layers="dense", **fields) for note in found.notes)


@pytest.mark.sampled
def test_what_there_was_no_time_for_is_said(net, data, clock, monkeypatch):
    whole = quantize_calibrated(net, data, QuantizeOptions(min_sqnr=50))
    monkeypatch.setattr(Budget, "calibrating_samples", lambda *arguments: 20)
    monkeypatch.setattr(Budget, "ranking_samples", lambda *arguments: 4)
    short = quantize_calibrated(net, data, QuantizeOptions(min_sqnr=50))
    for code, fields in (
        ("calibrated-with-fewer", {"count": 20, "every": 48}), ("ranked-by-fewer", {"count": 4}),
    ):  # fmt: skip
        assert sum(shows(note, code, **fields) for note in short.notes) == 1
        assert not any(shows(note, code) for note in whole.notes)


@pytest.mark.sampled
@pytest.mark.parametrize("ns", [10_000, 80_000])
def test_where_the_whole_is_significantly_slower_float_is_kept(net, data, clock, ns):
    clock.int8_ns, clock.gain = dict.fromkeys(LAYERS, ns), 0.9
    found = quantize_calibrated(net, data, QuantizeOptions(min_sqnr=15))
    assert found.is_float
    assert found.graph is net
    assert found.precision == "float32"
    ratio = Containing("0.90x (99.8 %", "CI 0.855-0.945)")
    assert shows(found.reason, "int8-slower", ratio=ratio)
    assert clock.asked == [("times",), (INT8,)], "none at all in 8 bits is the float graph"
    assert {tuple(each.times_us.items()) for each in found.layers} == {
        (("eigen", 60.0), ("onednn", 50.0), ("int8", ns / 1e3))
    }
    assert found.int8_layers == 4, "what was tried is shown"
    assert "\n".join(map(str, lines(found))) == Containing(" 4 ", "int8")


@pytest.mark.sampled
def test_a_higher_bar_keeps_more_layers_float(net, data, clock):
    loose, tight, none = (
        quantize_calibrated(net, data, QuantizeOptions(min_sqnr=bar)) for bar in (15, 50, 1000)
    )
    assert int8_of(none) < int8_of(tight) < int8_of(loose)
    assert tight.judgement.sqnr_db >= 50
    noisy = {e.layer for e in tight.layers if e.why_float == because("noise-too-high")}
    assert noisy == set(LAYERS) - int8_of(tight)
    by_noise = sorted(tight.layers, key=lambda each: each.sqnr_db)
    assert {each.layer for each in by_noise[: len(noisy)]} == noisy
    assert none.is_float
    assert shows(none.reason, "int8-noise-at-most", expected=1000)


@pytest.mark.sampled
def test_speed_is_preferred_with_more_noise(net, data, clock, monkeypatch):
    for name, bar in (("accuracy", 50), ("speed", 15)):
        monkeypatch.setitem(PREFERENCES, name, bar)
    exact, fast = (
        quantize_calibrated(net, data, QuantizeOptions(prefer=each)) for each in PREFERENCES
    )
    assert int8_of(exact) < int8_of(fast) == set(LAYERS)
    assert exact.judgement.certain_db >= 50 > fast.judgement.certain_db >= 15
    assert Containing("--prefer speed", "15 dB") in fast.notes
    assert not [note for note in exact.notes if "--prefer" in note]


@pytest.mark.sampled
def test_layers_that_are_to_stay_float(net, data, clock):
    found = quantize_calibrated(net, data, QuantizeOptions(keep_float=("linear",), min_sqnr=15))
    assert int8_of(found) == {"conv", "depthwise", "dense"}
    assert why(found, "linear") == Containing("keep_float")
    assert "Conv2D" in ops(found.graph) or "_MklNativeFusedConv2D" in ops(found.graph)


@pytest.mark.sampled
def test_a_metric_that_falls_keeps_layers_float(net, data, clock, tmp_path, monkeypatch):
    (tmp_path / "exactness.py").write_text(
        "import numpy as np\n"
        "def score(outputs, labels):\n"
        "    return -float(np.abs(outputs['out'] - labels).max())\n"
    )
    monkeypatch.chdir(tmp_path)
    labelled = data | {"labels": run(net, data)[0]}
    bar = QuantizeOptions(min_sqnr=15, metric="exactness:score")
    strict, lax = (
        quantize_calibrated(net, data, bar_, evaluation=labelled)
        for bar_ in (bar, QuantizeOptions(min_sqnr=15, metric="exactness:score", max_drop=100))
    )
    assert int8_of(strict) < int8_of(lax)
    assert lax.evaluation.drop > 0.01
    assert lax.evaluation.metric == "exactness:score"


def test_a_budget_that_is_over_still_ends_with_a_result(net, data, clock, monkeypatch):
    found = quantize_calibrated(net, data, QuantizeOptions(budget=1e-9))
    assert not found.is_float
    assert found.int8_layers == 4
    monkeypatch.setitem(PREFERENCES, "accuracy", 60)
    found = quantize_calibrated(net, data, QuantizeOptions(budget=1e-9))
    assert not found.is_float
    assert "--budget" in found.notes[-1]
    assert showing("budget-too-short") in found.notes
    bound = quantize_calibrated(net, data, QuantizeOptions(min_sqnr=60, budget=1e-9))
    assert bound.is_float, "nothing noisier than what is asked for is the result"
    assert bound.reason == because("int8-search-out-of-time")
    given = quantize_calibrated(net, data, QuantizeOptions(min_sqnr=60), budget=Budget(1e-9))
    assert (given.is_float, given.reason) == (True, bound.reason), "a caller's budget counts"
    with pytest.raises(AssertionError):  # with time, more layers are float
        assert quantize_calibrated(net, data, QuantizeOptions(min_sqnr=60)).int8_layers == 4


def until_calibration(monkeypatch, *arguments, **options):
    """Run a search until it calibrates."""

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(search, "prepare", stop)
    with pytest.raises(KeyboardInterrupt):
        quantize_calibrated(*arguments, **options)


def test_known_ranges_save_one_of_two_passes_over_the_samples(net, data, clock, monkeypatch):
    passes = []
    monkeypatch.setattr(
        Budget, "calibrating_samples", lambda self, least, count: passes.append(count) or least
    )
    some = KnownRanges("", Calibration(Ranges("", 1, {}), "minmax", 0.0))
    for known in (None, some):
        until_calibration(monkeypatch, net, data, known=known)
    assert passes == [2, 1]


def test_a_start_is_measured_without_the_run_that_follows(net, data, clock, monkeypatch):
    ticks = itertools.count(0, 1000)
    budget = Budget(1e6, lambda: float(next(ticks)))
    until_calibration(monkeypatch, net, data, budget=budget)
    ran = budget.sample * budget.held_out
    assert ran > 0
    assert budget.start == pytest.approx(1000 - ran)


def test_a_graph_that_cannot_run_whole_is_timed_in_parts(net, data, clock, monkeypatch):
    judge = search.Evaluator.judge

    def fails_on_sums(self, graph, engine):
        if any("Sum" in node.attr("fused_ops", ()) for node in graph):
            raise CrashError("TensorFlow died")
        return judge(self, graph, engine)

    monkeypatch.setattr(search.Evaluator, "judge", fails_on_sums)
    found = quantize_calibrated(net, data, QuantizeOptions(min_sqnr=15))
    assert "linear" not in int8_of(found)
    assert int8_of(found), "the others are in 8 bits"


def test_without_the_private_ops_float_is_kept(net, data, monkeypatch):
    monkeypatch.setattr(target, "probe", lambda names: frozenset({"_QuantizedMatMul"}))
    found = quantize_calibrated(net, data)
    assert found.graph is net
    lacking = "_FusedQuantizedConv2D, _FusedQuantizedDepthwiseConv2D"
    assert found.reason == because("tensorflow-lacks-ops", ops=lacking)


@pytest.mark.sampled
def test_a_batch_larger_than_what_is_held_out_is_filled(net, data, clock, monkeypatch):
    fed = []
    times = target.layer_times

    def layer_times(*arguments, data, rounds, advance, decided):
        fed.append(data.count)
        return times(*arguments, data=data, rounds=rounds, advance=advance, decided=decided)

    monkeypatch.setattr(target, "layer_times", layer_times)
    quantize_calibrated(net, data, QuantizeOptions(min_sqnr=15, batch=32))
    assert fed == [32]


def test_an_interrupted_run_goes_on(net, data, clock, tmp_path, monkeypatch):
    state, ranked, interrupted = tmp_path / "out.pb.state", [], [True]
    rank, calibrations = layer_search.rank_alone, []
    calibrate = calibrated_graph.calibrate
    monkeypatch.setattr(
        calibrated_graph, "calibrate", lambda *a, **k: calibrations.append(1) or calibrate(*a, **k)
    )

    def noting(layers, alone, judge, **more):
        def judged(candidate):
            if interrupted and len(ranked) == 2:
                interrupted.clear()
                raise KeyboardInterrupt
            ranked.append(1)
            return judge(candidate)

        return rank(layers, alone, judged, **more)

    monkeypatch.setattr(layer_search, "rank_alone", noting)
    wanted = QuantizeOptions(min_sqnr=50)
    with pytest.raises(KeyboardInterrupt):
        quantize_calibrated(net, data, wanted, state=state)
    assert state.exists()
    assert len(calibrations) == 1, "no rewrite changes this net"
    quantize_calibrated(net, data, wanted, state=state)
    assert (len(ranked), len(calibrations)) == (4, 1), "nothing is measured again"
    assert not state.exists()


@pytest.mark.sampled
def test_a_state_of_other_data_is_not_taken(net, data, clock, tmp_path, monkeypatch):
    state = tmp_path / "state"

    def interrupt(*arguments, **more):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(layer_search, "rank_alone", interrupt)
        with pytest.raises(KeyboardInterrupt):
            quantize_calibrated(net, data, QuantizeOptions(min_sqnr=50), state=state)
    again = quantize_calibrated(
        net, {"x": data["x"] * 2}, QuantizeOptions(min_sqnr=50), state=state
    )
    assert next(e.range[1] for e in again.layers if e.layer == "dense") > 0
    fresh = quantize_calibrated(net, {"x": data["x"] * 2}, QuantizeOptions(min_sqnr=50))
    assert again.layers == fresh.layers


class Planted:
    """A mistake in the order of an 8-bit op's inputs."""

    def __init__(self, monkeypatch, swap) -> None:
        write = quantize_static._Rewriting.run

        def wrongly(rewriting) -> None:
            write(rewriting)
            graph = rewriting._graph
            for node in list(graph):
                if node.op in INT8_OPS and "Requantize" in node.attr("fused_ops"):
                    inputs = swap(node, list(node.inputs))
                    graph.replace(node, node.with_data_inputs(*inputs))

        monkeypatch.setattr(quantize_static._Rewriting, "run", wrongly)


def input_for_output(node, inputs):
    ends = len(node.attr("Tdevice_inputs"))
    return [*inputs[:-2], *inputs[ends : ends + 2]]


def output_before_summand(node, inputs):
    if "Sum" not in node.attr("fused_ops"):
        return inputs
    return [*inputs[:-4], *inputs[-2:], *inputs[-4:-2]]


@pytest.mark.parametrize("swap", [input_for_output, output_before_summand])
def test_a_wrong_order_of_ends_never_leaves(net, data, clock, monkeypatch, swap):
    Planted(monkeypatch, swap)
    found = quantize_calibrated(net, data)
    wrong = {"conv", "linear"} if swap is input_for_output else {"linear"}
    assert not wrong & int8_of(found)
    if not found.is_float:
        assert found.judgement.sqnr_db >= 24
    found = quantize_calibrated(net, data, QuantizeOptions(min_sqnr=-1000))
    assert found.is_float
    assert shows(found.reason, "int8-noise-held-out")


def run_everywhere(content: bytes, batches: list[np.ndarray], folder: str) -> list[np.ndarray]:
    """Return the answers of a plain session and of a loaded SavedModel, with Grappler on."""
    v1 = tf.compat.v1
    graph_def = v1.GraphDef.FromString(content)
    with tf.Graph().as_default(), v1.Session() as session:
        tf.import_graph_def(graph_def, name="")
        found = [session.run("out:0", {"x:0": x}) for x in batches]
        tensors = [{name: session.graph.get_tensor_by_name(f"{name}:0")} for name in ("x", "out")]
        v1.saved_model.simple_save(session, folder, *tensors)
    answer = tf.saved_model.load(folder).signatures["serving_default"]
    return found + [answer(x=tf.constant(x))["out"].numpy() for x in batches]


def test_the_result_runs_in_stock_tensorflow(net, data, clock, tmp_path):
    found = quantize_calibrated(net, data, QuantizeOptions(min_sqnr=15))
    content = b"".join(found.graph.serialized())
    batches = [data["x"][:1], data["x"][:3]]
    answers = call(f"{__name__}:run_everywhere", content, batches, str(tmp_path / "saved"))
    expected = run(found.graph, data)[0]
    for answer in answers:
        np.testing.assert_allclose(answer, expected[: len(answer)], rtol=1e-5, atol=1e-5)


CHANGES = [
    lambda x: {"x": x[:0]}, lambda x: {"y": x, "z": x}, lambda x: {"x": x[:, :4]},
    lambda x: {"x": np.full(x.shape, "a")},
    lambda x: {"x": np.where(x == x[9, 0, 0, 0], np.nan, x)},
    lambda x: {"x": np.where(x == x[63, 0, 0, 0], np.inf, x)},
]  # fmt: skip


@pytest.mark.golden("refusals/calibration")
def test_data_that_do_not_fit(net, data, tmp_path, clock):
    state, said = tmp_path / "state", []
    for change in CHANGES:
        wrong = change(data["x"])
        said += [
            refusal(quantize_calibrated, net, wrong, state=state),
            refusal(quantize_calibrated, net, data, evaluation=wrong, state=state),
        ]
        assert not state.exists()
    assert_golden(*said)


LABELS = [
    ("top1", np.zeros(63, int)), ("top1", np.full(64, 10)), ("top1", np.full(64, 0.5)),
    ("top1", None), ("best", np.zeros(64, int)), ("no_such_module:f", np.zeros(64, int)),
    ("math:no_such", np.zeros(64, int)), ("operator:truediv", np.zeros(64, int)),
    ("builtins:print", np.zeros(64, int)),
]  # fmt: skip


@pytest.mark.golden("refusals/evaluation")
def test_metrics_and_labels(net, data, tmp_path, clock):
    state, said = tmp_path / "state", []
    for metric, labels in LABELS:
        evaluation = data | ({} if labels is None else {"labels": labels})
        options = QuantizeOptions(metric=metric)
        said.append(refusal(
            quantize_calibrated, net, data, options, evaluation=evaluation, state=state
        ))  # fmt: skip
        assert not state.exists(), "it is said before any time is spent"
    assert_golden(*(re.sub(r" \(/[^)]*\)", "", each) for each in said))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cnv", says("inside-with-hint", reason=Containing("'cnv'"))),
        ("b", says("inside-with-hint", reason=Containing("'b'"))),
    ],
)
def test_layers_that_are_none(net, data, name, said, clock):
    with pytest.raises(GraphError, match=said):
        quantize_calibrated(net, data, QuantizeOptions(keep_float=(name,)))


def test_a_graph_in_8_bits(net, data, clock):
    found = quantize_calibrated(net, data, QuantizeOptions(min_sqnr=15))
    for graph in (found.graph, deploykit.transform(net, "quantize_weights(minimum_size=1)")):
        with raises(GraphError, "quantized-already"):
            quantize_calibrated(graph, data)


def test_activations_that_are_not_finite(data, clock):
    def body():
        x = tf.compat.v1.placeholder(tf.float32, [None, 8, 8, 3], name="x")
        y = tf.math.log(x, name="log")
        tf.nn.conv2d(y, random(3, 3, 3, 4), 1, "SAME", name="out")

    with pytest.raises(GraphError, match=says("node-gives-nan", node="log", type="Log")):
        quantize_calibrated(build(body, ["x"], ["out"]), {"x": data["x"] - 0.5})


@pytest.mark.sampled
def test_idle_tensors_and_layers_of_zeros(data, clock):
    with building(["x"], ["out"]) as net:
        x = tf.compat.v1.placeholder(tf.float32, [None, 8, 8, 3], name="x")
        y = tf.nn.relu(tf.nn.conv2d(x, random(3, 3, 3, 4), 1, "SAME", name="conv"))
        z = tf.nn.conv2d(y, np.zeros((1, 1, 4, 4), np.float32), 1, "SAME", name="zeros")
        z = tf.nn.relu(tf.nn.bias_add(z, np.float32([1, 0, 0, 0])))
        idle = tf.nn.relu(tf.nn.conv2d(y, -random(1, 1, 4, 4, low=0), 1, "SAME", name="neg"))
        idle = tf.nn.conv2d(idle, random(1, 1, 4, 4), 1, "SAME", name="behind")
        tf.add(tf.add(y, z), idle, name="out")
    graph = deploykit.optimize(net)
    found = quantize_calibrated(graph, data, QuantizeOptions(min_sqnr=15))
    assert not found.is_float
    assert {"conv", "zeros"} <= int8_of(found)
    assert shows(why(found, "behind"), "never-active")
    assert any(shows(note, "never-active-on-samples") for note in found.notes)


def test_nothing_to_quantize(clock):
    nodes = [
        Node("text", "Placeholder").with_attrs(dtype=DType("string"), shape=(-1,)),
        Node("out", "StringLower", ("text",)),
    ]
    graph = Graph(nodes, ["text"], ["out"])
    found = quantize_calibrated(graph, {"text": np.array([b"A"] * 9)})
    assert found.graph is graph
    assert shows(found.reason, "empty-quantization")

    with building(["x"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.int32, [None, 4], name="x")
        tf.matmul(x, np.ones((4, 4), np.int32), name="out")
    assert quantize_calibrated(graph, {"x": np.ones((9, 4), np.int32)}).is_float


def test_layers_in_branches_stay_float(data, clock):
    with building(["x"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 8, 8, 3], name="x")
        y = tf.nn.relu(tf.nn.conv2d(x, random(3, 3, 3, 8), 1, "SAME", name="conv"))
        y = tf.cond(
            tf.reduce_mean(x) > 0.5,
            lambda: tf.nn.conv2d(y, random(1, 1, 8, 8), 1, "SAME"),
            lambda: y,
        )
        tf.identity(y, name="out")
    found = quantize_calibrated(graph, data, QuantizeOptions(min_sqnr=15))
    assert int8_of(found) == {"conv"}
    assert any(shows(note, "layers-in-loops-skipped") for note in found.notes)


@pytest.mark.sampled
def test_in_python(net, data, clock):
    graph = deploykit.quantize(residual_net(), calibration=data, min_sqnr=15, keep_float=["dense"])
    assert "_FusedQuantizedConv2D" in ops(graph)
    assert "_QuantizedMatMul" not in ops(graph)
    clock.gain = 0.5
    with raises(NotQuantizedError, "float32-is-right", reason=Containing("0.50x")) as raised:
        deploykit.quantize(residual_net(), calibration=data)
    assert raised.value.report.document()["precision"] == "float32"
    graph = deploykit.quantize(residual_net(), calibration=data, allow_float=True)
    assert not INT8_OPS & set(ops(graph))
    assert graph.report.precision == "float32"
