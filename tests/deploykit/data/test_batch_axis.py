"""Samples on another axis than the first: a time-major LSTM equals its batch-major twin."""

import json
import pickle
import re

import numpy as np
import pytest

from deploykit.api.records import convert_records
from deploykit.benchmarking.inputs import BenchmarkInputs, samples_in
from deploykit.client.request_inputs import feeds_from_data
from deploykit.data.preprocessing import preprocessing_from, with_batch_axes
from deploykit.data.samples import open_alike, open_feeds, open_samples
from deploykit.importers.graph_files import save_graph
from deploykit.quantization.accuracy import Evaluator
from deploykit.serving.protocol.signatures import Signature, Tensor
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.protos import SignatureDef
from deploykit.verification import feeds as fed
from deploykit.verification.engine_feeds import engine_feeds
from deploykit.verification.samples import Dataset
from deploykit.verification.synthetic.sample_inputs import demanded_batch, made_up_feeds
from tests.deploykit.conftest import deploykit as deploykit
from tests.support import Containing, assert_error, built, raises, random, run, says, tf

STEPS, COUNT, WIDTH, UNITS, CLASSES = 7, 20, 5, 6, 4
X = random(COUNT, STEPS, WIDTH, seed=3)
OFFSETS = random(COUNT, CLASSES, seed=4)
KERNEL, BIAS = random(WIDTH + UNITS, 4 * UNITS), random(4 * UNITS)
SCORES = 3 * random(UNITS, CLASSES)
AXES = {"format": 1, "inputs": {"x": {"batch_axis": 1}}}
STATED = json.dumps(AXES)


@built(["x", "offsets"], ["scores", "states"])
def lstm(time_major, batch=None, gain=1.0):
    """Build an LSTM whose second input always has its samples first."""
    shape = [None, batch, WIDTH] if time_major else [batch, None, WIDTH]
    x = tf.compat.v1.placeholder(tf.float32, shape, name="x")
    offsets = tf.compat.v1.placeholder(tf.float32, [batch, CLASSES], name="offsets")
    rows = x if time_major else tf.transpose(x, [1, 0, 2])
    length, zeros = tf.shape(rows)[0], tf.zeros([tf.shape(rows)[1], UNITS])
    read = tf.TensorArray(tf.float32, length).unstack(rows)

    def step(number, state, cell, written):
        gates = tf.matmul(tf.concat([read.read(number), state], 1), gain * KERNEL) + BIAS
        i, j, f, o = tf.split(gates, 4, 1)
        cell = tf.sigmoid(f + 1) * cell + tf.sigmoid(i) * tf.tanh(j)
        state = tf.sigmoid(o) * tf.tanh(cell)
        return number + 1, state, cell, written.write(number, state)

    begin = [0, zeros, zeros, tf.TensorArray(tf.float32, length)]
    _, state, _, written = tf.while_loop(lambda number, *_: number < length, step, begin)
    states = written.stack()
    tf.identity(states if time_major else tf.transpose(states, [1, 0, 2]), name="states")
    tf.nn.softmax(tf.matmul(state, SCORES) + offsets, name="scores")


def by_hand():
    """Return the scores that NumPy computes."""
    state = cell = np.zeros((COUNT, UNITS))
    for n in range(STEPS):
        gates = np.concatenate([X[:, n], state], 1) @ KERNEL + BIAS
        i, j, f, o = np.split(gates, 4, 1)
        cell = cell / (1 + np.exp(-f - 1)) + np.tanh(j) / (1 + np.exp(-i))
        state = np.tanh(cell) / (1 + np.exp(-o))
    raised = np.exp(state @ SCORES + OFFSETS)
    return raised / raised.sum(1, keepdims=True)


