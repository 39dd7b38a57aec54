"""A graph in 8 bits for another engine: right there, and faster there, or not taken."""

import math

import numpy as np
import pytest

import deploykit
from deploykit.api import quantize as command
from deploykit.benchmarking.run_config import RunConfig
from deploykit.importers.graph_files import load_graph
from deploykit.importers.metadata_file import about
from deploykit.quantization import accuracy, candidates, target
from deploykit.quantization.accuracy import Evaluator
from deploykit.quantization.calibrated_graph import prepare
from deploykit.quantization.layer_search import Calibrated
from deploykit.quantization.quantize_options import QuantizeOptions
from deploykit.quantization.search import quantize_calibrated
from deploykit.quantization.target import IN_OPENVINO
from deploykit.quantization.timing.openvino_times import openvino_times
from deploykit.quantization.timing.speed import INT8, PLAIN, Standing, gain
from deploykit.rendering.formatters.quantization import lines
from deploykit.transforms.common.errors import GraphError, VerificationError
from deploykit.transforms.engines import engines
from deploykit.transforms.engines.engines import EngineUse
from deploykit.transforms.int8.plan import plan
from deploykit.transforms.int8.ranges import load_ranges
from deploykit.transforms.int8.stored_codes import holds_codes
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.runtime.child_process import call
from deploykit.verification.engine_check import EngineCheck
from tests.deploykit.benchmarking.made_up_results import measurement
from tests.deploykit.quantization.conftest import InProcess
from tests.deploykit.quantization.test_search import LAYERS, Clock, int8_of, residual_net, why
from tests.support import Containing, because, build, ops, raises, random, says, showing, shows, tf

pytest.importorskip("openvino")
OTHERWISE = "OpenVINO differs from TensorFlow here"
WANTED = QuantizeOptions(min_sqnr=20, engine="openvino")


def image_data() -> dict[str, np.ndarray]:
    return {"x": random(64, 8, 8, 3, low=0)}


def made(body, outputs=("out",)) -> Graph:
    return deploykit.optimize(build(body, ["x"], [*outputs]))


def plain_net() -> Graph:
    def body():
        y = tf.compat.v1.placeholder(tf.float32, [None, 8, 8, 3], name="x")
        for number, (size, channels) in enumerate(((3, 16), (16, 24), (24, 16))):
            weights = random(3, 3, size, channels, seed=number)
            y = tf.nn.conv2d(y, weights, 1, "SAME", name=f"c{number}")
            y = tf.nn.relu6(tf.nn.bias_add(y, random(channels, seed=number)))
        tf.reduce_mean(y, [1, 2], name="out")

    return made(body)


def dense_net() -> Graph:
    def body():
        y = tf.compat.v1.placeholder(tf.float32, [None, 20], name="x")
        for number, (size, channels) in enumerate(((20, 48), (48, 32))):
            y = tf.matmul(y, random(size, channels, seed=number), name=f"m{number}")
            y = tf.nn.relu(tf.nn.bias_add(y, random(channels, seed=number)))
        tf.matmul(y, random(32, 5, seed=3), name="out")

    return made(body)


def attending_net() -> Graph:
    """Return a block of a transformer: products with constants, with each other, a layer norm."""

    def body():
        x = tf.compat.v1.placeholder(tf.float32, [None, 6, 16], name="x")
        flat = tf.reshape(x, [-1, 16])
        q, k, v = (
            tf.reshape(tf.matmul(flat, random(16, 16, seed=n) / 4, name=f"p{n}"), [-1, 6, 16])
            for n in range(3)
        )
        weights = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / 4.0)
        y = tf.reshape(x + tf.matmul(weights, v), [-1, 16])
        mean, variance = tf.nn.moments(y, [1], keepdims=True)
        y = (y - mean) * tf.math.rsqrt(variance + 1e-3)
        y = tf.nn.relu(tf.nn.bias_add(tf.matmul(y, random(16, 32, seed=4), name="up"), random(32)))
        tf.reshape(tf.matmul(y, random(32, 16, seed=5), name="down"), [-1, 6, 16], name="out")

    return made(body)


