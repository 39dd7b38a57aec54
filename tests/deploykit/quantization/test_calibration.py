"""The ranges of a net are those that NumPy finds; what cannot be calibrated is said."""

import hashlib

import numpy as np
import pytest

from deploykit.importers.graph_files import save_graph
from deploykit.quantization.calibration import BINS, calibrate, least_error_range
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.int8.ranges import load_ranges
from deploykit.verification.samples import Dataset
from tests.deploykit.quantization.conftest import by_numpy, conv_net
from tests.support import Containing, build, building, built, raises, random, says, shows, tf


def samples(count: int = 7) -> np.ndarray:
    """Return samples that grow, so that the last batch is not like the others."""
    scale = np.arange(1, count + 1, dtype=np.float32).reshape(-1, 1, 1, 1)
    return random(count, 6, 7, 2) * scale


def ranges_of(graph, data, batch=None, method="minmax"):
    feeds = Dataset.of(graph, data, labelled=False).feeds(batch)
    return calibrate(graph, feeds, method=method)


def differences(found, x):
    """Return how far ranges are from NumPy's, relative to the largest value of each tensor."""
    worst = 0.0
    expected = by_numpy(x.astype(np.float64))
    assert set(found.ranges.tensors) == set(expected)
    for name, values in expected.items():
        got, axes = found.ranges.of(name, values.shape[-1]), tuple(range(values.ndim - 1))
        pairs = [
            (got.min, values.min()),
            (got.max, values.max()),
            (got.channel_mean, values.mean(axes)),
            (got.channel_min, values.min(axes)),
        ]
        errors = [np.abs(np.subtract(a, b)).max() / np.abs(values).max() for a, b in pairs]
        worst = max(worst, *errors)
    return worst


@pytest.mark.parametrize("batch", [None, 1, 3, 7])
def test_ranges_are_those_of_numpy(in_process, batch):
    x = samples()
    found = ranges_of(conv_net(), {"x": x, "labels": np.zeros(2)}, batch)
    assert differences(found, x) < 1e-6
    assert found.ranges.samples == 7
    assert found.notes == ()


def test_tensors_stand_in_execution_order(in_process):
    found = ranges_of(conv_net(), {"x": samples()})
    assert list(found.ranges.tensors) == ["x", "conv", "biased", "relu6", "pooled", "dense"]


def test_any_iterable_of_feeds_will_do(in_process):
    x = samples()

    class Feeds:  # as a reader of files would be
        def __iter__(self):
            yield {"x": x[:5]}
            yield {"x": x[5:]}

    for method in ("minmax", "mse"):
        found = calibrate(conv_net(), Feeds(), method=method)
        assert found.ranges.samples == 7
    assert differences(calibrate(conv_net(), Feeds()), x) < 1e-6
    with raises(GraphError, "no-samples"):
        calibrate(conv_net(), [])


def test_mse_cuts_off_tails_and_keeps_what_channels_hold(in_process):
    x = np.random.default_rng(0).laplace(size=(200, 6, 7, 2)).astype(np.float32)
    data = {"x": x}
    whole = ranges_of(conv_net(), data).ranges.of("x")
    clipped = ranges_of(conv_net(), data, 16, "mse").ranges.of("x")
    np.testing.assert_allclose((whole.min, whole.max), (x.min(), x.max()), 1e-6)
    assert whole.min < clipped.min < clipped.max < whole.max
    assert clipped.channel_min == whole.channel_min

    counts, _ = np.histogram(x, BINS, (x.min(), x.max()))
    expected = least_error_range(counts, float(x.min()), float(x.max()))
    np.testing.assert_allclose((clipped.min, clipped.max), expected, rtol=0.02)


def test_channels_first(in_process):
    def body():
        x = tf.compat.v1.placeholder(tf.float32, [None, 3, 4, 5], name="x")
        y = tf.raw_ops.Relu(features=x, name="before")
        y = tf.nn.bias_add(y, [0.0, 10.0, 20.0], data_format="NCHW", name="biased")
        y = tf.nn.relu(y, name="after")
        tf.transpose(y, [0, 2, 3, 1], name="turned")

    x = random(6, 3, 4, 5)
    found = ranges_of(build(body, ["x"], ["turned"]), {"x": x}, 4).ranges
    active = np.maximum(x, 0)
    biased = active + np.float32([0, 10, 20]).reshape(1, 3, 1, 1)
    for name, values in {"x": x, "before": active, "biased": biased, "after": biased}.items():
        np.testing.assert_allclose(found.of(name, 3).channel_mean, values.mean((0, 2, 3)), 1e-5)
    np.testing.assert_allclose(found.of("turned", 3).channel_mean, biased.mean((0, 2, 3)), 1e-5)


