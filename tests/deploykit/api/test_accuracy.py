"""Accuracy of one model and of several is that of NumPy, and never made up."""

import json
import re

import numpy as np
import pytest

import deploykit as api
from deploykit.importers.metadata_file import About, with_engine
from deploykit.quantization.metrics import change
from deploykit.rendering.formatters.accuracy import lines
from deploykit.rendering.tables import drawn
from deploykit.storage.image_files import png
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.engines.engines import OPENVINO, EngineUse, lacking, version_of
from deploykit.verification.confidence import wilson
from tests.support import (
    Containing,
    assert_error,
    assert_golden,
    building,
    built,
    raises,
    refusal,
    shows,
    tf,
)

pytestmark = pytest.mark.usefixtures("in_process")

COUNT, CLASSES = 50, 6
X = np.random.default_rng(0).normal(size=(COUNT, CLASSES)).astype(np.float32)
DELTA = np.array([1.2, -0.8, 0, 0, 0.3, 0], np.float32)
LABELS = X.argmax(1)
LABELS[::9] = (LABELS[::9] + 2) % CLASSES
NAMES = ("boot", "bag", "shirt", "coat", "dress", "hat")


def net(delta=0.0, name="x", batch=None, width=CLASSES, softmax=True):
    """Return a graph that adds to the scores that it is fed."""

    with building([name], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [batch, width], name=name)
        moved = tf.add(x, np.broadcast_to(np.float32(delta), width), name="moved")
        (tf.nn.softmax if softmax else tf.identity)(moved, name="out")
    return graph


def data(labels=LABELS, **more):
    return {"x": X, "labels": labels, **more} if labels is not None else {"x": X}


def text(found):
    return "\n".join(drawn(lines(found)))


@pytest.mark.sampled
@pytest.mark.parametrize("softmax", [True, False])
@pytest.mark.parametrize("one_hot", [True, False])
def test_two_models_on_the_same_samples(softmax, one_hot):
    labels = np.eye(CLASSES, dtype=np.float32)[LABELS] if one_hot else LABELS
    models = {"before": net(), "after": net(DELTA, softmax=softmax)}
    found = api.accuracy(models, data(labels), labels=NAMES)
    before, after = X.argmax(1) == LABELS, (X + DELTA).argmax(1) == LABELS
    assert 0 < after.sum() < before.sum() < COUNT
    for each, right in zip(found.models, (before, after), strict=True):
        assert each.score.value == right.mean()
        assert each.score.interval == wilson(int(right.sum()), COUNT)
    assert found.change == change(before, after)
    same = X.argmax(1) == (X + DELTA).argmax(1)
    assert found.agreement.value == same.mean()
    assert [each.number for each in found.by_class] == np.unique(LABELS).tolist()
    for each in found.by_class:
        chosen = each.number == LABELS
        assert (each.name, each.samples) == (f"{each.number} {NAMES[each.number]}", chosen.sum())
        shares = [score.value for score in each.scores]
        assert shares == [before[chosen].mean(), after[chosen].mean()]
    assert len(found.worst) == 12
    worst = found.worst[0]
    assert not same[worst.sample]
    assert worst.label == f"{LABELS[worst.sample]} {NAMES[LABELS[worst.sample]]}"
    assert worst.last.name.startswith(str((X + DELTA)[worst.sample].argmax()))
    document = json.loads(json.dumps(found.document(), allow_nan=False))
    assert document["kind"] == "accuracy"
    assert [each["name"] for each in document["models"]] == ["before", "after"]
    assert document["worst"][0]["first"]["class"] == worst.first.name
    assert f"{100 * after.mean():.1f} %" in text(found)


@pytest.mark.sampled
def test_the_order_of_models_turns_the_change_around():
    one = api.accuracy([net(), net(DELTA)], data())
    other = api.accuracy([net(DELTA), net()], data())
    assert one.change.value == -other.change.value < 0
    assert "worse" in text(one)
    assert "better" in text(other)
    assert [each.name for each in one.models] == ["a graph", "a graph (2)"]


def test_one_model_and_no_disagreement():
    found = api.accuracy(net(), data(), show_errors=3)
    assert (found.change, found.agreement, len(found.worst)) == (None, None, 3)
    assert all(each.last is None for each in found.worst)
    assert all(X[each.sample].argmax() != LABELS[each.sample] for each in found.worst)
    same = api.accuracy([net(), net(name="y"), net()], data(), metric="top5")
    assert same.worst == ()
    assert (same.change.value, same.agreement.value) == (0, 1)
    assert shows(text(same), "score-unchanged", metric="top5", ends=Containing("-"))
    slight = api.accuracy([net(), net(DELTA / 12)], data())
    assert slight.change.value
    assert shows(text(slight), "score-changed", outcome="not significant")


