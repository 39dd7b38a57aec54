"""Every signature runs its model in the engine: images, class names and tf.Examples around it."""

import numpy as np
import pytest

import deploykit
from deploykit.exporting import engine_part
from deploykit.serving.execution.engines.engine import ALL, Loading
from deploykit.serving.execution.engines.open_version import open_version
from deploykit.serving.execution.engines.tensorflow_engine import TensorFlowEngine
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.saved_model.proto import example
from deploykit.transforms.common.documents import document
from deploykit.transforms.common.errors import VerificationError
from deploykit.transforms.engines.engine_folder import read
from deploykit.transforms.engines.engine_session import MODEL, is_cut
from tests.deploykit.exporting.test_engine_part import live
from tests.deploykit.exporting.test_photos import photos, texts
from tests.pairwise import once_each
from tests.support import Containing, because, build, raises, random

pytest.importorskip("openvino")
pytestmark = pytest.mark.usefixtures("in_process")

LABELS = ["a", "b", "c", "d"]
IMAGE, ROW = (None, 8, 8, 3), (None, 6)


def net(images):
    import tensorflow as tf

    y = tf.nn.relu(tf.nn.conv2d(images, random(3, 3, 3, 4, seed=1), 1, "SAME"))
    return tf.nn.softmax(tf.reduce_mean(y, [1, 2]))


def dense(rows):
    import tensorflow as tf

    return tf.nn.softmax(tf.matmul(rows, random(6, 4, seed=1)))


def one(rows):
    import tensorflow as tf

    return tf.matmul(rows, random(6, 1, seed=1))


CASES = {
    "images": (net, IMAGE, {"preprocess": "0..1"}),
    "images, named": (net, IMAGE, {"preprocess": "0..1", "labels": LABELS}),
    "images, classify": (net, IMAGE, {"preprocess": "-1..1", "method": "classify"}),
    "rows": (dense, ROW, {}),
    "rows, named": (dense, ROW, {"labels": LABELS}),
    "rows, classify": (dense, ROW, {"method": "classify"}),
    "rows, named classify": (dense, ROW, {"method": "classify", "labels": LABELS}),
    "rows, regress": (one, ROW, {"method": "regress"}),
}


def feeds_of(signature, batch):
    """Return arrays that a signature takes: files, pixels, tf.Examples or numbers."""
    found = {}
    for alias, tensor in signature.inputs.items():
        if alias == "bytes":
            found[alias] = texts(photos(batch))
        elif alias == "inputs" and tensor.dtype == "string":
            found[alias] = None
        elif alias == "pixels":
            found[alias] = np.full((batch, 9, 9, 3), 40, np.uint8)
        else:
            found[alias] = random(batch, *tensor.shape[1:])
    return found


def examples_of(signatures, batch):
    takes = next(s for n, s in signatures.items() if n in ("serving_default", "tensors"))
    feeds = feeds_of(takes, batch)
    rows = [{alias: array[n : n + 1] for alias, array in feeds.items()} for n in range(batch)]
    return texts([example(each).SerializeToString() for each in rows])


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_signature_runs_its_model_in_the_engine(tmp_path, monkeypatch, name):
    function, shape, options = CASES[name]
    found = deploykit.export(
        live(function, shape), tmp_path, name="m", engine="openvino", **options
    )
    assert document(found.engine)["left_to_tensorflow"] == {}
    assert document(found.engine)["signatures"] == sorted(found.signatures)
    plain = open_version(found.folder, "m", 1, Loading(slots=2, engine="tensorflow"))
    split = open_version(found.folder, "m", 1, Loading(slots=2))
    with monkeypatch.context() as patch:
        expected = {}
        for signature, each in plain.signatures.items():
            for batch in (1, 3):
                feeds = feeds_of(each, batch)
                if any(array is None for array in feeds.values()):
                    feeds = {"inputs": examples_of(plain.signatures, batch)}
                answer = plain.run(signature, feeds, list(each.outputs), 60.0, 1)
                expected[signature, batch] = feeds, answer
        patch.setattr(TensorFlowEngine, "compute", pytest.fail)  # it runs no model
        for (signature, _), (feeds, answer) in expected.items():
            for slot, seconds in ((1, 60.0), (2, None), (ALL, 60.0), (0, None)):
                outputs = list(split.signatures[signature].outputs)
                got = split.run(signature, feeds, outputs, seconds, slot)
                assert got.keys() == answer.keys()
                for alias, array in answer.items():
                    assert got[alias].shape == array.shape
                    if array.dtype.kind == "f":
                        np.testing.assert_allclose(got[alias], array, rtol=1e-3, atol=1e-6)
                    else:
                        assert (got[alias] == array).all()
                for alias in outputs:
                    assert [*split.run(signature, feeds, [alias], seconds, slot)] == [alias]
        assert [each.split()[0] for each in split.engines] == ["openvino"]
    split.close()
    plain.close()


