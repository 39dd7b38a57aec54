"""Noise, agreement and accuracy are those of NumPy; labels and metrics that fail are said."""

import math
from dataclasses import replace

import numpy as np
import pytest

from deploykit.quantization import accuracy
from deploykit.quantization.accuracy import Evaluator
from deploykit.quantization.metrics import Score, metric_named
from deploykit.quantization.quantize_options import below_in_group
from deploykit.transforms.common.documents import document
from deploykit.transforms.common.errors import CrashError, GraphError
from deploykit.verification.confidence import GroupCloseness, wilson
from deploykit.verification.samples import Dataset
from tests.deploykit.quantization.conftest import classifier, logits
from tests.deploykit.verification.test_choices import KINDS, detector
from tests.support import (
    assert_golden,
    build,
    building,
    raises,
    random,
    refusal,
    says,
    showing,
    shows,
    tf,
)

X = random(21, 16, low=0)
DELTA = np.zeros(10, np.float32)
DELTA[:2] = 0.6, -0.4


def judged(graph, other, x=X, labels=None, metric="top1", batch=None):
    data = {"x": x} if labels is None else {"x": x, "labels": labels}
    samples = Dataset.of(graph, data)
    feeds = samples.feeds(batch)
    with Evaluator(graph, feeds, samples.labels_of(feeds), metric) as judge:
        return judge.judge(other)


def db(signal, noise):
    return 10 * math.log10(np.square(signal).sum() / np.square(noise).sum())


@pytest.mark.sampled
@pytest.mark.parametrize("batch", [None, 21, 5])
@pytest.mark.parametrize("softmax", [True, False])
def test_noise_before_the_softmax_and_agreement(in_process, batch, softmax):
    found = judged(classifier(softmax=softmax), classifier(DELTA, softmax), batch=batch)
    expected = logits(X)
    assert found.sqnr_db == pytest.approx(db(expected, np.broadcast_to(DELTA, (21, 10))), abs=1e-3)
    same = np.mean(expected.argmax(1) == (expected + DELTA).argmax(1))
    assert 0 < same < 1
    assert found.agreement == same
    assert (found.samples, found.metric, found.before, found.drop) == (21, "", None, None)


def test_noise_behind_the_softmax_is_caught(in_process, monkeypatch):
    """What a judge of the Softmax itself finds is another number."""
    right = judged(classifier(), classifier(DELTA)).sqnr_db
    monkeypatch.setattr(
        "deploykit.quantization.accuracy.compared_outputs", lambda graph, _: {*graph.outputs}
    )
    assert abs(judged(classifier(), classifier(DELTA)).sqnr_db - right) > 0.5


def test_a_softmax_that_only_one_graph_has_is_judged_itself(in_process):
    assert judged(classifier(), classifier()).sqnr_db == math.inf
    found = judged(classifier(), classifier(softmax=False))
    assert found.sqnr_db < 5


def test_the_noisiest_output_counts(in_process):
    float_graph, other = classifier(), classifier(extra=True)
    for graph in (float_graph, other):
        graph.outputs = ("out", "sums")
    found = judged(float_graph, other)
    sums = (X * 2 + 0.1).sum(1)
    assert found.sqnr_db == pytest.approx(db(sums, np.full(21, 1.6)), abs=1e-3)
    assert found.agreement == 1


def test_another_shape_nan_and_other_interfaces(in_process):
    other = classifier()
    other.outputs = ("relu",)
    found = judged(classifier(), other)
    assert (found.sqnr_db, found.agreement) == (-math.inf, None)
    assert judged(classifier(), classifier(np.nan)).sqnr_db == -math.inf
    other.outputs = ("relu", "out")
    with raises(GraphError, "graph-interface-differs"):
        judged(classifier(), other)


def test_whole_numbers_alone_cannot_be_judged(in_process):
    with building(["x"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 16], name="x")
        tf.argmax(x, 1, name="out")
    with raises(GraphError, "no-float-output"):
        judged(graph, graph)


