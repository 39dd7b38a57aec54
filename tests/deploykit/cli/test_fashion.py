"""The main job on the embedded models: every batch norm folded, numbers and answers kept."""

import re

import numpy as np
import pytest

import deploykit
from deploykit.importers.model_path import Checkpoint, find_checkpoint
from deploykit.storage.arrays import load_data
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.protos import MetaGraphDef
from deploykit.transforms.runtime.child_process import call
from deploykit.verification.verify import verify
from tests.deploykit.conftest import FASHION
from tests.support import because, ops, says, shows

SOURCES = {"tf1": FASHION / "tf1" / "model.ckpt", "keras": FASHION / "fashion.keras"}


@pytest.fixture(scope="module")
def frozen() -> dict[str, Graph]:
    return {name: deploykit.freeze(source) for name, source in SOURCES.items()}


@pytest.fixture(scope="module")
def quantized(frozen) -> dict[str, Graph]:
    return {
        name: deploykit.transform(deploykit.optimize(graph), "quantize_weights")
        for name, graph in frozen.items()
    }


@pytest.fixture(scope="module")
def photos():
    return load_data(FASHION / "test_1000.npz")


@pytest.mark.sampled
@pytest.mark.parametrize("name", SOURCES)
def test_inputs_and_outputs_are_found(frozen, name):
    assert frozen[name].inputs == ("images",)
    assert frozen[name].outputs == ("probabilities",)


@pytest.mark.sampled
@pytest.mark.parametrize("name", SOURCES)
def test_every_batch_norm_folds(frozen, name):
    before, after = ops(frozen[name]), ops(deploykit.optimize(frozen[name]))
    assert before.get("FusedBatchNormV3", 0) + before.get("Rsqrt", 0) == 11
    left = {"Const", "Placeholder", "Conv2D", "DepthwiseConv2dNative", "MatMul", "BiasAdd",
            "Relu6", "Mean", "Softmax", "Identity"}  # fmt: skip
    assert set(after) <= left
    assert after["BiasAdd"] == after["Conv2D"] + after["DepthwiseConv2dNative"] + after["MatMul"]
    assert after["BiasAdd"] == 12


@pytest.mark.sampled
@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("name", SOURCES)
def test_optimized_within_the_bar(frozen, photos, name):
    found = verify(frozen[name], deploykit.optimize(frozen[name]), data=photos)
    assert found.verified
    assert found.passed, found
    assert found.accuracy is not None
    assert found.accuracy[0] > 0.88


@pytest.mark.sampled
@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("name", SOURCES)
def test_quantized_keeps_accuracy_and_loses_size(frozen, quantized, photos, name):
    found = verify(frozen[name], quantized[name], data=photos)
    assert found.passed, found
    assert found.accuracy is not None
    assert found.accuracy[1] >= found.accuracy[0] - 0.003
    size = [
        sum(map(len, g.serialized())) for g in (deploykit.optimize(frozen[name]), quantized[name])
    ]
    assert size[1] < 0.4 * size[0]  # small weights stay float, so not quite a quarter


def run_all_ways(graphs: list[bytes], images: np.ndarray) -> list[np.ndarray]:
    """Run graphs with Grappler off and on, batch 1 and 3; this is done in a child process."""
    from deploykit.transforms.runtime.session import Session

    return [
        Session(graph, grappler).run(["probabilities"], {"images": images[:batch]})[0]
        for graph in graphs
        for grappler in (False, True)
        for batch in (1, 3)
    ]


@pytest.mark.slow
def test_every_result_runs_everywhere(frozen, quantized, photos):
    """oneDNN off and on, Grappler off and on, batch 1 and 3."""
    graphs = [deploykit.optimize(g) for g in frozen.values()] + list(quantized.values())
    contents = [b"".join(graph.serialized()) for graph in graphs]
    answers = [
        call(
            "tests.deploykit.cli.test_fashion:run_all_ways", contents, photos["images"],
            env={"TF_ENABLE_ONEDNN_OPTS": value},
        )
        for value in ("0", "1")
    ]  # fmt: skip
    for off, on in zip(*answers, strict=True):
        assert np.isfinite(on).all()
        np.testing.assert_allclose(off, on, atol=2e-3)
    for single, triple in zip(answers[0][::2], answers[0][1::2], strict=True):
        np.testing.assert_allclose(single, triple[:1], atol=1e-5)


