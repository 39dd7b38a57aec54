"""A model runs behind each style: whole epochs, training steps, waits, idle queues."""

import pytest

from deploykit.data.input_speed.input_benchmark import refuse_own_queues
from deploykit.data.input_speed.input_runner import PHASES, InputJob, InputRunner
from deploykit.data.pipeline import STYLES, pipeline_for
from deploykit.data.queues import Queue
from deploykit.transforms.common.errors import GraphError
from tests.deploykit.benchmarking.nets import hanging, written
from tests.deploykit.data import made_up
from tests.deploykit.data.made_up import COUNT, pipeline
from tests.support import build, raises, tf

DONE = 1e9  # seconds: until the epochs are over


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    return made_up.write_csv(tmp_path_factory.mktemp("data") / "csv")


def summing():
    """Keep sums of all that was seen, as a training step would."""
    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [None, made_up.WIDTH], name="x")
    number = v1.placeholder(tf.float32, [None], name="id")
    seen = v1.get_variable("seen", [], initializer=v1.zeros_initializer(), use_resource=True)
    tf.identity(seen.assign_add(tf.reduce_sum(number)), name="total")
    v1.train.GradientDescentOptimizer(0.1).minimize(
        tf.reduce_mean(x) * v1.get_variable("w", [], use_resource=True), name="train"
    )
    tf.group(v1.global_variables_initializer(), name="init")
    tf.negative(x, name="out")


@pytest.fixture(scope="module")
def graph():
    return build(summing, ["x", "id"], ["out"])


@pytest.fixture
def runner(graph, lines, tmp_path):
    made = []

    def make(style, model=graph, data=lines, **job):
        path = None if model is None else str(written(model, tmp_path / "net.pb"))
        piped = pipeline_for(data, model, batch=4, epochs=job.pop("epochs", 1), threads=1)
        made.append(InputRunner(InputJob(style, piped, path, **job)))
        return made[-1]

    yield make
    for each in made:
        each.stop()
        each.session.close()


@pytest.mark.sampled
@pytest.mark.parametrize("style", STYLES)
def test_the_model_sees_each_record_once(runner, style):
    found = runner(style, fetches=("total", "train"), init=("init",))
    first = found._ready[found._names.index("id")]
    assert first.tolist() == [0, 1, 2, 3]
    stretch = found.run("both", DONE)
    assert (stretch.items, stretch.steps) == (COUNT - 4, 5)
    seen = found.session.graph.get_operation_by_name("seen").outputs[0]
    value = tf.raw_ops.ReadVariableOp
    with found.session.graph.as_default():
        total = found.session.run(value(resource=seen, dtype=tf.float32))
    assert total == sum(range(4, COUNT))
    assert found.run("both", DONE).steps == 0  # the epoch is over


@pytest.mark.parametrize("style", STYLES)
def test_computing_alone_takes_nothing_from_the_input(runner, style):
    found = runner(style, fetches=("total",), init=("init",))
    assert found.run("compute", DONE, 9).items == 36
    assert found.run("both", DONE).items == COUNT - 4


@pytest.mark.sampled
@pytest.mark.parametrize("style", STYLES)
def test_phases(runner, style):
    found = runner(style, fetches=("out",), init=("init",), epochs=None)
    for phase in PHASES:
        stretch = found.run(phase, DONE, 9)
        assert (stretch.items, stretch.steps) == (36, 9)
        assert stretch.seconds > 0
        assert stretch.cpu_seconds >= 0


@pytest.mark.sampled
@pytest.mark.parametrize("style", STYLES)
def test_a_wait_in_place_of_a_model(lines, style):
    found = InputRunner(InputJob(style, pipeline(lines, epochs=None), wait_ms=30))
    try:
        stretch = found.run("both", DONE, 3)
        assert (stretch.items, stretch.steps) == (12, 3)
        assert stretch.seconds >= 0.09  # a sleep is never shorter
        assert found.run("input", DONE, 3).items == 12
    finally:
        found.stop()


@pytest.mark.sampled
@pytest.mark.parametrize("style", STYLES)
def test_a_wait_leaves_the_model_out(runner, style):
    """The model would fail without its init op."""
    assert runner(style, fetches=("total",), wait_ms=1).run("both", DONE, 2).steps == 2
    with pytest.raises(GraphError):
        runner(style, fetches=("total",)).run("both", DONE, 2)


def test_a_queue_without_a_runner_reports(lines, monkeypatch):
    monkeypatch.setattr("deploykit.data.queues.PATIENCE", 0.5)
    for data in (lines,):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            made = Queue(pipeline(data))
            with raises(GraphError, "queue-gave-nothing"):
                made.take(session)
            made.start(session)
            assert len(made.take(session)["id"]) == 4
            made.stop()


def test_a_queue_stops_in_the_middle_of_an_epoch(lines, tmp_path):
    for data in (lines, made_up.write_arrays(tmp_path)):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            made = Queue(pipeline(data, epochs=None))
            made.start(session)
            made.take(session)
            made.stop()
            assert not [each for each in made._threads if each.is_alive()]


def test_a_queue_of_the_graphs_own_is_refused_before_it_hangs():
    graph = hanging()
    with raises(GraphError, "queue-not-fed", node="taken"):
        refuse_own_queues(graph, graph.outputs)
    graph.inputs = ("x", "taken")
    refuse_own_queues(graph, graph.outputs)


@pytest.mark.parametrize("style", STYLES)
def test_a_batch_that_the_data_cannot_fill(lines, style):
    with raises(GraphError, "no-whole-batch", batch=50):
        InputRunner(InputJob(style, pipeline(lines, batch=50, whole=True), wait_ms=1))