@pytest.fixture
def served(tmp_path):
    options = {"preprocess": "0..1", "labels": LABELS, "engine": "openvino"}
    found = deploykit.export(live(net, IMAGE), tmp_path, name="m", **options)
    servable = open_version(found.folder, "m", 1, Loading(slots=2))
    yield servable
    servable.close()


@pytest.mark.slow
def test_an_empty_batch(served):
    for name, feeds in (
        ("serving_default", {"bytes": texts([])}),
        ("pixels", {"pixels": np.zeros((0, 9, 9, 3), np.uint8)}),
        ("classify", {"inputs": texts([])}),
    ):
        found = served.run(name, feeds, list(served.signatures[name].outputs), None, 1)
        assert {len(array) for array in found.values()} == {0}


@pytest.mark.slow
def test_a_damaged_image_is_named(served):
    files = texts([*photos(2), b"\xff\xd8\xffno"])
    with raises(
        ServingError,
        "tensorflow-refuses",
        reason=Containing("bytes[2]: ", because("photo-not-decoded", reason="")),
    ) as error:
        served.run("serving_default", {"bytes": files}, ["scores"], 60.0, 1)
    assert error.value.status == "INVALID_ARGUMENT"


@once_each(["part"], ["before", "after"], quick=1)
def test_a_deadline_holds_over_all_parts(served, monkeypatch, part):
    clock = [0.0]
    monkeypatch.setattr(
        "deploykit.serving.execution.engines.split_engine.time.monotonic", lambda: clock[0]
    )
    run = getattr(TensorFlowEngine, part)

    def slow(*arguments):
        assert arguments[-2] <= 5.0
        clock[0] += 10.0
        return run(*arguments)

    monkeypatch.setattr(TensorFlowEngine, part, slow)
    call = ("serving_default", {"bytes": texts(photos(1))}, ["scores"])
    if part == "after":
        assert served.run(*call, 5.0, 1)["scores"].shape == (1, 4)
        return
    with raises(ServingError, "deadline-during-run") as error:
        served.run(*call, 5.0, 1)
    assert error.value.status == "DEADLINE_EXCEEDED"


def test_the_model_itself_is_named_where_no_signature_is_it(tmp_path):
    options = {"labels": LABELS, "engine": "openvino"}
    found = deploykit.export(live(dense, ROW), tmp_path, name="m", **options)
    assert list(read(found.folder).signatures) == [MODEL]


def test_what_changes_when_it_is_split_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(engine_part, "differs_when_split", lambda *arguments: "'y' is another")
    with raises(VerificationError, "signature-not-splittable", name="pixels"):
        deploykit.export(live(net, IMAGE), tmp_path, name="m", preprocess="0..1", engine="openvino")


def chain():
    """Return a graph: before -> model -> after, and an output that also reads what is before."""

    def body():
        import tensorflow as tf

        fed = tf.compat.v1.placeholder(tf.float32, [None], name="fed")
        other = tf.compat.v1.placeholder(tf.float32, [None], name="other")
        before = tf.abs(fed, name="before")
        inner = tf.exp(before, name="inner")
        model = tf.sin(inner, name="model")
        tf.cos(model, name="after")
        tf.add(model, before, name="past")
        tf.add(model, inner, name="inside")
        tf.add(model, other, name="more")
        with tf.control_dependencies([inner]):
            tf.tan(model, name="waits")

    return build(body, ["fed", "other"], ["after", "past", "inside", "more", "waits"])


@pytest.mark.parametrize(
    ("fed", "fetched", "expected"),
    [
        (["fed:0"], ["after:0"], True),
        (["fed:0"], ["model:0"], True),
        (["fed:0"], ["model:0", "after:0"], True),
        (["before:0"], ["after:0"], True),
        (["fed:0"], ["past:0"], False),
        (["fed:0"], ["inside:0"], False),
        (["fed:0", "other:0"], ["more:0"], False),
        (["fed:0"], ["more:0"], False),
        (["fed:0"], ["waits:0"], False),
        (["fed:0"], ["after:0", "inside:0"], False),
        (["other:0"], ["after:0"], False),
        (["fed:0"], ["before:0"], False),
        (["inner:0"], ["after:0"], False),
        (["fed:0"], ["none:0"], False),
    ],
)
def test_what_is_cut_by_a_model(fed, fetched, expected):
    assert is_cut(chain(), fed, fetched, ["before:0"], ["model:0"]) == expected