def pooling_net() -> Graph:
    """Return what OpenVINO is known to compute wrong: a maximum before an int8 product."""

    def body():
        x = tf.compat.v1.placeholder(tf.float32, [None, 8, 8, 3], name="x")
        y = tf.nn.conv2d(x, random(3, 3, 3, 16), 1, "SAME", name="conv")
        y = tf.reduce_max(tf.tanh(y), [1, 2], name="most")
        y = tf.nn.relu(tf.nn.bias_add(tf.matmul(y, random(16, 24), name="first"), random(24)))
        tf.matmul(y, random(24, 6, seed=1), name="out")

    return made(body)


def two_headed_net() -> Graph:
    def body():
        x = tf.compat.v1.placeholder(tf.float32, [None, 8, 8, 3], name="x")
        y = tf.nn.relu(tf.nn.conv2d(x, random(3, 3, 3, 16), 2, "SAME", name="conv"))
        y = tf.reduce_mean(y, [1, 2])
        tf.nn.softmax(tf.matmul(y, random(16, 7), name="logits"), name="classes")
        tf.tanh(tf.matmul(y, random(16, 4, seed=1), name="boxes"), name="places")

    return made(body, ("classes", "places"))


NETS = {
    "plain": (plain_net, (8, 8, 3)),
    "residual": (lambda: deploykit.optimize(residual_net()), (8, 8, 3)),
    "dense": (dense_net, (20,)),
    "attending": (attending_net, (6, 16)),
    "pooling": (pooling_net, (8, 8, 3)),
    "two heads": (two_headed_net, (8, 8, 3)),
}


QUICK = ("attending", "two heads")


@pytest.fixture(scope="module")
def net() -> Graph:
    return deploykit.optimize(residual_net())


@pytest.fixture
def data() -> dict[str, np.ndarray]:
    return image_data()


class Racing(Clock):
    """A clock of made-up graphs' milliseconds, engine by engine."""

    def __init__(self) -> None:
        super().__init__()
        self.ms = {
            "float": 20.0,
            "int8": 10.0,
            "float in OpenVINO": 8.0,
            "int8 in OpenVINO": 4.0,
        }

    def faster(self, graph, entrants, *, data, depth, advance):
        found = []
        for each in entrants:
            names = [name for name in each.graphs if name in (INT8, PLAIN)]
            self.asked.append(tuple(map(each.full, names)))
            measured = tuple(
                measurement(name, self.ms[each.full(name)], seed=len(each.full(name)))
                for name in names
            )
            found.append(Standing(gain(measured) if INT8 in names else None, measured))
        return found


@pytest.fixture
def clock(monkeypatch, in_process) -> Racing:
    found = Racing()
    for name in ("layer_times", "openvino_times"):
        monkeypatch.setattr(target, name, found.layer_times)
    monkeypatch.setattr(candidates, "faster", found.faster)
    monkeypatch.setattr(target, "probe", frozenset)
    monkeypatch.setattr(target, "compared_in", lambda *arguments, **more: EngineCheck())
    return found


def answers(graphs: list[tuple[str, bytes]], outputs: list[str], feeds: dict[str, np.ndarray]):
    """Return what graphs give, each in its engine; this is for a child process."""
    from deploykit.transforms.engines.engine_session import session_in

    return [session_in(engine, content).run(outputs, feeds) for engine, content in graphs]


def sqnr(expected: np.ndarray, found: np.ndarray) -> float:
    noise = np.square(np.float64(expected) - found).sum()
    return math.inf if not noise else 10 * math.log10(np.square(np.float64(expected)).sum() / noise)