def test_models_take_samples_by_name_or_place_and_in_their_batches():
    """Of a model that demands four at once, two samples are left out, and of the others as well."""
    found = api.accuracy([net(name="z"), net(DELTA, batch=4)], {"z": X, "labels": LABELS})
    assert found.samples == 48
    assert found.models[0].score.value == np.mean(X[:48].argmax(1) == LABELS[:48])
    with raises(GraphError, "data-shape"):
        api.accuracy([net(), net(width=4)], data())


def test_each_group_has_what_its_samples_have_alone():
    source = np.array(["day", "night", "night", "fog", "fog"])[np.arange(COUNT) % 5]
    models = {"before": net(), "after": net(DELTA)}
    found = api.accuracy(models, data(source=source), group_by="source")
    assert [each.closeness.name for each in found.by_group] == ["day", "fog", "night"]
    for each in found.by_group:
        own = source == each.closeness.name
        alone = api.accuracy(models, {"x": X[own], "labels": LABELS[own]})
        assert each.closeness.samples == alone.samples
        assert each.closeness.sqnr_db == pytest.approx(alone.noise.sqnr_db)
        assert each.closeness.sqnr_low_db == pytest.approx(alone.noise.sqnr_low_db)
        assert each.closeness.agreement == alone.agreement.value
        assert list(each.scores) == [model.score for model in alone.models]
    noise = np.broadcast_to(DELTA, X.shape)
    wanted = 10 * np.log10(np.square(X).sum() / np.square(noise).sum())
    assert found.noise.sqnr_db == pytest.approx(wanted, abs=1e-4), "before the softmax"
    assert shows(text(found), "sqnr-of-second", sqnr=f"{wanted:.1f}")
    assert shows(text(found), "groups-caption", data="arrays")
    unlabelled = api.accuracy(models, {"x": X, "group": source})
    assert [each.closeness for each in unlabelled.by_group] == [e.closeness for e in found.by_group]
    assert {each.scores for each in unlabelled.by_group} == {()}
    (one,) = api.accuracy(net(), data(group=np.zeros(COUNT, int))).by_group
    assert (one.closeness.name, one.closeness.sqnr_db) == ("0", None)
    assert [score.value for score in one.scores] == [(X.argmax(1) == LABELS).mean()]


def test_shares_and_logits_have_no_noise_between_them():
    models = {"softmax": net(), "logits": net(softmax=False)}
    found = api.accuracy(models, data(group=np.zeros(COUNT, int)))
    assert (found.noise, found.by_group[0].closeness.sqnr_db) == (None, None)
    assert found.agreement.value == 1


def test_errors_of_groups_are_means():
    values = np.arange(12, dtype=np.float32)[:, None] * np.ones((1, CLASSES), np.float32)
    given = {"x": values, "labels": values + 1, "group": np.arange(12) % 2}
    found = api.accuracy({"a": net(softmax=False), "b": net(3, softmax=False)}, given, metric="mae")
    assert [[score.value for score in e.scores] for e in found.by_group] == [[1, 2], [1, 2]]
    assert found.by_group[0].scores[1].interval == (2, 2)


def test_numbers_have_an_error():
    truth = X @ np.ones(CLASSES, np.float32)

    def summed(more):
        with building(["x"], ["out"]) as graph:
            x = tf.compat.v1.placeholder(tf.float32, [None, CLASSES], name="x")
            tf.add(tf.reduce_sum(x, 1, keepdims=True), np.float32(more), name="out")
        return graph

    found = api.accuracy([summed(0.5), summed(0.75)], data(truth), metric="mae")
    values = [each.score.value for each in found.models]
    assert values == pytest.approx([0.5, 0.75], abs=1e-5)
    assert found.change.value == pytest.approx(0.25, abs=1e-5)
    assert found.lower_is_better
    assert found.document()["better"] == "lower"
    assert "worse" in text(found)
    assert (found.agreement, found.by_class) == (None, ())
    assert found.worst[0].last.score is not None
    with raises(GraphError, "models-not-comparable"):
        api.accuracy([summed(0), summed(1)], data(None))


def second(outputs, labels):
    """Return the share of samples whose label has the second highest score."""
    scores = next(iter(outputs.values()))
    return float(np.mean(np.argsort(scores, 1)[:, -2] == labels))


def test_a_metric_of_the_user_has_no_interval():
    found = api.accuracy([net(), net(DELTA)], data(), metric=f"{__name__}:second")
    expected = [second({"": x}, LABELS) for x in (X, X + DELTA)]
    assert [each.score.value for each in found.models] == expected
    assert {each.score.interval for each in found.models} == {None}
    assert found.change.value == pytest.approx(expected[1] - expected[0])
    assert (found.change.interval, found.by_class) == (None, ())
    assert found.agreement.interval is not None


def test_without_labels_models_are_only_compared():
    found = api.accuracy([net(), net(DELTA)], data(None))
    same = X.argmax(1) == (X + DELTA).argmax(1)
    assert found.agreement.value == same.mean()
    document = found.document()
    assert (document["metric"], document["change"]) == (None, None)
    assert {each["value"] for each in document["models"]} == {None}
    assert "agree" in text(found)


