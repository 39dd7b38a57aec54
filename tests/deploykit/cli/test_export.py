"""Models of every kind are exported; TensorFlow's loaders read them, and they answer alike."""

import hashlib
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deploykit as public
from deploykit.benchmarking.run_config import RunConfig
from deploykit.serving.execution.engines.engine import Loading
from deploykit.serving.execution.engines.open_version import open_version
from deploykit.serving.protocol.signatures import read_meta_graph, signatures_of
from deploykit.serving.saved_model.warmup_requests import FILE as WARM_UP
from deploykit.serving.saved_model.warmup_requests import read_requests
from deploykit.storage.arrays import load_data
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.protos import SavedModel
from deploykit.transforms.ir.tensors import DType, decode
from tests import pairwise
from tests.deploykit.conftest import FASHION, refusals
from tests.loading import answers
from tests.support import assert_golden, because, built, raises, random, run, shows, tf

pytestmark = pytest.mark.usefixtures("in_process")

X = random(3, 8, 8, 3)
PARTS = {"saved_model.pb", "variables", "assets.extra"}


def assert_answers(
    folder: Path, signature: str, feeds: dict[str, Any], wanted: dict[str, Any]
) -> None:
    """Compare what TensorFlow's loaders and deploykit's own server make of a version."""
    served = open_version(folder, "m", 1, Loading())
    ours = served.run(signature, feeds, sorted(wanted), None)
    served.close()
    for found in (*answers(folder, signature, feeds), ours):
        assert set(found) == set(wanted)
        for alias, array in wanted.items():
            np.testing.assert_allclose(found[alias], array, rtol=1e-5, atol=1e-6, err_msg=alias)


def tf_examples(**features: np.ndarray) -> np.ndarray:
    """Return samples as serialized tf.Examples, written by TensorFlow's own class."""
    found = []
    for n in range(len(next(iter(features.values())))):
        example = tf.train.Example()
        for name, array in features.items():
            feature, values = example.features.feature[name], array[n : n + 1].ravel().tolist()
            if array.dtype.kind == "O":
                feature.bytes_list.value.extend(values)
            elif array.dtype.kind == "f":
                feature.float_list.value.extend(values)
            else:
                feature.int64_list.value.extend(map(int, values))
        found.append(example.SerializeToString())
    return np.array(found, object)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_frozen_graph(deploykit, small, tmp_path):
    found = deploykit("export", small, tmp_path / "base", "--json")
    assert found.status == 0, found.stderr
    folder = tmp_path / "base" / "small" / "1"
    document = found.document
    assert document["output_file"] == str(folder)
    assert (document["name"], document["version"]) == ("small", 1)
    assert {p.name for p in folder.iterdir()} == PARTS
    assert document["bytes_out"] == sum(map(len, contents(folder).values()))
    (signature,) = signatures_of(read_meta_graph(folder)).values()
    assert signature.method == "tensorflow/serving/predict"
    assert {a: (t.dtype, t.shape) for a, t in signature.inputs.items()} == {
        "x": ("float32", (-1, 8, 8, 3))
    }
    assert {a: (t.dtype, t.shape) for a, t in signature.outputs.items()} == {
        "out": ("float32", (-1, 10))
    }
    (wanted,) = run(public.load_graph(small), {"x": X})
    assert_answers(folder, "serving_default", {"x": X}, {"out": wanted})


@pytest.mark.slow
def test_the_same_bytes_each_time(deploykit, tmp_path):
    for method in ("predict", "classify"):
        for _ in range(2):
            assert deploykit(
                "export", FASHION / "tf1", tmp_path, "--warmup", FASHION / "test_1000.npz",
                f"--method={method}", "--name", method,
            ).status == 0  # fmt: skip
        first, second = (contents(tmp_path / method / n) for n in "12")
        assert first == second
        assert WARM_UP in first
    text = (tmp_path / "predict" / "1" / "assets.extra" / "deploykit.json").read_text()
    assert str(tmp_path) not in text
    assert str(FASHION) not in text


def test_provenance(deploykit, small, tmp_path):
    assert deploykit("export", small, tmp_path).status == 0
    folder = tmp_path / "small" / "1"
    document = json.loads((folder / "assets.extra" / "deploykit.json").read_text())
    for entry, path in (("source", small), ("saved_model", folder / "saved_model.pb")):
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        assert document[entry] == {"sha256": digest, "bytes": len(content)}
    assert set(document["versions"]) == {"deploykit", "tensorflow"}
    assert document["signatures"]["serving_default"]["outputs"] == {
        "out": {"dtype": "float32", "shape": [None, 10]}
    }