@pytest.mark.parametrize(
    "kind", [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in NETS]
)
def test_what_is_found_is_right_in_the_engine(kind, clock):
    build_net, shape = NETS[kind]
    graph = build_net()
    found = quantize_calibrated(graph, {"x": random(64, *shape, low=0)}, WANTED)
    assert int8_of(found), "some layers are in 8 bits"
    assert holds_codes(found.graph)
    assert found.judgement.certain_db >= 20
    fresh = {"x": random(40, *shape, low=0, seed=7)}
    floats, codes = (b"".join(each.serialized()) for each in (graph, found.graph))
    run = [("tensorflow", floats), ("tensorflow", codes), ("openvino", codes)]
    floats, emulated, computed = call(f"{__name__}:answers", run, list(graph.outputs), fresh)
    for expected, one, other in zip(floats, emulated, computed, strict=True):
        assert sqnr(one, other) >= 20, "TensorFlow computes the codes likewise"
        assert sqnr(expected, other) >= 17, "new samples keep nearly what those held out kept"


@pytest.mark.sampled
def test_a_known_defect_of_the_engine_keeps_its_layer_float(clock):
    found = quantize_calibrated(pooling_net(), image_data(), WANTED)
    assert why(found, "first") in (OTHERWISE, ""), "a later OpenVINO may do it right"
    if why(found, "first"):
        assert int8_of(found) == {"conv", "out"}


class Wrong:
    """An engine that computes a layer in 8 bits wrong, by a little."""

    def __init__(self, monkeypatch, layers: tuple[str, ...], factor: float) -> None:
        session_in = accuracy.session_in

        def wrongly(engine, graph_def):
            session = session_in(engine, graph_def)
            is_hit = any(f"{each}/weights/codes".encode() in graph_def for each in layers)
            return Times(session, factor) if engine == "openvino" and is_hit else session

        monkeypatch.setattr(accuracy, "session_in", wrongly)


class Times:
    def __init__(self, session, factor: float) -> None:
        self._session, self._factor = session, factor

    def run(self, fetches, feeds):
        return [self._factor * each for each in self._session.run(fetches, feeds)]


def test_a_layer_that_departs_from_tensorflow_stays_float(net, data, clock, monkeypatch):
    Wrong(monkeypatch, ("linear",), 1.01)  # 40 dB: no bar of noise would see it
    found = quantize_calibrated(net, data, WANTED)
    assert int8_of(found) == set(LAYERS) - {"linear"}
    assert why(found, "linear") == OTHERWISE
    with monkeypatch.context() as patch:
        patch.setattr(Evaluator, "departs", lambda *arguments: False)
        assert int8_of(quantize_calibrated(net, data, WANTED)) == set(LAYERS)


@pytest.mark.slow
def test_an_engine_that_computes_all_layers_wrong_gets_the_float_graph(
    net, data, clock, monkeypatch
):
    Wrong(monkeypatch, LAYERS, 1.5)
    found = quantize_calibrated(net, data, WANTED)
    assert (found.is_float, found.graph, found.use.engine) == (True, net, "openvino")
    assert found.reason == because("int8-differs", engine="OpenVINO")


@pytest.mark.sampled
@pytest.mark.parametrize(
    "check",
    [
        EngineCheck(refused=str(GraphError("openvino-unknown-op", op="LookupTable"))),
        EngineCheck(departs="output 'out' at batch 3: 1 of 9 differ"),
    ],
)
def test_a_float_graph_that_the_engine_does_not_compute(net, data, clock, monkeypatch, check):
    monkeypatch.setattr(target, "compared_in", lambda *arguments, **more: check)
    with raises(GraphError, "engine-not-for-graph", engine="OpenVINO", reason=check.why):
        quantize_calibrated(net, data, WANTED)
    found = quantize_calibrated(net, data, QuantizeOptions(min_sqnr=20, engine="auto"))
    assert found.use is None
    assert found.engine_reason == because("runs-in-tensorflow", why=check.why)
    assert set(clock.asked[-1]) == {PLAIN, INT8}, "TensorFlow's graphs alone are compared"