WRONG = [
    (net, data(None), {}), (lambda: [net(), net()], data(None), {"metric": "top5"}),
    (net, data(LABELS + 1), {}), (net, data(LABELS[:-1]), {}), (net, data(LABELS + 0.5), {}),
    (net, data(), {"metric": "top2"}), (net, data(), {"show_errors": -1}),
    (net, {"x": X[:0], "labels": LABELS[:0]}, {}), (list, data(), {}),
    (net, data(), {"metric": "json:dumps"}),
]  # fmt: skip


@pytest.mark.golden("refusals/accuracy")
def test_what_cannot_be_said_is_an_error():
    said = (refusal(api.accuracy, make(), given, **how) for make, given, how in WRONG)
    assert_golden(*(re.sub(r" \(/[^)]*\)", "", each) for each in said))  # whose line it is


def test_answers_that_cannot_be_right_are_doubted():
    found = api.accuracy(net(), data((LABELS + 3) % CLASSES))
    assert shows(found.notes[0], "guesses-as-good")
    assert found.document()["notes"] == list(found.notes)


@built(["photo"], ["out"])
def photo_net(side, divisor=255.0):
    """Return a classifier of grey photos: the scores are means of rows in six bands."""
    x = tf.compat.v1.placeholder(tf.float32, [None, side, side, 1], name="photo")
    bands = tf.reshape(x / np.float32(divisor), [-1, CLASSES, side // CLASSES, side])
    tf.nn.softmax(8 * tf.reduce_mean(bands, [2, 3]), name="out")


@pytest.fixture
def photos(tmp_path):
    """Write two photos of each class, whose band is bright, in folders of their names."""
    for number, name in enumerate(NAMES):
        (tmp_path / "val" / name).mkdir(parents=True)
        for n in range(2):
            pixels = np.zeros((24, 24, 1), np.uint8)
            pixels[number * 4 : number * 4 + 4] = 200 + 20 * n
            (tmp_path / "val" / name / f"{n}.png").write_bytes(png(pixels))
    (tmp_path / "labels.txt").write_text("\n".join(NAMES) + "\n")
    return tmp_path


def test_models_of_other_sizes_and_ranges_see_the_same_photos(photos):
    models = {"small": photo_net(12), "large": photo_net(48, divisor=1.0)}
    models["large"].about = About(photos={"photo": "0..1"})
    found = api.accuracy(models, photos / "val", labels=photos / "labels.txt")
    assert [each.score.value for each in found.models] == [1, 1]
    assert shows(found.class_order, "classes-by-name", classes="6 classes")
    turned = api.accuracy(models["small"], photos / "val", labels=NAMES[::-1])
    assert turned.models[0].score.value == 0
    worst = turned.worst[0]
    assert worst.file.endswith(".png")
    assert worst.picture.startswith("data:image/png;base64,")
    folder = worst.file.split("/")[-2]
    assert worst.label == f"{NAMES[::-1].index(folder)} {folder}"
    with raises(GraphError, "class-unknown", name="bag", count=5):
        api.accuracy(models["small"], photos / "val", labels=[n for n in NAMES if n != "bag"])


def test_what_any_of_the_models_knows_of_classes_counts(photos):
    """The sorted folders are another order, which is taken where nobody says what is right."""
    plain, knowing = photo_net(12), photo_net(12)
    knowing.about = About(labels=NAMES)
    alone = api.accuracy(plain, photos / "val", preprocess="0..255")
    assert alone.models[0].score.value < 1
    found = api.accuracy([plain, knowing], photos / "val", preprocess="0..255")
    assert [each.score.value for each in found.models] == [1, 1]
    assert shows(found.class_order, "labels-of-metadata", model="a graph")


def test_a_model_runs_in_the_engine_that_it_was_written_for():
    if lacking(OPENVINO):
        pytest.skip("OpenVINO is not installed")
    own, other = net(), net(DELTA)
    other.about = with_engine(other, EngineUse(OPENVINO, version_of(OPENVINO)))
    found = api.accuracy([own, other], data())
    assert [each.engine for each in found.models] == ["tensorflow", "openvino"]
    assert found.models[1].score.value == np.mean((X + DELTA).argmax(1) == LABELS)


def test_the_command_prints_the_metric(deploykit, photos):
    model = photos / "a.pb"
    api.save_graph(photo_net(24), model)
    more = ("--data", photos / "val", "--labels", photos / "labels.txt", "--preprocess=0..255")
    shown = deploykit("accuracy", model, *more)
    assert shown.status == 0, shown.stderr
    assert "top1" in shown.stdout
    twice = deploykit("accuracy", model, model, *more)
    assert twice.status == 2
    assert_error(twice.error, "given-twice", name=model)