def test_where_nan_first_came_from(in_process):
    def body():
        x = tf.compat.v1.placeholder(tf.float32, [None, 4], name="x")
        tf.add(tf.exp(tf.sqrt(x, name="root"), name="grown"), 1.0, name="out")

    graph = build(body, ["x"], ["out"])
    x = np.ones((9, 4), np.float32)
    x[6, 1] = -1
    with raises(
        GraphError, "node-gives-nan", node="root", type="Sqrt", what="NaN", where="sample 6"
    ):
        ranges_of(graph, {"x": x}, 4)
    x[6, 1] = 1e6  # exp overflows
    with raises(
        GraphError, "node-gives-nan", node="grown", type="Exp", what="Inf", where="sample 6"
    ):
        ranges_of(graph, {"x": x}, 4)
    x[8, 0], x[6, 1] = np.nan, 1
    with raises(GraphError, "data-hold-nan", name="x", what="NaN", where="sample 8"):
        ranges_of(graph, {"x": x}, 4)


def test_values_whose_sum_overflows_are_finite(in_process):
    def body():
        x = tf.compat.v1.placeholder(tf.float32, [None, 40, 4], name="x")
        tf.identity(x, name="out")

    x = np.full((2, 40, 4), 3e37, np.float32)
    found = ranges_of(build(body, ["x"], ["out"]), {"x": x}).ranges.of("x", 4)
    np.testing.assert_allclose(found.channel_mean, 3e37, 1e-6)


def test_idle_tensors_are_kept_and_said(in_process):
    with building(["x"], ["dead", "same"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 4], name="x")
        tf.nn.relu(tf.subtract(x, 5.0, name="low"), name="dead")
        tf.clip_by_value(x, 2.0, 2.0, name="same")
    found = ranges_of(graph, {"x": random(3, 4)}, method="mse")
    assert (found.ranges.of("dead").min, found.ranges.of("dead").max) == (0, 0)
    assert shows(found.notes[0], "never-active-on-samples", tensors=Containing("dead"))
    assert shows(found.notes[1], "constant-on-samples", tensors=Containing("same"))


def conditional(version: int):
    """Return a graph with layers in a branch and in a loop, and one behind them."""

    def body():
        v1 = tf.compat.v1
        (v1.enable_control_flow_v2 if version == 2 else v1.disable_control_flow_v2)()
        x = v1.placeholder(tf.float32, [None, 4], name="x")
        weights = tf.constant(random(4, 4), name="weights")
        y = v1.cond(
            tf.reduce_sum(x) > 0,
            lambda: tf.matmul(x, weights, name="taken"),
            lambda: tf.matmul(-x, weights, name="other"),
        )
        y = v1.while_loop(
            lambda i, y: i < 2,
            lambda i, y: (i + 1, tf.matmul(y, weights, name="looped")),
            [tf.constant(0), y],
        )[1]
        tf.matmul(y, weights, name="after")

    try:
        return build(body, ["x"], ["after"])
    finally:
        tf.compat.v1.enable_control_flow_v2()


@pytest.mark.parametrize("version", [1, 2])
def test_layers_in_loops_and_branches_are_left_out(in_process, version):
    x = random(6, 4, low=0.5)
    weights = random(4, 4)
    found = ranges_of(conditional(version), {"x": x}, 4)
    expected = x @ weights @ weights @ weights @ weights
    np.testing.assert_allclose(found.ranges.of("after").max, expected.max(), 1e-5)
    (note,) = found.notes
    assert shows(note, "layers-in-loops-skipped")
    for name in ("taken", "other", "looped"):
        assert name in note
        assert not any(name in tensor for tensor in found.ranges.tensors)


def test_channels_that_differ_in_number_and_tensors_of_one_axis(in_process):
    def body():
        x = tf.compat.v1.placeholder(tf.float32, None, name="x")
        scale = tf.compat.v1.placeholder(tf.float32, [], name="scale")
        flat = tf.reshape(x, [-1], name="flat")
        tf.multiply(tf.matmul(x, x, transpose_b=True, name="pairs"), scale, name="out")
        tf.reduce_sum(flat, name="sum")

    graph = build(body, ["x", "scale"], ["out", "sum"])
    x = random(5, 3)
    found = ranges_of(graph, {"x": x, "scale": np.float32(2)}, 3).ranges
    assert set(found.tensors) == {"x", "pairs", "out"}
    whole = [x[:3] @ x[:3].T, x[3:] @ x[3:].T]
    assert found.of("pairs").channel_mean == ()
    np.testing.assert_allclose(found.of("pairs").max, max(a.max() for a in whole), 1e-6)
    np.testing.assert_allclose(found.of("out").min, 2 * min(a.min() for a in whole), 1e-6)


