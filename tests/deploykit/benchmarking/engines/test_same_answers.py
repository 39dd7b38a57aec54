"""An engine whose answers are not TensorFlow's is not timed, and it is said which answer is not."""

import pytest

from deploykit.benchmarking.engines.engine_choice import check_answers
from deploykit.benchmarking.inputs import batches
from deploykit.benchmarking.measurement import Job
from deploykit.benchmarking.run_config import RunConfig
from deploykit.transforms.common.errors import LoadError, VerificationError
from deploykit.transforms.runtime.child_process import Worker
from deploykit.verification import engine_check
from tests.support import Containing, because, build, building, raises, random, showing, shows, tf

WRONG = "tests.deploykit.benchmarking.engines.wrong:{}"


def net():
    x = tf.compat.v1.placeholder(tf.float32, [None, 8], name="x")
    hidden = tf.nn.relu(tf.matmul(x, tf.constant(random(8, 8))), name="hidden")
    tf.matmul(hidden, tf.constant(random(8, 5, seed=1)), name="out")


def choosing():
    """The k highest of values that a rounding puts in another order."""
    x = tf.compat.v1.placeholder(tf.float32, [None, 8], name="x")
    scores = tf.matmul(x, tf.constant(random(8, 40) * 1e-3) + 5.0, name="scores")
    found = tf.math.top_k(scores, 6, name="best")
    tf.identity(found.values, name="values")
    tf.identity(found.indices, name="indices")


def jobs(graph, *settings, size=3):
    fed = {each.batch: batches(graph, each.batch or size) for each in settings}
    return [Job("", graph.inputs, graph.outputs, fed[each.batch], each) for each in settings]


OPENVINO = RunConfig(engine="openvino")


@pytest.fixture(scope="module")
def graph():
    return build(net, ["x"], ["hidden", "out"])


@pytest.fixture
def started(monkeypatch):
    """For what OpenVINO was started."""
    found, worker = [], Worker

    def counted(kind, graph_def, *more, **forced):
        found.extend(more)
        return worker(kind, graph_def, *more, **forced)

    monkeypatch.setattr(engine_check, "Worker", counted)
    return found


@pytest.fixture
def instead(monkeypatch):
    """Let another one stand for OpenVINO."""

    def take(kind):
        def put(asked, *arguments, **forced):
            is_openvino = asked.endswith("OpenVinoSession")
            return Worker(WRONG.format(kind) if is_openvino else asked, *arguments, **forced)

        monkeypatch.setattr(engine_check, "Worker", put)

    return take


@pytest.mark.sampled
def test_right_answers_are_passed_over_in_silence(graph, started, caplog):
    several = ({}, {"threads": (1, 1)}, {"batch": 8}, {"precision": "bf16"})
    every = jobs(graph, RunConfig(), *(RunConfig(engine="openvino", **each) for each in several))
    check_answers(every, graph, "net.pb")
    assert [each.precision for each in started] == ["f32", "f32", "bf16"]
    assert caplog.messages == []


def test_tensorflow_alone_is_compared_with_nothing(graph, started):
    check_answers(jobs(graph, RunConfig(), RunConfig(batch=8)), graph, "net.pb")
    assert started == []


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("OfAnotherType", showing("type-got", expected="float32", got="float64")),
        ("OfAnotherShape", showing("output-departs", output="out")),
        ("OfAnotherValue", showing("output-error", error="0.01", allowed=Containing("0.0005"))),
        ("WithoutASample", showing("output-error", output="out")),
    ],
)
def test_a_wrong_answer_is_named(graph, instead, kind, why):
    instead(kind)
    with raises(VerificationError, "engine-differs-untimed", reason=why) as found:
        check_answers(jobs(graph, OPENVINO), graph, "net.pb")
    assert shows(found.value, "engine-differs-untimed", engine="OpenVINO", source="net.pb")


def test_an_engine_that_dies_refuses_the_graph(graph, instead):
    instead("Dying")
    with raises(LoadError, "engine-refuses", reason=showing("child-died", runs="OpenVINO")):
        check_answers(jobs(graph, OPENVINO), graph, "net.pb")


def test_a_refused_graph_is_told_by_its_ops():
    with building(["x"], ["y"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None], name="x")
        tf.strings.length(tf.strings.as_string(x), name="y")
    with raises(LoadError, "engine-refuses", source="net.pb") as caught:
        check_answers(jobs(graph, OPENVINO), graph, "net.pb")
    assert shows(caught.value.fields["reason"], "openvino-unknown-op", op="AsString")


def test_what_follows_a_choice_is_compared_in_front_of_it_and_behind(instead):
    graph = build(choosing, ["x"], ["values", "indices"])
    check_answers(jobs(graph, OPENVINO), graph, "net.pb")
    instead("ChoosingOtherwise")
    check_answers(jobs(graph, OPENVINO), graph, "net.pb")
    instead("ChoosingWrongly")
    with raises(
        VerificationError,
        "engine-differs-untimed",
        engine="OpenVINO",
        reason=Containing("'indices'"),
        source="net.pb",
    ):
        check_answers(jobs(graph, OPENVINO), graph, "net.pb")


def test_answers_that_say_nothing_are_told(caplog):
    with building(["x"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 4], name="x")
        tf.nn.relu(-tf.abs(x) - 1.0, name="out")
    check_answers(jobs(graph, OPENVINO), graph, "net.pb")
    (said,) = caplog.messages
    reason = because("engine-constant")
    assert shows(said, "engine-outputs-not-compared", engine="OpenVINO", reason=reason)
