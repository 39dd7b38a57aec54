"""Samples: whatever data are, they are checked once, and what does not fit is said."""

import numpy as np
import pytest

import deploykit
from deploykit.benchmarking.inputs import batches
from deploykit.data.samples import open_samples
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from deploykit.verification.samples import Dataset
from tests.support import because, build, raises, random, says, tf

X = random(20, 4)
LABELS = np.arange(20) % 3


def net():
    """A layer with a size of its own, so that 8 bits have something to do."""
    x = tf.compat.v1.placeholder(tf.float32, [None, 4], name="x")
    tf.nn.relu(tf.matmul(x, random(4, 3)), name="out")


@pytest.fixture(scope="module")
def graph():
    return build(net, ["x"], ["out"])


def forms() -> dict[str, object]:
    """The same samples in all forms that need no file."""
    dataset = tf.data.Dataset.from_tensor_slices
    return {
        "arrays": {"x": X, "labels": LABELS},
        "label": {"x": X, "label": LABELS, "unused": np.zeros(3)},
        "array": X,
        "pair": (X, LABELS),
        "doubles": {"x": X.astype("f8")},
        "dataset": dataset((X, LABELS)),
        "batches": dataset((X, LABELS)).batch(8),
        "by name": dataset({"x": X, "labels": LABELS}).batch(7),
        "alone": dataset(X),
    }


@pytest.mark.sampled
@pytest.mark.parametrize("name", forms())
def test_every_form_gives_the_same_samples(graph, name):
    found = open_samples(forms()[name], graph)
    np.testing.assert_array_equal(found.arrays["x"], X)
    assert found.arrays["x"].dtype == np.float32
    if name in ("array", "doubles", "alone"):
        assert found.labels is None
    else:
        np.testing.assert_array_equal(found.labels, LABELS)
    assert open_samples(found, graph) is found


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"y": X, "z": X}, says("unknown-name", kind="array for input", name="x", known="y, z")),
        ({"x": X[:, :3]}, says("data-shape", shape=[20, 3], expected=[None, 4])),
        ({"x": X.astype("c8")}, says("does-not-fit", got="complex64", expected="float32")),
        ({"x": X, "labels": LABELS[:5]}, says("counts-differ", count=5, other_count=20)),
        ((X, LABELS, LABELS), says("samples-by-name", inputs=["x"])),
    ],
)
def test_what_does_not_fit_is_said(graph, data, said):
    with pytest.raises(GraphError, match=said):
        open_samples(data, graph)


def test_datasets_that_cannot_be_taken(graph):
    dataset = tf.data.Dataset.from_tensor_slices(X)
    for wrong, code in ((dataset.repeat(), "dataset-endless"), (dataset.take(0), "no-samples")):
        with raises(GraphError, code):
            open_samples(wrong, graph)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_gaps_are_found_where_they_are(graph, bad):
    x = X.copy()
    x[7, 2] = bad
    samples = Dataset.of(graph, {"x": x}, source="some.npz")
    kind = "NaN" if np.isnan(bad) else "Inf"
    with raises(GraphError, "data-hold-kind", source="some.npz", kind=kind):
        samples.refuse_gaps()


@pytest.fixture
def checks(monkeypatch):
    """Count how often arrays are checked against a graph's inputs."""
    counted = []
    check = Dataset.of.__func__

    def of(cls, graph, data, *given, **more):
        if not isinstance(data, Dataset):
            counted.append(data)
        return check(cls, graph, data, *given, **more)

    monkeypatch.setattr(Dataset, "of", classmethod(of))
    return counted


@pytest.mark.sampled
def test_quantizing_checks_its_data_once(graph, checks, tmp_path):
    np.savez(tmp_path / "data.npz", x=X)
    deploykit.save_graph(graph, tmp_path / "m.pb")
    deploykit.quantize(
        tmp_path / "m.pb", calibration=tmp_path / "data.npz", budget=0.05, allow_float=True
    )
    assert len(checks) == 1
    checks.clear()
    deploykit.quantize(tmp_path / "m.pb", data=tmp_path / "data.npz", minimum_size=1)
    assert len(checks) == 1