def test_strings_are_refused_before_anything_runs(data):
    def body():
        x = tf.compat.v1.placeholder(tf.float32, [None, 8, 8, 3], name="x")
        y = tf.reduce_mean(tf.nn.conv2d(x, random(3, 3, 3, 4), 1, "SAME", name="conv"), [1, 2])
        tf.as_string(tf.identity(y, name="out"), name="said")

    graph = made(body, ("out", "said"))
    with raises(GraphError, "engine-not-for-graph", reason=Containing("'said' (AsString")):
        quantize_calibrated(graph, data, WANTED)


@pytest.mark.parametrize(
    ("ms", "engine", "said"),
    [
        (4.0, "openvino", showing("engine-best", engine="OpenVINO", ratio=Containing("2.50x"))),
        (10.0, "tensorflow", showing("engine-best", engine="OpenVINO", ratio=Containing("1.00x"))),
        (30.0, "tensorflow", showing("engine-best", engine="OpenVINO", ratio=Containing("0.33x"))),
    ],
)
def test_auto_takes_the_engine_that_is_faster(net, data, clock, ms, engine, said):
    clock.ms |= {"int8 in OpenVINO": ms, "float in OpenVINO": 3 * ms}
    found = quantize_calibrated(net, data, QuantizeOptions(min_sqnr=20, engine="auto"))
    document = found.document()
    assert (document["engine"], holds_codes(found.graph)) == (engine, engine == "openvino")
    assert found.engine_reason == said
    assert document["engine_speed"]["verdict"] == found.engine_verdict.verdict
    assert found.engine_reason in lines(found)
    asked = [each for each in clock.asked if each != ("times",)]
    assert asked == [("float in OpenVINO", "int8 in OpenVINO"), ("float", "int8")]


def test_auto_takes_the_only_engine_with_int8_unless_it_is_slower(net, data, clock):
    clock.ms |= {"int8": 30.0, "float": 10.0, "int8 in OpenVINO": 10.0}
    clock.ms |= {"float in OpenVINO": 30.0}
    how = QuantizeOptions(min_sqnr=20, engine="auto")
    found = quantize_calibrated(net, data, how)
    assert (found.precision, found.use.engine) == ("int8", "openvino")
    alone = because("only-engine", engine="OpenVINO")
    assert shows(found.engine_reason, "engine-best", engine="OpenVINO", who=alone)
    clock.ms["int8 in OpenVINO"] = 20.0
    found = quantize_calibrated(net, data, how)
    assert (found.precision, found.use) == ("float32", None)


@pytest.mark.slow
@pytest.mark.parametrize(("bar", "ranked"), [(20, 0), (50, len(LAYERS))])
def test_auto_ranks_once_for_both_and_only_where_not_all_layers_hold(
    net, data, clock, monkeypatch, bar, ranked
):
    alone = []
    build = Calibrated.alone
    monkeypatch.setattr(
        Calibrated, "alone",
        lambda self, task, target, layer: alone.append(target.engine)
        or build(self, task, target, layer),
    )  # fmt: skip
    quantize_calibrated(net, data, QuantizeOptions(min_sqnr=bar, engine="auto"))
    assert alone == ["openvino"] * ranked


def test_the_best_of_an_engine_may_be_in_float(net, data, clock):
    clock.ms |= {"int8 in OpenVINO": 9.0, "float in OpenVINO": 5.0}
    found = quantize_calibrated(net, data, QuantizeOptions(min_sqnr=20, engine="auto"))
    assert (found.is_float, found.use.engine) == (True, "openvino")
    ratio = Containing("2.00x")
    assert shows(found.engine_reason, "engine-best", engine="OpenVINO", ratio=ratio)


