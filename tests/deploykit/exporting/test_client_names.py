"""A version has the signature names and aliases that existing clients send."""

import json

import numpy as np
import pytest

import deploykit as public
from deploykit.serving.execution.engines.engine import Loading
from deploykit.serving.execution.engines.open_version import open_version
from deploykit.serving.protocol.signatures import read_meta_graph, signatures_of
from deploykit.serving.saved_model.warmup_requests import read_requests
from tests.deploykit.conftest import FASHION, refusals
from tests.loading import answers
from tests.support import assert_golden, built, random, run, shows, tf

pytestmark = pytest.mark.usefixtures("in_process")

X = random(3, 8, 8, 3)
OLD = ("--input-alias=images=x", "--output-alias=scores=out")


def sides(folder):
    found = signatures_of(read_meta_graph(folder))
    return {name: (list(each.inputs), list(each.outputs)) for name, each in found.items()}


def test_names_of_existing_clients(deploykit, small, tmp_path):
    found = deploykit(
        "export", small, tmp_path, "--signature-name=predict_images,serving_default", *OLD
    )
    assert found.status == 0, found.stderr
    folder = tmp_path / "small" / "1"
    expected = (["images"], ["scores"])
    assert sides(folder) == {"predict_images": expected, "serving_default": expected}
    assert "predict_images (tensorflow/serving/predict)" in found.stdout
    (wanted,) = run(public.load_graph(small), {"x": X})
    served = open_version(folder, "m", 1, Loading())
    ours = served.run("predict_images", {"images": X}, ["scores"], None)
    served.close()
    for each in (*answers(folder, "predict_images", {"images": X}), ours):
        np.testing.assert_allclose(each["scores"], wanted, rtol=1e-5, atol=1e-6)


def test_a_name_replaces_the_default_one(deploykit, small, tmp_path):
    np.savez(tmp_path / "data.npz", images=X)
    assert deploykit("export", small, tmp_path, "--signature-name=predict_images", *OLD,
                     "--warmup", tmp_path / "data.npz").status == 0  # fmt: skip
    assert list(sides(tmp_path / "small" / "1")) == ["predict_images"]
    warm = read_requests(tmp_path / "small" / "1")
    names = {each.predict_log.request.model_spec.signature_name for each in warm}
    assert names == {"predict_images"}


@pytest.mark.sampled
def test_in_python_and_of_a_model_with_a_sidecar(tmp_path):
    graph = public.freeze(FASHION / "fashion.keras")
    public.save_graph(graph, tmp_path / "fashion.pb")
    found = public.export(
        tmp_path / "fashion.pb", tmp_path, signature_name="predict_images",
        input_aliases={"photo": f"{graph.inputs[0]}:0"},
        output_aliases={"scores": graph.outputs[0]},
    )  # fmt: skip
    assert sides(found.folder) == {"predict_images": (["photo"], ["scores"])}


def test_aliases_can_be_exchanged(two_ends, tmp_path):
    found = public.export(two_ends, tmp_path, name="m", output_aliases={"a": "b", "b": "a"})
    default = found.signatures["serving_default"]
    assert {alias: info.name for alias, info in default.outputs.items()} == {"a": "b:0", "b": "a:0"}


@pytest.fixture
def two_ends(tmp_path):
    """Return a frozen graph of the inputs x and z, and the outputs a and b."""
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default() as graph:
        x, z = (tf.placeholder(tf.float32, [None, 2], name=name) for name in "xz")
        tf.add(x, z, name="a")
        tf.multiply(x, z, name="b")
    path = tmp_path / "two.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


WRONG = (
    "--input-alias=images=y", "--output-alias=scores=x", "--input-alias=p=x --input-alias=q=x:0",
    "--input-alias=p=x --input-alias=p=z", "--input-alias=z=x", "--output-alias=scores",
    "--signature-name=p,p", "--signature-name=classify --method=classify --output-alias=scores=a",
    "--signature-name=", "--signature-name=__saved_model_init_op",
    "--signature-name=p,__saved_model_train_op",
)  # fmt: skip


@pytest.mark.golden("usage/export_names")
def test_wrong_names(deploykit, two_ends, tmp_path):
    command = ("export", two_ends, tmp_path / "served", "--outputs=a,b")
    found = deploykit(*command, "--output-alias=a\x1b[1m=b")
    assert shows(found.stderr, "name-not-printable", name="a\x1b[1m", source="--output-alias")
    assert_golden(*refusals(deploykit, command, WRONG, tmp_path))
    assert not (tmp_path / "served").exists()


@pytest.mark.slow
def test_a_signature_that_a_graph_lacks_is_refused(deploykit, tmp_path):
    graph = public.freeze(FASHION / "fashion.keras")
    public.save_graph(graph, tmp_path / "fashion.pb")
    beside = tmp_path / "fashion.pb.json"
    names = json.loads(beside.read_text())
    names["signatures"] = {
        "serving_default": {
            "inputs": {"images": graph.inputs[0]}, "outputs": {"out": graph.outputs[0]},
            "method": "tensorflow/serving/predict",
        }
    }  # fmt: skip
    beside.write_text(json.dumps(names))
    found = deploykit("export", tmp_path / "fashion.pb", tmp_path, "--signature=predict_images")
    assert found.status == 2
    assert shows(found.stderr, "export-signature-unknown", name="predict_images")


def test_an_output_that_is_an_input_is_served_as_a_copy(tmp_path):
    """TensorFlow refuses a request that feeds and fetches the same tensor."""

    @built(["x"], ["x", "y"])
    def net():
        tf.abs(tf.compat.v1.placeholder(tf.float32, [None, 2], name="x"), name="y")

    x = np.float32([[1, -2], [3, 4]])
    graph = net()
    found = public.export(graph, tmp_path, name="same", warmup={"x": x})
    assert found.warm_up_requests == 2
    assert tuple(graph.outputs) == ("x", "y")
    assert len(graph) == 2
    served = open_version(found.folder, "same", 1, Loading())
    ours = served.run("serving_default", {"x": x}, ["x", "y"], None)
    served.close()
    for each in (*answers(found.folder, "serving_default", {"x": x}), ours):
        np.testing.assert_array_equal(each["x"], x)
        np.testing.assert_array_equal(each["y"], np.abs(x))