EXPECTED = by_hand()
LABELS = np.where(np.arange(COUNT) % 4, EXPECTED.argmax(1), EXPECTED.argmin(1))
RIGHT = float((EXPECTED.argmax(1) == LABELS).mean())
FIRST = {"x": X, "offsets": OFFSETS, "labels": LABELS}
SECOND = {**FIRST, "x": X.transpose(1, 0, 2)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("axis")
    for name, arrays, is_major in (("time", SECOND, True), ("batch", FIRST, False)):
        np.savez(folder / f"{name}.npz", **arrays)
        save_graph(lstm(is_major), folder / f"{name}.pb")
    return folder


@pytest.fixture(scope="module")
def time_major():
    return with_batch_axes(lstm(True), AXES)[0]


@pytest.mark.sampled
def test_the_lstm_computes_what_numpy_does():
    for is_major, arrays in ((True, SECOND), (False, FIRST)):
        inputs = {name: arrays[name] for name in ("x", "offsets")}
        np.testing.assert_allclose(run(lstm(is_major), inputs)[0], EXPECTED, atol=1e-5)


@pytest.mark.parametrize("batch", [1, 3, 7, 8, COUNT])
def test_feeds_contain_each_sample_once_where_the_graph_takes_it(time_major, batch):
    samples = open_samples(SECOND, time_major)
    feeds = samples.feeds(batch)
    assert [fed.count_of(feed) for feed in feeds] == [
        min(batch, COUNT - start) for start in range(0, COUNT, batch)
    ]
    assert fed.samples_in(pickle.loads(pickle.dumps(feeds))) == samples.count == COUNT
    np.testing.assert_array_equal(np.concatenate([f["x"] for f in feeds], 1), SECOND["x"])
    np.testing.assert_array_equal(np.concatenate([f["offsets"] for f in feeds]), OFFSETS)
    np.testing.assert_array_equal(samples.labels_of(feeds), LABELS)


def test_parts_of_samples_are_those_of_the_twin(time_major):
    ours, twin = open_samples(SECOND, time_major), Dataset.of(lstm(False), FIRST)
    for part in (lambda s: s.split().held_out, lambda s: s.spread(9), lambda s: s.at_least(31)):
        for name, array in part(twin).arrays.items():
            np.testing.assert_array_equal(part(ours).arrays[name], array)


@pytest.mark.sampled
@pytest.mark.parametrize("given", [AXES, STATED, preprocessing_from(AXES)])
def test_every_form_of_the_preprocessing_states_the_axis(given, folder):
    for data in (SECOND, str(folder / "time.npz")):
        assert open_samples(data, lstm(True), given).count == COUNT
        feeds, _ = open_feeds(data, lstm(True), given, 8)
        assert fed.samples_in(feeds) == COUNT


def test_records_are_samples_whatever_the_axis_is(tmp_path, time_major):
    np.savez(tmp_path / "data.npz", **FIRST)
    convert_records(tmp_path / "data.npz", tmp_path / "records")
    samples = open_samples(str(tmp_path / "records"), time_major)
    np.testing.assert_array_equal(samples.feeds(COUNT)[0]["x"], SECOND["x"])
    feeds, _ = open_feeds(str(tmp_path / "records"), time_major, batch=6)
    feeds = list(feeds)
    assert fed.samples_in(feeds) == COUNT
    np.testing.assert_array_equal(np.concatenate([f["x"] for f in feeds], 1), SECOND["x"])


@pytest.mark.parametrize("batch", [None, 6])
def test_a_dataset_of_samples_or_of_batches_has_the_axis(batch, time_major):
    dataset = tf.data.Dataset.from_tensor_slices(FIRST)
    if batch:
        dataset = dataset.batch(batch).map(
            lambda item: {**item, "x": tf.transpose(item["x"], [1, 0, 2])}
        )
    samples = open_samples(dataset, time_major)
    np.testing.assert_array_equal(samples.feeds(COUNT)[0]["x"], SECOND["x"])
    np.testing.assert_array_equal(samples.labels, LABELS)


def means(name="x", shape=(None, None, WIDTH)):
    """Build a model with one time-major input."""

    @built([name], ["out"])
    def build():
        x = tf.compat.v1.placeholder(tf.float32, shape, name=name)
        tf.reduce_mean(x, 0, name="out")

    return build()


IDS = np.arange(COUNT)
EXTRA = {"labels": LABELS, "patient": IDS // 2, "id": IDS, "note": np.array(["a"] * COUNT)}


@pytest.mark.sampled
@pytest.mark.parametrize("batch", [None, 6])
@pytest.mark.parametrize("name", ["x", "images"])  # by its name, and as the only array of floats
@pytest.mark.parametrize("extra", [(), ("labels",), ("note",), ("id",), ("labels", "patient"),
                                   ("labels", "patient", "id", "note")])  # fmt: skip
def test_only_the_array_of_the_input_has_the_axis(batch, name, extra):
    arrays = {name: X, **{item: EXTRA[item] for item in extra}}
    dataset = tf.data.Dataset.from_tensor_slices(arrays)
    if batch:
        dataset = dataset.batch(batch).map(
            lambda item: {**item, name: tf.transpose(item[name], [1, 0, 2])}
        )
    graph = with_batch_axes(means(), AXES)[0]
    group_by = "patient" if "patient" in extra else None
    numbers = {*extra} - {"labels", "note", group_by}
    if name != "x" and numbers:  # two arrays could be the input
        with raises(GraphError, "unknown-name", name="x"):
            open_samples(dataset, graph, group_by=group_by)
        return
    samples = open_samples(dataset, graph, group_by=group_by)
    assert samples.count == COUNT
    np.testing.assert_array_equal(samples.feeds(COUNT)[0]["x"], SECOND["x"])
    if "labels" in extra:
        np.testing.assert_array_equal(samples.labels, LABELS)
    if group_by:
        assert samples.groups.tolist() == [str(item) for item in EXTRA["patient"]]


def test_elements_of_different_shapes_are_refused_if_they_are_needed():
    def dataset(**spec):
        rows = [{name: np.zeros([n if s is None else s for s in shape], np.float32)
                 for name, shape in spec.items()} for n in (2, 3)]  # fmt: skip
        signature = {name: tf.TensorSpec(shape, tf.float32) for name, shape in spec.items()}
        return tf.data.Dataset.from_generator(lambda: iter(rows), output_signature=signature).apply(
            tf.data.experimental.assert_cardinality(2)
        )

    graph = with_batch_axes(means(), AXES)[0]
    with pytest.raises(GraphError) as caught:
        open_samples(dataset(x=[None, WIDTH]), graph)
    assert caught.value.code == "dataset-shapes-differ"
    assert open_samples(dataset(x=[STEPS, WIDTH], note=[None]), graph).count == 2


@pytest.mark.sampled
def test_the_axis_of_another_model_is_its_own(time_major, folder):
    samples = open_samples(SECOND, time_major)
    alike = open_alike(samples, time_major, SECOND, lstm(False))
    np.testing.assert_array_equal(alike.feeds(COUNT)[0]["x"], X)
    back = open_alike(alike, lstm(False), FIRST, time_major)
    np.testing.assert_array_equal(back.feeds(COUNT)[0]["x"], SECOND["x"])


@pytest.mark.sampled
@pytest.mark.parametrize("stated", ["x", "y"])
@pytest.mark.parametrize("baseline", ["x", "y"])
def test_models_with_other_input_names_share_the_axis(deploykit, stated, baseline, tmp_path):
    labels = X.mean(1).argmax(1)
    for name in ("x", "y"):
        save_graph(means(name), tmp_path / f"{name}.pb")
        np.savez(tmp_path / f"{name}.npz", labels=labels, **{name: SECOND["x"]})
    first = tmp_path / f"{baseline}.pb"
    second = tmp_path / f"{'y' if baseline == 'x' else 'x'}.pb"
    data = ("--data", tmp_path / f"{baseline}.npz")
    steps = {"format": 1, "inputs": {stated: {"batch_axis": 1}}}
    given = (first, second, *data, "--preprocess", json.dumps(steps), "--json")
    found = deploykit("accuracy", *given)
    assert found.status == 0, found.stderr
    assert found.document["samples"] == COUNT
    assert [model["value"] for model in found.document["models"]] == [1, 1]
    found = deploykit("benchmark", *given, "--batch", "4", "--runs", "2")
    assert found.status == 0, found.stderr
    assert '"samples": 4' in found.printed
    found = deploykit("gate", *given, "--budget", "1")
    assert found.status == 5, found.stderr  # other signatures fail the gate


@pytest.mark.parametrize("command", ["accuracy", "benchmark", "gate"])
def test_a_name_of_no_model_is_refused_with_the_models(deploykit, command, tmp_path):
    for name in ("x", "y"):
        save_graph(means(name), tmp_path / f"{name}.pb")
    np.savez(tmp_path / "x.npz", x=SECOND["x"])
    steps = json.dumps({"format": 1, "inputs": {"z": {"batch_axis": 1}}})
    found = deploykit(command, tmp_path / "x.pb", tmp_path / "y.pb", "--data", tmp_path / "x.npz",
                      "--preprocess", steps)  # fmt: skip
    assert_error(found.error, "unknown-name", name="z", known=["x", "y"])
    assert found.stderr == Containing("x.pb", "y.pb")


@pytest.mark.sampled
@pytest.mark.parametrize("batch", [None, 1, 5])
def test_synthetic_samples_are_counted_on_the_axis(batch):
    graph = with_batch_axes(lstm(True, batch), AXES)[0]
    assert demanded_batch(graph) == batch
    feeds, _ = made_up_feeds(graph, (-1, 1))
    size = batch or 4
    assert {feed["x"].shape[1] for feed in feeds} == {feed["offsets"].shape[0] for feed in feeds}
    assert fed.samples_in(feeds) >= 4
    assert fed.count_of(feeds[0]) == size
    for requested in (None, 5):
        if batch in (None, requested):
            (first, *_) = BenchmarkInputs().batches(graph, requested)
            assert samples_in(first) == (requested or batch or 1)
            assert first[0].shape[1] == first[1].shape[0] == samples_in(first)


def test_a_fixed_batch_is_that_of_the_axis():
    graph = with_batch_axes(lstm(True, 8), AXES)[0]
    samples = open_samples(SECOND, graph)
    assert samples.batch == 8
    assert fed.samples_in(samples.feeds()) == 16
    with pytest.raises(GraphError) as caught:
        samples.feeds(3)
    assert caught.value.code == "batch-fixed"
    assert [samples_in(b) for b in BenchmarkInputs(data=samples).batches(graph)] == [8, 8]


@pytest.mark.parametrize("data", [None, SECOND])
def test_engines_are_compared_in_batches_of_the_axis(time_major, data):
    found, why = engine_feeds(time_major, data)
    assert not why
    assert {fed.count_of(feed) for feed in found.feeds} == {3, 1}
    assert found.empty["x"].shape[1] == found.empty["offsets"].shape[0] == 0


@pytest.mark.parametrize("length", [STEPS, 8])  # 8: as many steps as samples in a batch
def test_confidence_is_that_of_the_twin(length):
    x = random(16, length, WIDTH, seed=9)
    arrays = {"offsets": OFFSETS[:16]}
    results = []
    for is_major, given in ((True, x.transpose(1, 0, 2)), (False, x)):
        graph = with_batch_axes(lstm(is_major), AXES if is_major else None)[0]
        changed = lstm(is_major, gain=1.01)
        graph.outputs = changed.outputs = ("states",)
        samples = open_samples({**arrays, "x": given}, graph)
        with Evaluator.on(graph, samples) as evaluator:
            results.append(evaluator.judge(changed))
    ours, twin = results
    assert ours.samples == twin.samples == 16
    assert np.isfinite([ours.sqnr_db, ours.sqnr_low_db]).all()
    assert ours.sqnr_db == pytest.approx(twin.sqnr_db, rel=1e-4)
    assert ours.sqnr_low_db == pytest.approx(twin.sqnr_low_db, rel=1e-4)


@pytest.mark.sampled
def test_optimize_counts_samples_and_keeps_the_axis(deploykit, folder, tmp_path):
    for data in ((), ("--data", folder / "time.npz")):
        out = tmp_path / f"{len(data)}.pb"
        found = deploykit(
            "optimize", folder / "time.pb", "-o", out, *data, "--preprocess", STATED, "--json"
        )
        assert found.status == 0, found.stderr
        if data:
            result = found.document
            assert result["samples"] == COUNT
            assert result["accuracy_before"] == result["accuracy_after"] == pytest.approx(RIGHT)
        known = json.loads((tmp_path / f"{out.name}.json").read_text())
        assert known["preprocessing"]["inputs"] == AXES["inputs"]
    again = deploykit("verify", folder / "time.pb", out, "--data", folder / "time.npz",
                      "--preprocess", STATED, "--json")  # fmt: skip
    assert again.status == 0
    assert again.document["samples"] == COUNT
    assert again.document["accuracy_after"] == pytest.approx(RIGHT)


@pytest.mark.sampled
def test_frozen_metadata_serves_the_commands_without_the_option(deploykit, folder, tmp_path):
    frozen = tmp_path / "frozen.pb"
    given = ("freeze", folder / "time.pb", "--preprocess", STATED, "-o", frozen)
    assert deploykit(*given).status == 0
    score = {}
    for name, model in (("time", frozen), ("batch", folder / "batch.pb")):
        found = deploykit("accuracy", model, "--data", folder / f"{name}.npz", "--json")
        assert found.status == 0
        assert found.document["samples"] == COUNT
        score[name] = found.document["models"][0]["value"]
    assert score["time"] == score["batch"]
    assert score["time"] == pytest.approx(RIGHT)
    found = deploykit("benchmark", frozen, "--data", folder / "time.npz", "--batch", "4",
                      "--runs", "3", "--json")  # fmt: skip
    assert found.status == 0
    assert '"samples": 4' in found.printed
    exported = ("export", frozen, tmp_path / "exported", "--warmup", folder / "time.npz")
    assert deploykit(*exported, "--batching").error.code == "batch-axis-not-first"
    assert deploykit(*exported).status == 0
    again = ("accuracy", tmp_path / "exported" / "frozen" / "1", "--data", folder / "time.npz")
    assert deploykit(*again).error.code == "array-sample-counts-differ"  # as docs/input.md states
    assert deploykit(*again, "--preprocess", STATED).status == 0
    for command, line in {
        "infer": (folder / "time.npz", tmp_path / "answers"),
        "ship": ("-o", tmp_path / "shipped"),
        "benchmark": ("--data", folder / "time.npz", "--input", "queue"),
    }.items():
        found = deploykit(command, frozen, *line)
        assert found.status == 2, command
        assert found.error.code == "batch-axis-not-first"
    assert not (tmp_path / "answers").exists()


@pytest.mark.sampled
def test_quantize_calibrates_as_the_twin_does(deploykit, folder, tmp_path):
    results = []
    for name, more in (("time", ("--preprocess", STATED)), ("batch", ())):
        out = tmp_path / f"{name}.pb"
        given = folder / f"{name}.pb", "--calibration", folder / f"{name}.npz"
        found = deploykit("quantize", *given, "--allow-float", "-o", out, "--json", *more)
        assert found.status == 0, found.stderr
        results.append([found.document["samples"], [e["layer"] for e in found.document["layers"]]])
        if more:
            known = json.loads((tmp_path / f"{out.name}.json").read_text())
            assert known["preprocessing"]["inputs"] == AXES["inputs"]
    assert results[0] == results[1]


def freeze(deploykit, folder, tmp_path):
    frozen = tmp_path / "frozen.pb"
    given = ("freeze", folder / "time.pb", "--preprocess", STATED, "-o", frozen)
    assert deploykit(*given).status == 0
    return frozen


@pytest.mark.sampled
@pytest.mark.parametrize("data", [False, True])
def test_placement_runs_samples_of_the_axis(deploykit, folder, tmp_path, data):
    more = ("--data", folder / "time.npz") if data else ()
    found = deploykit("placement", freeze(deploykit, folder, tmp_path), *more, "--json")
    assert found.status == 0, found.stderr
    if data:
        found = deploykit("placement", folder / "time.pb", *more)
        assert (found.status, found.error.code) == (2, "array-sample-counts-differ")


@pytest.mark.sampled
@pytest.mark.parametrize("data", [False, True])
def test_tune_tries_batches_of_the_axis(deploykit, folder, tmp_path, data):
    more = ("--data", folder / "time.npz") if data else ()
    given = ("--batch", "4", "--budget", "0.2", "-o", tmp_path / "tuned.json", "--json")
    found = deploykit("tune", freeze(deploykit, folder, tmp_path), *more, *given)
    assert found.status == 0, found.stderr
    assert json.loads(found.stdout)["settings"]["batch"] == 4  # a short search lacks pinned keys


@pytest.mark.parametrize("batch", [1, 4])
def test_load_test_sends_samples_of_the_axis(folder, tmp_path, batch):
    axes = {"x": [-1, -1, WIDTH], "offsets": [-1, CLASSES]}
    inputs = {name: Tensor(f"{name}:0", "float32", tuple(shape)) for name, shape in axes.items()}
    signature = Signature("", inputs, {}, SignatureDef())
    feeds, _, *_ = feeds_from_data(str(folder / "time.npz"), signature, STATED, batch)
    feeds = list(feeds)
    assert [feed["x"].shape for feed in feeds] == [(STEPS, batch, WIDTH)] * (COUNT // batch)
    np.testing.assert_array_equal(np.concatenate([f["x"] for f in feeds], 1), SECOND["x"])
    np.testing.assert_array_equal(np.concatenate([f["offsets"] for f in feeds]), OFFSETS)


INVALID = {
    "-1": "'x'.* batch_axis .*-1",
    "1.5": r"'x'.* batch_axis .*1\.5",
    "true": "'x'.* batch_axis .*True",
    '"1"': "'x'.* batch_axis .*'1'",
    "3": says("batch-axis-rank", name="x", shape="[?,?,5]", axis=3),
}


@pytest.mark.parametrize("axis", INVALID)
def test_an_invalid_axis_is_refused(axis, deploykit, folder, tmp_path):
    steps = f'{{"format": 1, "inputs": {{"x": {{"batch_axis": {axis}}}}}}}'
    found = deploykit(
        "optimize", folder / "time.pb", "--preprocess", steps, "-o", tmp_path / "o.pb"
    )
    assert found.status == 2
    assert found.error.code
    assert re.search(INVALID[axis], found.stderr)
    assert not [*tmp_path.iterdir()]


@built(["x"], ["out"])
def unranked(is_product):
    """Build a model whose input has an unknown rank, which a product makes 2."""
    x = tf.compat.v1.placeholder(tf.float32, None, name="x")
    (tf.matmul if is_product else tf.multiply)(x, random(WIDTH, 3)[: None if is_product else 1, :1],
                                               name="out")  # fmt: skip


@pytest.mark.parametrize(
    ("is_product", "axis", "shapes"),
    [(True, 2, {}), (False, 4, {}), (False, 1, {"x": [9]}), (False, 2, {"x": [9, 5]}),
     (False, 1, {"x": []}), (True, 9, {"x": [9, 5]})],
)  # fmt: skip
def test_synthetic_inputs_without_the_axis_are_refused(is_product, axis, shapes):
    stated = {"format": 1, "inputs": {"x": {"batch_axis": axis}}}
    graph = with_batch_axes(unranked(is_product), stated)[0]
    for make in (
        lambda: made_up_feeds(graph, (-1, 1), shapes),
        lambda: BenchmarkInputs(shapes=shapes).batches(graph, None),
        lambda: BenchmarkInputs(shapes=shapes).batches(graph, 6),
    ):
        with pytest.raises(GraphError) as caught:
            make()
        assert caught.value.code == "batch-axis-rank"
        assert caught.value.fields["axis"] == axis


def test_an_unknown_rank_takes_the_sizes_that_are_given():
    graph = with_batch_axes(unranked(False), AXES)[0]
    (first, *_) = BenchmarkInputs(shapes={"x": [9, 3]}).batches(graph, 6)
    assert (samples_in(first), first[0].shape) == (6, (9, 6))


def test_records_without_the_axis_are_refused(tmp_path):
    stated = {"format": 1, "inputs": {"x": {"batch_axis": 2}}}
    graph = with_batch_axes(unranked(False), stated)[0]
    np.savez(tmp_path / "data.npz", x=X[:, 0])
    convert_records(tmp_path / "data.npz", tmp_path / "records")
    for read in (open_samples, lambda *given: list(open_feeds(*given)[0])):
        with pytest.raises(GraphError) as caught:
            read(str(tmp_path / "records"), graph)
        assert caught.value.code == "batch-axis-rank"


def test_a_scalar_has_no_axis():
    @built(["x"], ["out"])
    def scalar():
        tf.identity(tf.compat.v1.placeholder(tf.float32, [], name="x"), name="out")

    with pytest.raises(GraphError) as caught:
        with_batch_axes(scalar(), AXES)
    assert caught.value.code == "batch-axis-rank"


@pytest.mark.sampled
def test_labels_name_the_axis_that_has_as_many_values(deploykit, folder, tmp_path):
    given = ("optimize", folder / "time.pb", "--data", folder / "time.npz", "-o", tmp_path / "o.pb")
    graph = lstm(True)
    graph.inputs = ("x",)
    with pytest.raises(GraphError) as caught:
        Dataset.of(graph, {"x": SECOND["x"], "labels": LABELS})
    advice = caught.value.fields["steps"]
    assert Dataset.of(with_batch_axes(graph, advice)[0], SECOND).count == COUNT
    assert deploykit(*given).status == 2  # two inputs of other counts
    assert deploykit(*given, "--preprocess", advice).status == 0


@built(["x", "y", "offsets"], ["out"])
def two_sequences():
    """Build a model with two time-major inputs and one that has its samples first."""
    x, y = (tf.compat.v1.placeholder(tf.float32, [None, None, WIDTH], name=n) for n in "xy")
    offsets = tf.compat.v1.placeholder(tf.float32, [None, WIDTH], name="offsets")
    tf.add(tf.reduce_mean(x, 0) + tf.reduce_mean(y, 0), offsets, name="out")


# Shapes of x, y and offsets, number of labels, and the axes that the message names.
OTHER_AXES = """9,37,5 9,37,5 37,5 -: x=1 y=1
9,37,5 37,8,5 37,5 -: x=1
9,37,5 37,8,5 37,5 37: x=1
9,37,5 37,8,5 37,5 30:
9,37,5 9,37,5 9,5 37:
9,36,5 36,8,5 37,5 -:
9,5,5 9,5,5 5,5 -: x=1 y=1
37,9,5 9,37,5 37,5 -: y=1
37,9,5 9,37,5 9,5 -: x=1
7,9,5 9,7,5 9,5 7:"""


@pytest.mark.parametrize("line", OTHER_AXES.splitlines())
def test_arrays_name_the_axis_that_has_the_samples(line):
    given, _, named = line.partition(":")
    *shapes, labels = given.split()
    arrays = {name: np.zeros([*map(int, shape.split(","))], np.float32)
              for name, shape in zip(("x", "y", "offsets"), shapes, strict=True)}  # fmt: skip
    if labels != "-":
        arrays["labels"] = np.zeros(int(labels), np.int64)
    graph = two_sequences()
    with pytest.raises(GraphError) as caught:
        Dataset.of(graph, arrays)
    message = str(caught.value)
    assert ("batch_axis" in message) == bool(named)
    if named:
        axes = {name: {"batch_axis": int(axis)} for name, _, axis in
                (item.partition("=") for item in named.split())}  # fmt: skip
        advice = json.loads(message.partition("--preprocess '")[2].partition("'")[0])
        assert advice == {"format": 1, "inputs": axes}
        Dataset.of(with_batch_axes(graph, advice)[0], arrays)


def test_an_axis_that_was_stated_wrongly_is_named_too():
    x = tf.zeros([37, 9, WIDTH]).numpy()
    graph = with_batch_axes(means(), AXES)[0]
    with pytest.raises(GraphError) as caught:
        Dataset.of(graph, {"x": x, "labels": np.zeros(37)})
    assert caught.value.fields["places"] == Containing("0", "'x'")
    assert Dataset.of(with_batch_axes(graph, caught.value.fields["steps"])[0], {"x": x}).count == 37


def test_other_steps_do_not_reach_arrays(folder):
    steps = {"format": 1, "inputs": {"x": {"batch_axis": 1, "scale": 2}}}
    with pytest.raises(GraphError) as caught:
        open_samples(str(folder / "time.npz"), lstm(True), steps)
    assert caught.value.code == "batch-axis-not-first"