def test_a_photo_is_announced(tmp_path, caplog):
    def photos():
        x = tf.compat.v1.placeholder(tf.float32, [None, 8, 6, 3], name="photo")
        tf.reduce_mean(x, [1, 2], name="out")

    folder = tmp_path / "photos"
    folder.mkdir()
    pixels = np.random.default_rng(0).integers(0, 255, (16, 12, 3)).astype(np.uint8)
    (folder / "a.png").write_bytes(tf.io.encode_png(pixels).numpy())
    graph = build(photos, ["photo"], ["out"])
    caplog.set_level("INFO", "deploykit")
    found = open_samples(str(folder), graph, "0..1")
    assert found.arrays["photo"].shape == (1, 8, 6, 3)
    line = "photos 12x16 -> 6x8 bilinear, 0..1 (from --preprocess)"
    assert found.fed == {"photo": line}
    assert caplog.messages == [f"photo: {line}"]
    assert found.preprocessing["inputs"]["photo"]["resize"] == [8, 6]


def placeholders(**inputs) -> Graph:
    """Return a graph of placeholders, each with its type and shape."""
    nodes = [
        Node(name, "Placeholder").with_attrs(dtype=DType(type_), shape=shape)
        for name, (type_, shape) in inputs.items()
    ]
    return Graph(nodes, list(inputs), list(inputs))


def test_the_only_array_is_taken_under_any_name(caplog):
    graph = placeholders(x=("float32", (-1, 4)))
    caplog.set_level("INFO", "deploykit")
    found = Dataset.of(graph, {"embeddings": X, "labels": LABELS})
    np.testing.assert_array_equal(found.arrays["x"], X)
    assert caplog.messages == [because("only-array", name="x", array="embeddings")]
    for names, inputs in ((("a", "b"), graph), (("a",), placeholders(x=X4, y=X4))):
        with raises(GraphError, "unknown-name", kind="array for input", name="x"):
            Dataset.of(inputs, dict.fromkeys(names, X))


X4 = ("float32", (-1, 4))


def test_whole_floats_are_integers(caplog):
    graph = placeholders(ids=("int32", (-1, 2)))
    caplog.set_level("INFO", "deploykit")
    found = Dataset.of(graph, {"ids": np.array([[1.0, 2.0], [-3.0, 4.0]])})
    assert found.arrays["ids"].dtype == np.int32
    assert found.arrays["ids"].tolist() == [[1, 2], [-3, 4]]
    expected = {"name": "ids", "type": "int32", "got": "float64"}
    assert caplog.messages == [because("values-converted", **expected)]


@pytest.mark.parametrize("value", [2.5, np.nan, np.inf, 2.0**40])
def test_the_first_value_that_is_not_whole_is_named(value):
    graph = placeholders(ids=("int32", (-1, 2)))
    with raises(GraphError, "data-value-misfit", index=[1, 0]) as found:
        Dataset.of(graph, {"ids": np.array([[1.0, 2.0], [value, 0.5]])})
    assert str(found.value.fields["value"]) == str(value)


def test_a_scalar_takes_one_value_or_several_in_turn():
    graph = placeholders(wav=("string", ()))
    sound = b"RIFF\0\1\0\0"
    for array in (np.array(sound), np.array([sound]), np.frombuffer(sound, f"V{len(sound)}")):
        (feed,) = Dataset.of(graph, {"wav": array}).feeds()
        assert feed["wav"].shape == ()
        assert feed["wav"].item() == sound
    texts = Dataset.of(graph, {"wav": np.array([b"a", b"bc"])}).arrays["wav"]
    assert texts.tolist() == [b"a", b"bc"]
    several = Dataset.of(graph, {"wav": np.array(["a", "b", "c"])})
    assert several.count == 3
    assert [feed["wav"].item() for feed in several.feeds()] == ["a", "b", "c"]
    assert [feed[0].item() for feed in batches(graph, data=several)] == ["a", "b", "c"]


def test_a_rate_beside_samples_is_one_value():
    graph = placeholders(x=X4, rate=("float32", ()))
    feeds = Dataset.of(graph, {"x": X, "rate": np.array([0.5])}).feeds()
    assert [feed["rate"].tolist() for feed in feeds] == [0.5] * 3
    with raises(GraphError, "input-takes-one", name="rate", count=20):
        Dataset.of(graph, {"x": X, "rate": X[:, 0]})