def test_accuracy_with_labels(in_process):
    expected = logits(X)
    labels = expected.argmax(1)
    labels[:4] = (labels[:4] + 1) % 10
    found = judged(classifier(), classifier(DELTA), labels=labels)
    after = (expected + DELTA).argmax(1) == labels
    assert (found.metric, found.before.value) == ("top1", 17 / 21)
    assert found.after.value == pytest.approx(after.mean())
    assert found.drop == pytest.approx(17 / 21 - after.mean())
    assert found.after.interval == wilson(int(after.sum()), 21)
    five = judged(classifier(), classifier(DELTA), labels=labels, metric="top5")
    order = np.argsort(-expected, 1)[:, :5]
    assert five.before.value == pytest.approx((order == labels[:, None]).any(1).mean())
    assert five.before.value > found.before.value


def test_labels_are_those_of_the_samples_that_run(in_process):
    """A graph that demands a batch leaves out the last samples, and their labels."""

    with building(["x"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [4, 16], name="x")
        tf.identity(x, name="out")
    labels = X.argmax(1)
    labels[-1] = 99  # would be refused
    found = judged(graph, graph, labels=labels)
    assert (found.samples, found.before.value) == (20, 1)


# From tables of Wilson's interval for 17 of 20, and 10 of 10.
@pytest.mark.parametrize(
    ("right", "total", "low", "high"),
    [(17, 20, 0.6396, 0.9476), (10, 10, 0.7225, 1.0), (0, 10, 0.0, 0.2775), (1, 1, 0.2065, 1.0)],
)
def test_wilson(right, total, low, high):
    assert wilson(right, total) == pytest.approx((low, high), abs=1e-4)


def test_wilson_is_exact_at_its_ends():
    """A gate that requires the same predictions does not fail a model that has them."""
    for total in range(1, 500):
        assert (wilson(0, total, 2.81)[0], wilson(total, total, 2.81)[1]) == (0, 1)


def test_top_places_with_ties_and_nan():
    top1, top5 = metric_named("top1"), metric_named("top5")
    scores = np.zeros((3, 7), np.float32)
    scores[2] = np.nan
    outputs = {"out": scores}
    assert top1(outputs, np.array([0, 1, 0])).value == pytest.approx(1 / 3), "as argmax has it"
    assert top5(outputs, np.array([4, 5, 0])).value == pytest.approx(1 / 3)
    assert top5({"out": np.eye(3, dtype=np.float32)}, np.array([[0], [1], [2]])).value == 1


def test_mean_absolute_error(in_process):
    truth = logits(X)
    net, other = classifier(softmax=False), classifier(DELTA, softmax=False)
    found = judged(net, other, labels=truth, metric="mae")
    assert found.before.value == pytest.approx(0, abs=1e-5)
    assert found.drop == pytest.approx(0.1, abs=1e-5)
    with raises(GraphError, "metric-mae-shape", dtype="float32", shape=[21], output="out"):
        judged(net, net, labels=truth[:, 0], metric="mae")


LABELS = [
    (np.zeros(20, int), "top1"), (np.full(21, 10), "top1"), (np.full(21, -1), "top5"),
    (np.full(21, 0.5), "top1"), (np.zeros((21, 10), int), "top1"), (None, "top5"),
    (np.zeros(21, int), "topp1"),
]  # fmt: skip


@pytest.mark.golden("refusals/labels")
def test_labels_that_do_not_fit(in_process):
    models = classifier(), classifier()
    assert_golden(*(
        f"{metric} {labels if labels is None else [labels.shape, labels.max().item()]}\n"
        f"{refusal(judged, *models, labels=labels, metric=metric)}"
        for labels, metric in LABELS
    ))  # fmt: skip


def test_labels_and_samples_are_counted():
    with pytest.raises(
        GraphError,
        match=says("counts-differ", what="labels", count=3, other="samples", other_count=2),
    ):
        Evaluator(classifier(), [{"x": X[:2]}], np.zeros(3, int))
    with raises(GraphError, "no-samples"):
        Evaluator(classifier(), [])


SCORED = ("metric", "before", "after")
OWN = """
import numpy as np
calls = []
def share(outputs, labels):
    assert list(outputs) == ["out"] and labels is None, labels
    value = float(np.mean(outputs["out"][:, 0]))
    outputs["out"][:] = 0  # must not reach what is judged next
    return value
def raises(outputs, labels):
    raise RuntimeError("out of\\nwords")
def leaves(outputs, labels):
    raise SystemExit(3)
def silent(outputs, labels): pass
def text(outputs, labels): return "0.5"
def nan(outputs, labels): return float("nan")
def infinite(outputs, labels): return float("inf")
constant = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_metric.py").write_text(OWN)
    (tmp_path / "broken_metric.py").write_text("1 / 0")
    (tmp_path / "needy_metric.py").write_text("import not_installed_anywhere")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", __import__("sys").path.copy())
    yield
    for name in ("own_metric", "broken_metric", "needy_metric"):
        __import__("sys").modules.pop(name, None)


def test_a_metric_of_the_users_own(in_process, own):
    net, other = classifier(softmax=False), classifier(DELTA, softmax=False)
    found = judged(net, other, metric="own_metric:share")
    assert found.before.value == pytest.approx(logits(X)[:, 0].mean(), rel=1e-4)
    assert found.before.interval is None
    assert found.drop == pytest.approx(-DELTA[0], rel=1e-4)
    assert found == replace(judged(net, other), **{k: getattr(found, k) for k in SCORED})


FAILING = (
    "none_such:f", "own_metric:none", "own_metric:constant", "broken_metric:f", "needy_metric:f",
    "own_metric:raises", "own_metric:leaves", "own_metric:silent", "own_metric:text",
    "own_metric:nan", "own_metric:infinite", "own_metric:",
)  # fmt: skip


@pytest.mark.golden("refusals/metrics")
def test_metrics_that_fail(in_process, own, tmp_path):
    models = classifier(), classifier()
    said = (f"{each}\n{refusal(judged, *models, metric=each)}" for each in FAILING)
    assert_golden(*(each.replace(f"{tmp_path}/", "") for each in said))


def test_a_graph_that_kills_the_child_and_the_next_one(own):
    """In real children: the metric is found in the working directory, and one death is survived."""

    with building(["x"], ["out"]) as deadly:
        x = tf.compat.v1.placeholder(tf.float32, [None, 16], name="x")
        abort = tf.raw_ops.Abort(error_msg="deadly", exit_without_error=False, name="abort")
        with tf.control_dependencies([abort]):
            tf.identity(x[:, :10], name="out")
    with Evaluator(classifier(), [{"x": X}], None, "own_metric:share") as judge:
        first = judge.judge(classifier(DELTA))
        with raises(CrashError, "child-died", runs="TensorFlow"):
            judge.judge(deadly)
        assert judge.judge(classifier(DELTA)) == first


def test_inputs_by_place_where_names_differ(in_process):
    def body():
        tf.identity(tf.compat.v1.placeholder(tf.float32, [None, 16], name="y"), name="same")

    with building(["x"], ["out"]) as graph:
        tf.identity(tf.compat.v1.placeholder(tf.float32, [None, 16], name="x"), name="out")
    found = judged(graph, build(body, ["y"], ["same"]))
    assert found.sqnr_db == math.inf


def test_groups_are_measured_like_the_whole_in_the_same_run(in_process):
    """Each has what a judge of its samples alone finds, before the softmax."""
    names = np.array(["a", "b", "b"] * 7, object)
    with Evaluator(
        classifier(), Dataset.of(classifier(), {"x": X}).feeds(5), groups=names
    ) as judge:
        found = judge.judge(classifier(DELTA))
    assert [(each.name, each.samples) for each in found.groups] == [("a", 7), ("b", 14)]
    for each in found.groups:
        alone = judged(classifier(), classifier(DELTA), X[names == each.name])
        assert each.sqnr_db == pytest.approx(alone.sqnr_db)
        assert each.sqnr_low_db == pytest.approx(alone.sqnr_low_db)
        assert (each.agreement, each.agreement_interval) == (
            alone.agreement, alone.agreement_interval,
        )  # fmt: skip
    assert [each["group"] for each in document(found)["groups"]] == ["a", "b"]
    assert judged(classifier(), classifier(DELTA)).groups == ()


def test_the_worst_group_is_named_where_its_bound_is_below_what_is_requested():
    fine = GroupCloseness("day", 40, 26.0, 25.0)
    night, few = GroupCloseness("night", 9, 24.6, 22.9), GroupCloseness("few", 3, 10.0)
    assert below_in_group([fine, few], 24) == []
    assert below_in_group([fine, night, few], 22) == []
    assert below_in_group([fine, night, few], 24) == [
        showing("group-below", group="night", sqnr=24.6, samples=9, bar=24)
    ]


def test_the_document_is_plain():
    from deploykit.quantization.accuracy import Judgement
    from deploykit.quantization.metrics import Score

    found = Judgement(math.inf, 1.0, 3, "top1", Score(1.0, (0.4, 1.0)), Score(0.5))
    assert document(found)["sqnr_db"] is None
    assert document(found)["before"] == {"value": 1.0, "interval": [0.4, 1.0]}
    assert document(found)["after"] == {"value": 0.5, "interval": None}


def test_every_fourth_sample_is_held_out():
    data = {"x": X, "labels": np.arange(21), "names": np.array(["a", "b"])}
    calibrating, held_out, note, _ = Dataset.of(classifier(), data).split()
    assert list(held_out.labels) == [3, 7, 11, 15, 19]
    assert sorted([*held_out.labels, *calibrating.labels]) == list(range(21))
    np.testing.assert_array_equal(held_out.arrays["x"], X[3::4])
    np.testing.assert_array_equal(calibrating.arrays["x"], X[calibrating.labels])
    assert note == ""
    few = {"x": X[:7]}
    calibrating, held_out, note, _ = Dataset.of(classifier(), few).split()
    assert calibrating.count == held_out.count == 7
    assert shows(note, "too-few-to-hold-out", count=7)
    assert Dataset.of(classifier(), {"x": X[:8]}).split().note == ""
    with raises(GraphError, "unknown-name", kind="array for input", name="x", known=["y", "z"]):
        Dataset.of(classifier(), {"y": X, "z": X})


def test_samples_at_even_distances():
    for count, kept in ((21, [0, 5, 10, 15, 20]), (3, [0, 1, 2])):
        samples = Dataset.of(classifier(), {"x": np.repeat(np.arange(count)[:, None], 16, 1) * 1.0})
        assert list(samples.spread(5).arrays["x"][:, 0]) == kept


def test_agreement_that_compares_values_is_caught(in_process, monkeypatch):
    right = judged(classifier(), classifier(DELTA)).agreement
    monkeypatch.setattr(accuracy, "same_class", lambda a, b, _: Score(float(np.mean(a == b))))
    assert judged(classifier(), classifier(DELTA)).agreement != right


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
def test_a_detector_is_judged_in_front_of_its_choice(in_process, kind):
    """The order of junk is noise behind the choice; a wrong score is more than that before it."""
    data = {"x": random(1, 16)}
    feeds = Dataset.of(detector(kind), data).feeds()
    with Evaluator(detector(kind), feeds) as judge:
        assert judge.judge(detector(kind, 1e-2)).sqnr_db > 24
        assert judge.judge(detector(kind, sign=-1)).sqnr_db < 10