def test_an_engine_that_is_not_there(net, data, clock, monkeypatch):
    def missing(engine):
        return "OpenVINO is not installed (pip ...)" if engine == "openvino" else ""

    for module in (engines, target):
        monkeypatch.setattr(module, "lacking", missing)
    with raises(GraphError, "engine-unavailable", engine="openvino"):
        deploykit.quantize("there is no such file", calibration=data, engine="openvino")
    found = deploykit.quantize(net, calibration=data, engine="auto", min_sqnr=20).report
    assert found.use is None
    assert found.engine_reason == Containing("OpenVINO", "(pip ...)")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"engine": "openvino"}, "--engine needs --calibration DATA"),
        ({"engine": "auto"}, "--engine needs --calibration DATA"),
        (
            {"engine": "abacus"},
            says("not-one-of", known=["auto", "tensorflow", "openvino"], got="abacus"),
        ),
    ],
)
def test_options_that_do_nothing_or_are_none(net, options, said):
    with pytest.raises(GraphError, match=said):
        deploykit.quantize(net, **options)


@pytest.mark.sampled
def test_what_is_written_says_its_engine(net, data, clock, tmp_path):
    path = tmp_path / "out.pb"
    graph = deploykit.quantize(net, calibration=data, engine="openvino", min_sqnr=20, output=path)
    use = about(load_graph(path)).engine
    assert use == about(graph).engine == graph.report.use
    assert use == EngineUse("openvino", use.version, "f32", {})
    assert graph.report.verification.passed, "TensorFlow ran the file"
    with raises(GraphError, "quantized-already"):
        deploykit.quantize(path, calibration=data, engine="openvino")
    changed = deploykit.transform(path, "rename_node(old_node_name=x, new_node_name=y)")
    assert about(changed).engine is None


def test_a_result_that_departs_is_not_written(net, data, clock, tmp_path, monkeypatch):
    asked = []

    def compared_in(graph, how, *, engine, data, float_graph):
        asked.append((holds_codes(graph), engine, float_graph is not None))
        return EngineCheck(departs="output 'out' at batch 1: expected 1, got 2")

    monkeypatch.setattr(command, "compared_in", compared_in)
    with raises(VerificationError, "engine-outputs-differ", reason=Containing("'out'")):
        deploykit.quantize(
            net, calibration=data, engine="openvino", min_sqnr=20, output=tmp_path / "out.pb"
        )
    assert asked == [(True, "openvino", True)]
    assert not (tmp_path / "out.pb").exists()


@pytest.mark.sampled
def test_the_noise_of_one_engine_is_not_taken_for_that_of_another(
    net, data, clock, tmp_path, monkeypatch
):
    state = tmp_path / "state"

    def interrupt(*arguments, **more):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(candidates, "chosen_layers", interrupt)
        with pytest.raises(KeyboardInterrupt):
            quantize_calibrated(net, data, QuantizeOptions(min_sqnr=20), state=state)
    judged = []
    judge = Evaluator.judge
    monkeypatch.setattr(
        Evaluator, "judge", lambda self, *more: judged.append(more[-1]) or judge(self, *more)
    )
    monkeypatch.setattr(accuracy, "Worker", InProcess)
    quantize_calibrated(net, data, WANTED, state=state)
    assert judged == ["openvino"], "all layers hold, so none is ranked"


def test_times_of_layers_in_the_engine(net, data, tmp_path, in_process):
    ranges = str(tmp_path / "ranges.json")
    net, _ = prepare(net, [data], ranges)
    planned = plan(net, load_ranges(ranges))
    codes = IN_OPENVINO.built(net, ranges, "auto", ())
    settings = RunConfig(threads=(1, 1), engine="openvino")
    found = openvino_times(net, codes, planned, settings, data=data, rounds=2)
    for times in (found.least, found.usual):
        assert times.parts.keys() == {*planned.chains, *planned.passing}
        assert all(times.float_ns(layer) > 0 < times.parts[layer].int8 for layer in LAYERS)
    assert set(ops(codes)) >= {"FakeQuantWithMinMaxVars", "Conv2D"}