@built(["x"], ["out"])
def fixed_batch():
    x = tf.compat.v1.placeholder(tf.float32, [4, 3], name="x")
    tf.matmul(x, random(3, 2), name="out")


def test_a_graph_that_demands_a_batch(in_process, caplog):
    found = ranges_of(fixed_batch(), {"x": random(10, 3)})
    assert found.ranges.samples == 8
    assert shows(caplog.text, "samples-skipped", count=2, every=10)
    with pytest.raises(GraphError, match=says("data-batch-fixed", count=3, batch=4)):
        ranges_of(fixed_batch(), {"x": random(3, 3)})
    with raises(GraphError, "batch-fixed", fixed=4, batch=2):
        ranges_of(fixed_batch(), {"x": random(8, 3)}, 2)


def whole_numbers(kind: str):
    def body():
        x = tf.compat.v1.placeholder(kind, [None, 3], name="x")
        y = tf.strings.length(x) if kind == "string" else x
        tf.add(y, y, name="numbers")
        tf.nn.relu(tf.cast(y, tf.float32), name="floats")

    return body


@pytest.mark.parametrize("kind", ["string", "int32"])
def test_models_of_other_types(in_process, kind):
    values = np.array([["a", "bcd", ""]]) if kind == "string" else np.array([[1, 3, 0]])
    with raises(GraphError, "calibrate-nothing"):
        ranges_of(build(whole_numbers(kind), ["x"], ["numbers"]), {"x": values})
    found = ranges_of(build(whole_numbers(kind), ["x"], ["floats"]), {"x": values}).ranges
    assert found.of("floats").channel_mean == (1, 3, 0)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            {"y": samples(), "z": samples()},
            says("unknown-name", kind="array for input", name="x", known="y, z"),
        ),
        ({"x": samples()[:, :5]}, says("data-shape", shape=[7, 5, 7, 2], expected=[None, 6, 7, 2])),
        ({"x": samples().astype("c8")}, says("does-not-fit", got="complex64", expected="float32")),
        ({"x": samples()[:0]}, says("no-samples")),
    ],
)
def test_data_that_do_not_fit(data, said):
    with pytest.raises(GraphError, match=said):
        Dataset.of(conv_net(), data).feeds()


def test_the_command(deploykit, tmp_path):
    model, data, x = tmp_path / "net.pb", tmp_path / "data.npz", samples()
    save_graph(conv_net(), model)
    np.savez(data, x=x)
    found = deploykit("calibrate", model, "--data", data, "--batch", 3, "--json")
    assert found.status == 0, found.stderr
    output = tmp_path / "net.ranges.json"
    document = found.document
    assert document["output_file"] == str(output)
    assert (document["samples"], document["tensors"], document["method"]) == (7, 6, "minmax")
    ranges = load_ranges(output)
    assert ranges.model_sha256 == hashlib.sha256(model.read_bytes()).hexdigest()
    assert document["widest"][0]["max"] == max(each.max for each in ranges.tensors.values())
    means = by_numpy(x)["relu6"].mean((0, 1, 2))
    np.testing.assert_allclose(ranges.of("relu6").channel_mean, means, 1e-5)
    text = output.read_text()
    assert ranges.text() == text

    again = deploykit("calibrate", model, "--data", data)
    assert (again.status, again.printed) == (4, "")
    assert "--force" in again.stderr
    again = deploykit("calibrate", model, "--data", data, "--batch", 3, "--force")
    assert again.status == 0
    assert again.stdout == Containing(" 6 ", " 7 ")
    assert output.read_text() == text, "the same text for the same data"


def test_a_tensor_whose_elements_no_integer_counts_is_refused_by_tensorflow(in_process):
    with building(["x"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, name="x")
        tf.raw_ops.Reshape(tensor=x, shape=np.array([1 << 62] * 2, np.int64), name="out")
    with raises(GraphError, "runtime-failed"):
        calibrate(graph, [{"x": np.ones((2, 4), np.float32)}])