@pytest.mark.sampled
def test_freezing_says_what_it_assumed(deploykit, tmp_path):
    found = deploykit("freeze", SOURCES["tf1"], "-o", tmp_path / "x.pb", "--json")
    assert found.status == 0, found.stderr
    assert because("pinned-false", name="is_training") in found.stderr
    assert because("output-guessed", names="probabilities") in found.stderr
    assert found.document["inputs"] == ["images"]
    again = deploykit("freeze", SOURCES["tf1"], "-o", tmp_path / "y.pb", "--outputs", "logits")
    assert "guessed" not in again.stderr


@pytest.mark.slow
def test_freezing_gives_the_same_bytes_twice(frozen, tmp_path):
    for name, source in SOURCES.items():
        again = deploykit.freeze(source)
        assert list(again.serialized()) == list(frozen[name].serialized())


@pytest.mark.sampled
def test_frozen_tf1_equals_the_checkpoint_run_by_tensorflow(frozen, photos):
    """The judge is TensorFlow's own Saver on the original MetaGraph."""
    expected = call(
        "tests.deploykit.cli.test_fashion:run_checkpoint",
        str(SOURCES["tf1"]),
        photos["images"][:50],
    )
    found = call(
        "tests.deploykit.cli.test_fashion:run_all_ways",
        [b"".join(frozen["tf1"].serialized())],
        photos["images"],
    )[1]
    np.testing.assert_allclose(found, expected[:3], atol=1e-6)


def run_checkpoint(prefix: str, images: np.ndarray) -> np.ndarray:
    """Restore and run a checkpoint the way of TF1; this is done in a child process."""
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.import_meta_graph(f"{prefix}.meta").restore(session, prefix)
        return session.run("probabilities:0", {"images:0": images, "is_training:0": False})


def test_other_ways_to_name_a_checkpoint():
    prefix = SOURCES["tf1"]
    found = Checkpoint(prefix.parent, "model.ckpt")
    for end in (".meta", ".index"):
        assert find_checkpoint(prefix.with_name(f"{prefix.name}{end}")) == found
    assert find_checkpoint(prefix.parent) == found
    assert find_checkpoint(prefix) == found
    assert find_checkpoint(SOURCES["keras"]) is None


@pytest.mark.sampled
def test_a_graph_def_in_place_of_the_meta_file(frozen, tmp_path):
    prefix = SOURCES["tf1"]
    meta = MetaGraphDef.FromString(prefix.with_name("model.ckpt.meta").read_bytes())
    graph_file = tmp_path / "graph.pb"
    graph_file.write_bytes(meta.graph_def.SerializeToString())
    graph = deploykit.freeze(prefix, graph=graph_file)
    assert list(graph.serialized()) == list(frozen["tf1"].serialized())


def test_damaged_models_are_refused_in_a_sentence(deploykit, tmp_path):
    import shutil

    folder = tmp_path / "tf1"
    shutil.copytree(FASHION / "tf1", folder)
    data = folder / "model.ckpt.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:1000])
    keras = tmp_path / "cut.keras"
    keras.write_bytes(SOURCES["keras"].read_bytes()[:5000])
    (tmp_path / "lonely.ckpt.index").write_bytes(b"index")
    for source, status, message in (
        (folder / "model.ckpt", 2, says("checkpoint-entry-outside", file_size=1000)),
        (keras, 2, says("runtime-failed", runtime="Keras", action="load the model")),
        (tmp_path / "lonely.ckpt", 4, "--graph"),
        (folder / "none.ckpt", 4, "No such file"),
    ):
        found = deploykit("freeze", source, "-o", tmp_path / "out.pb")
        assert found.status == status, found.stderr
        assert re.search(message, found.stderr)
        assert found.stderr.splitlines()[-1].startswith("deploykit: error: ")
        assert not (tmp_path / "out.pb").exists()


@pytest.mark.sampled
def test_a_graph_with_variables_alone_is_not_frozen(deploykit, tmp_path):
    meta = MetaGraphDef.FromString(SOURCES["tf1"].with_name("model.ckpt.meta").read_bytes())
    path = tmp_path / "graph.pb"
    path.write_bytes(meta.graph_def.SerializeToString())
    found = deploykit("quantize", path, "--outputs", "logits")
    assert found.status == 2
    assert shows(found.stderr, "not-initialised", what="variable")


def test_pins(deploykit, tmp_path):
    found = deploykit(
        "freeze", SOURCES["tf1"], "-o", tmp_path / "x.pb", "--pin", "is_training=maybe"
    )
    assert found.status == 2
    assert "is_training" in found.stderr