@pytest.mark.sampled
@pytest.mark.parametrize(
    "source", pairwise.drawn("fashion", ["tf1/model.ckpt", "fashion.keras"], 1, quick=1)
)
def test_fashion(deploykit, source, tmp_path):
    data = FASHION / "test_1000.npz"
    found = deploykit(
        "export", FASHION / source, tmp_path, "--name=fashion", "--warmup", data,
        "--method=classify",
    )  # fmt: skip
    assert found.status == 0, found.stderr
    assert because("warm-up-requests", count=20) in found.stdout
    folder = tmp_path / "fashion" / "1"
    images = load_data(data)["images"][:20]
    graph = public.freeze(FASHION / source)
    (wanted,) = run(graph, {"images": images})
    assert_answers(folder, "serving_default", {"images": images}, {graph.outputs[0]: wanted})
    examples = tf_examples(images=images)
    assert_answers(folder, "classify", {"inputs": examples}, {"scores": wanted})
    warm = list(read_requests(folder))
    assert len(warm) == 20
    request = warm[7].classify_log.request
    assert request.model_spec.signature_name == "classify"
    assert [e.SerializeToString(deterministic=True) for e in request.input.example_list.examples]
    (example,) = request.input.example_list.examples
    sample = load_data(data)["images"][7 * 999 // 19]
    assert example.features.feature["images"].float_list.value == sample.ravel().tolist()


@pytest.mark.sampled
def test_warm_up_for_predict(deploykit, small, tmp_path):
    data = tmp_path / "data.npz"
    samples = random(1003, 8, 8, 3)
    np.savez(data, x=samples, labels=np.arange(1003))
    for version, (more, count) in enumerate(
        [((), 20), (("--warmup-samples=1",), 1), (("--warmup-samples=1000",), 1000)], start=1
    ):
        assert deploykit("export", small, tmp_path, "--warmup", data, *more).status == 0
        warm = list(read_requests(tmp_path / "small" / str(version)))
        assert len(warm) == count
        places = np.arange(count) * 1002 // max(count - 1, 1)  # the first, the last, evenly between
        for place, each in zip(places, warm, strict=True):
            request = each.predict_log.request
            assert request.model_spec.name == "small"
            np.testing.assert_array_equal(decode(request.inputs["x"])[0], samples[place])


def test_of_files_the_first_warm_up():
    """No more of a pipeline is read than is kept."""
    from deploykit.serving.saved_model.warmup_requests import some

    feeds = iter([{"x": n} for n in range(30)])
    assert [each["x"] for each in some(feeds, 20)] == list(range(20))
    assert next(feeds)["x"] == 20
    assert [each["x"] for each in some([{"x": n} for n in range(5)], 20)] == list(range(5))


@pytest.fixture
def signed(tmp_path) -> Path:
    """Return a SavedModel of TensorFlow 1 whose aliases are not its nodes' names."""
    import tensorflow.compat.v1 as tf

    folder = tmp_path / "signed" / "12"
    builder = tf.saved_model.Builder(str(folder))
    with tf.Graph().as_default(), tf.Session() as session:
        words = tf.placeholder(tf.string, [None], name="p1")
        number = tf.placeholder(tf.float32, [None, 2], name="p2")
        idle = tf.placeholder(tf.int64, [None], name="p3")
        names = tf.lookup.KeyValueTensorInitializer(["a", "b"], [1.0, 2.0])
        table = tf.lookup.StaticHashTable(names, -1.0)
        weight = tf.get_variable("w", [2, 1], initializer=tf.ones_initializer())
        sums = tf.identity(tf.matmul(number, weight)[:, 0] + table.lookup(words), name="s")
        examples = tf.placeholder(tf.string, [None], name="e")
        spec = {"number": tf.io.FixedLenFeature([2], tf.float32)}
        parsed = tf.matmul(tf.io.parse_example(examples, spec)["number"], weight)
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        make, info = tf.saved_model.build_signature_def, tf.saved_model.build_tensor_info
        signatures = {
            "sums": make(
                {"word": info(words), "number/s": info(number), "unused": info(idle)},
                {"sum": info(sums), "again": info(sums)},
                "tensorflow/serving/predict",
            ),
            "parsed": make(
                {"inputs": info(examples)}, {"outputs": info(parsed)}, "tensorflow/serving/regress"
            ),
        }
        builder.add_meta_graph_and_variables(
            session, ["serve"], signatures, main_op=tf.tables_initializer()
        )
    builder.save()
    return folder


WORDS = np.array([b"b", b"x", b"a"], object)
NUMBERS = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
SUMS = [5.0, 6.0, 12.0]


def test_a_saved_model_keeps_its_signature(deploykit, signed, tmp_path):
    data = tmp_path / "data.npz"
    np.savez(data, **{"word": WORDS.astype("S"), "number/s": NUMBERS, "unused": np.arange(3)})
    found = deploykit(
        "export", signed, tmp_path, "--signature=sums", "--warmup", data, "--method=regress",
        "--outputs=sum",
    )  # fmt: skip
    assert found.status == 0, found.stderr
    folder = tmp_path / "signed" / "13"
    feeds = {"word": WORDS, "number/s": NUMBERS, "unused": np.arange(3)}
    for name in ("sums", "serving_default"):
        assert_answers(folder, name, feeds, {"sum": SUMS})
    examples = tf_examples(**feeds)
    assert_answers(folder, "regress", {"inputs": examples}, {"outputs": SUMS})
    request = next(read_requests(folder)).regress_log.request
    assert request.model_spec.signature_name == "regress"
    assert deploykit("export", signed, tmp_path, "--signature=sums").status == 0
    assert_answers(tmp_path / "signed" / "14", "sums", feeds, {"sum": SUMS, "again": SUMS})


def test_a_signature_keeps_its_method(deploykit, signed, tmp_path):
    found = deploykit("export", signed, tmp_path, "--signature=parsed", "--name=r")
    assert found.status == 0, found.stderr
    for name in ("parsed", "serving_default"):
        assert_answers(
            tmp_path / "r" / "1", name, {"inputs": tf_examples(number=NUMBERS)},
            {"outputs": NUMBERS.sum(1, keepdims=True)},
        )  # fmt: skip
    signatures = signatures_of(read_meta_graph(tmp_path / "r" / "1"))
    assert {each.method for each in signatures.values()} == {"tensorflow/serving/regress"}
    found = deploykit("export", signed, tmp_path, "--signature=parsed", "--method=classify")
    assert found.status == 2
    assert shows(found.stderr, "signature-has-method", signature="parsed", present="regress")
    np.savez(tmp_path / "d.npz", inputs=np.array([b"x"]))
    found = deploykit("export", signed, tmp_path, "--signature=parsed", "--warmup",
                      tmp_path / "d.npz")  # fmt: skip
    assert found.status == 2
    assert shows(found.stderr, "warmup-takes-examples", signature="parsed")


@pytest.mark.sampled
def test_all_signatures_stay(deploykit, tmp_path):
    """TensorFlow 2 gives inputs of the same alias in two signatures a node each."""

    class Model(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = tf.Variable(random(3, 2))

        @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
        def first(self, x: Any) -> dict[str, Any]:
            return {"y": tf.matmul(x, self.w), "z": x[:, 0]}

        @tf.function(
            input_signature=[
                tf.TensorSpec([None, 3], tf.float32, name="x"),
                tf.TensorSpec([], tf.bool, name="is_training"),
                tf.TensorSpec([None], tf.float32, name="idle"),
            ]
        )
        def second(self, x: Any, is_training: Any, idle: Any) -> dict[str, Any]:
            return {"y": tf.matmul(x + tf.cast(is_training, tf.float32), self.w) * 2.0}

    model = Model()
    signatures = {"serving_default": model.first, "second": model.second}
    tf.saved_model.save(model, str(tmp_path / "two"), signatures)
    found = deploykit("export", tmp_path / "two", tmp_path / "base", "--json")
    assert found.status == 0, found.stderr
    assert "is_training" not in found.document["signatures"]["second"]["inputs"]
    folder = tmp_path / "base" / "two" / "1"
    x = random(4, 3)
    y = x @ random(3, 2)
    assert_answers(folder, "serving_default", {"x": x}, {"y": y, "z": x[:, 0]})
    assert_answers(folder, "second", {"x": x, "idle": random(4)}, {"y": y * 2})
    found = deploykit("export", tmp_path / "two", tmp_path / "base", "--signature=second")
    assert found.status == 0, found.stderr
    folder = tmp_path / "base" / "two" / "2"
    assert set(signatures_of(read_meta_graph(folder))) == {"serving_default", "second"}
    assert_answers(folder, "serving_default", {"x": x, "idle": random(4)}, {"y": y * 2})


def test_a_method_does_not_replace_a_signature(deploykit, tmp_path):
    from tests.serving.small_models import half_plus

    half_plus(tmp_path / "half", 2.0)
    found = deploykit("export", tmp_path / "half" / "00000123", tmp_path / "base")
    assert found.status == 0, found.stderr
    there = signatures_of(read_meta_graph(tmp_path / "half" / "00000123"))
    ours = signatures_of(read_meta_graph(tmp_path / "base" / "half" / "1"))
    assert {name: each.method for name, each in ours.items()} == {
        name: each.method for name, each in there.items()
    }
    for name, each in there.items():
        assert set(ours[name].inputs) == set(each.inputs)
        assert set(ours[name].outputs) == set(each.outputs)
    examples = tf_examples(x=np.array([[2.0]], np.float32))
    for name, each in there.items():
        if each.method != "tensorflow/serving/predict":
            for found in answers(tmp_path / "base" / "half" / "1", name, {"inputs": examples}):
                assert [a.ravel().tolist() for a in found.values()] == [[3.0]]


@built(["flag", "byte", "half", "text"], ["names", "numbers"])
def typed_graph():
    v1 = tf.compat.v1
    flag = v1.placeholder(tf.bool, [None], name="flag")
    byte = v1.placeholder(tf.uint8, [None, 2, 3], name="byte")
    half = v1.placeholder(tf.float16, [None, None], name="half")
    text = v1.placeholder(tf.string, [None, 2], name="text")
    numbers = [tf.cast(flag, tf.float32), tf.reduce_sum(tf.cast(byte, tf.float32), [1, 2]),
               tf.reduce_sum(tf.cast(half, tf.float32), 1)]  # fmt: skip
    scores = tf.stack(numbers, 1)
    joined = tf.strings.reduce_join(text, 1, keepdims=True)
    tf.identity(tf.tile(joined, [1, 3]), name="names")
    tf.identity(scores, name="numbers")


def test_examples_of_all_kinds(tmp_path):
    feeds = {
        "flag": np.array([True, False]),
        "byte": np.arange(12, dtype=np.uint8).reshape(2, 2, 3),
        "half": np.array([[1, 2], [3, 4]], np.float16),
        "text": np.array([[b"a", b"b"], [b"c", b"d"]], object),
    }
    graph = typed_graph()
    names, numbers = run(graph, feeds)
    found = public.export(graph, tmp_path, name="t", method="classify")
    for each in answers(found.folder, "classify", {"inputs": tf_examples(**feeds)}):
        np.testing.assert_array_equal(each["classes"], names)
        np.testing.assert_array_equal(each["scores"], numbers)
    for each in answers(found.folder, "serving_default", feeds):
        np.testing.assert_array_equal(each["numbers"], numbers)
    assert len(graph.inputs) == 4, "the caller's graph is not changed"


def test_names_and_scores_of_other_shapes_make_no_classes(tmp_path):
    graph = typed_graph()
    graph.add(Node("first", "Slice", ("names", "begin", "sizes")).with_attrs(
        T=DType("string"), Index=DType("int32")))  # fmt: skip
    graph.add(Node.constant("begin", np.array([0, 0], np.int32)))
    graph.add(Node.constant("sizes", np.array([-1, 1], np.int32)))
    graph.outputs = ("first", "numbers")
    with raises(GraphError, "classify-outputs-differ"):
        public.export(graph, tmp_path, method="classify")


def test_manifests_lie_beside(deploykit, small, tmp_path):
    tuned = tmp_path / "tuned.json"
    tuned.write_text(json.dumps({"format": 1, "kind": "tuned", "settings": {
        "batch": 8, "threads": [1, 2], "onednn": True, "keep_memory": True}}))  # fmt: skip
    base = tmp_path / "base"
    asked = ("export", small, base, "--manifests=all", "--batching", "--tuned", tuned)
    found = deploykit(*asked, "--json")
    assert found.status == 0, found.stderr
    written = {Path(path).name for path in found.document["manifests"]}
    assert {p.name for p in base.iterdir()} == written | {"small"}
    assert "max_batch_size { value: 8 }" in (base / "batching.config").read_text()
    assert 'ENV TF_ENABLE_ONEDNN_OPTS="1"' in (base / "Dockerfile").read_text()
    found = deploykit(*asked, "--name=other")
    assert found.status == 4
    assert shows(found.stderr, "exists", what="the file")
    assert not (base / "other").exists(), "nothing is exported where the files cannot be"
    assert deploykit(*asked, "--name=other", "--force").status == 0
    assert '"/models/other"' in (base / "models.config").read_text()
    assert '"/models/small"' in (base / "models.config").read_text()


RECOMMENDED = {
    "batch": (8, "max_batch_size { value: 8 }"),
    "threads": ([2, 3], "--tensorflow_inter_op_parallelism=3"),
    "onednn": (False, 'TF_ENABLE_ONEDNN_OPTS="0"'),
    "env": ({"KMP_AFFINITY": "fine,compact"}, 'KMP_AFFINITY="fine,compact"'),
    "keep_memory": (True, 'MALLOC_TOP_PAD_="268435456"'),
    "xla": (True, "--tf_xla_auto_jit=2"),
    "precision": ("bf16", ""),
    "concurrency": (5, ""),
    "input": ("tfdata", ""),
    "device": ("gpu", ""),
    "executor": ("caller", 'executor_type: "SINGLE_THREADED_EXECUTOR"'),
    "engine": ("openvino", ""),
}
"""Each setting with a value, and what stands for it in the files; "": it is refused or told."""


@pytest.mark.parametrize(
    ("name", "manifests"),
    [*((each, "--manifests=docker") for each in RECOMMENDED),
     *((each, "--batching") for each in ("batch", "concurrency", "onednn", "engine")),
     ("batch", "")],
)  # fmt: skip
def test_nothing_that_is_recommended_is_left_out_without_a_word(
    name, manifests, deploykit, small, tmp_path
):
    assert {field.name for field in fields(RunConfig)} == set(RECOMMENDED)
    value, written = RECOMMENDED[name]
    tuned, base = tmp_path / "tuned.json", tmp_path / "base"
    tuned.write_text(json.dumps({"format": 1, "kind": "tuned", "settings": {name: value}}))
    found = deploykit("export", small, base, "--tuned", tuned, *filter(None, [manifests]))
    if name in ("precision", "input", "device", "engine") or not manifests:
        assert found.status == 2
        assert str(tuned) in found.stderr
        assert not base.exists()
        return
    assert found.status == 0, found.stderr
    texts = "".join(path.read_text() for path in base.iterdir() if path.is_file())
    is_told = f"{tuned} recommends" in found.stderr
    if manifests == "--batching" and name == "concurrency":
        written = "num_batch_threads { value: 5 }"
    assert is_told != bool(written and written in texts)
    is_batched = (base / "batching.config").exists()
    assert is_batched == (name == "batch" or manifests == "--batching")


def test_a_batch_that_is_recommended_is_refused_where_requests_cannot_share_it(deploykit, tmp_path):
    model, tuned = tmp_path / "model.pb", tmp_path / "tuned.json"
    public.save_graph(fixed_graph(), model)
    tuned.write_text(json.dumps({"format": 1, "kind": "tuned", "settings": {"batch": 8}}))
    options = ("--outputs=y", "--manifests=docker", "--tuned", tuned)
    found = deploykit("export", model, tmp_path / "base", *options)
    assert found.status == 2
    assert shows(found.stderr, "input-shape-not-batchable", alias="x", shape=[2, 3])
    assert not (tmp_path / "base").exists()


@built(["x"], ["y", "z"])
def fixed_graph():
    x = tf.compat.v1.placeholder(tf.float32, [2, 3], name="x")
    tf.identity(x * 2, name="y")
    tf.identity(x * 3, name="z")


WRONG = (
    "--name=12", "--name=a/b", "--version=-1", "--manifests=helm", "--batching",
    "--method=classify", "--method=regress --outputs=y", "--method=classify --outputs=y",
    "--warmup=missing.npz", "--outputs=w", "--tuned=missing.json",
)  # fmt: skip


@pytest.mark.golden("usage/export")
def test_bad_options(deploykit, tmp_path):
    model = tmp_path / "model.pb"
    public.save_graph(fixed_graph(), model)
    command = ("export", model, tmp_path / "base")
    assert_golden(*refusals(deploykit, command, WRONG, tmp_path))
    assert not (tmp_path / "base").exists()


def test_a_graph_above_2_gib_is_not_exported(deploykit, small, tmp_path, monkeypatch):
    monkeypatch.setattr("deploykit.serving.saved_model.proto.MAX_BYTES", 1000)
    found = deploykit("export", small, tmp_path / "base")
    assert found.status == 2
    assert shows(found.stderr, "graph-too-large")
    assert not (tmp_path / "base").exists()


def test_the_proto_is_what_protobuf_itself_writes(small, tmp_path):
    found = public.export(public.load_graph(small), tmp_path, name="m")
    content = (found.folder / "saved_model.pb").read_bytes()
    assert SavedModel.FromString(content).SerializeToString(deterministic=True) == content
