"""Vocabulary files: their words go into the graph, and no path that would vanish stays in it."""

import os
import shutil

import numpy as np
import pytest

import deploykit
from deploykit.transforms.common.errors import FileError, GraphError, LimitError, RefusedError
from deploykit.transforms.ir.protos import SavedModel
from tests.loading import answers
from tests.support import raises, run, says, tf

pytestmark = pytest.mark.usefixtures("in_process")

WORDS = np.array([b"dog", b"fish", b"cat"], object)
IDS = [1, -1, 0]


def looked_up(table, filling, words):
    """Look words up once the table is filled, at each call anew."""
    with tf.control_dependencies([filling]):
        return tf.raw_ops.LookupTableFindV2(
            table_handle=table, keys=words, default_value=np.int64(-1)
        )


def model(folder, kind, names_asset=True):
    """Write a SavedModel that reads a vocabulary file when it is loaded, or at each call."""
    v1, vocabulary = tf.compat.v1, folder / "words.txt"
    vocabulary.write_text("cat\ndog\n")
    builder = v1.saved_model.Builder(str(folder / "model"))
    with tf.Graph().as_default() as graph, v1.Session() as session:
        words = v1.placeholder(tf.string, [None], name="words")
        path = tf.constant(str(vocabulary), name="path")
        table = tf.raw_ops.HashTableV2(
            key_dtype=tf.string, value_dtype=tf.int64, shared_name="table"
        )
        filling = tf.raw_ops.InitializeTableFromTextFileV2(
            table_handle=table, filename=path, key_index=-2, value_index=-1
        )
        find = looked_up(table, tf.no_op() if kind == "at load" else filling, words)
        ids = tf.identity(find, name="ids")
        if kind == "path":
            ids = tf.strings.join([words, path])
        if names_asset:
            graph.add_to_collection("asset_filepaths", path)
        session.run(filling)
        signature = v1.saved_model.predict_signature_def({"words": words}, {"ids": ids})
        builder.add_meta_graph_and_variables(
            session, ["serve"], {"serving_default": signature},
            graph.get_collection("asset_filepaths"), main_op=filling,
        )  # fmt: skip
        builder.save()
    vocabulary.unlink()
    return folder / "model"


def model_of_tensorflow_2(folder):
    """Write a SavedModel that keeps the path of its vocabulary in a variable."""
    vocabulary, index = folder / "words.txt", tf.lookup.TextFileIndex
    vocabulary.write_text("cat\ndog\n")
    module = tf.Module()
    reading = tf.lookup.TextFileInitializer(
        str(vocabulary), tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER
    )
    module.table = tf.lookup.StaticHashTable(reading, -1)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="words")])
    def serve(words):
        return {"ids": module.table.lookup(words)}

    module.serve = serve
    tf.saved_model.save(module, str(folder / "model"), signatures=serve)
    vocabulary.unlink()
    return folder / "model"


@pytest.mark.parametrize("kind", ["at load", "at each call", "of TensorFlow 2"])
def test_an_export_needs_no_file_of_the_model(tmp_path, kind):
    """Its own copy is enough, in TensorFlow's loaders, wherever it was moved."""
    is_new = kind == "of TensorFlow 2"
    path = model_of_tensorflow_2(tmp_path) if is_new else model(tmp_path, kind)
    frozen = deploykit.freeze(path)
    optimized = deploykit.optimize(path)
    for name, each in (("model", path), ("frozen", frozen), ("optimized", optimized)):
        deploykit.export(each, tmp_path / "base", name=name)
    shutil.rmtree(path)
    (tmp_path / "base").rename(tmp_path / "moved")
    for graph in (frozen, optimized):
        assert not {n.op for n in graph} & {"InitializeTableFromTextFileV2", "HashTable"}
        np.testing.assert_array_equal(run(graph, {"words": WORDS})[0], IDS)
    for name in ("model", "frozen", "optimized"):
        folder = tmp_path / "moved" / name / "1"
        nodes = SavedModel.FromString((folder / "saved_model.pb").read_bytes()).meta_graphs[0]
        constants = [node for node in nodes.graph_def.node if node.op == "Const"]
        assert str(tmp_path) not in str(constants)  # but TensorFlow 2 names tables after files
        found = list(answers(folder, "serving_default", {"words": WORDS}))
        assert found
        for each in found:
            np.testing.assert_array_equal(*each.values(), IDS)


def test_a_path_that_callers_see_is_refused(tmp_path):
    path = model(tmp_path, "path")
    said = says("asset-path-in-graph", node="path", file="words.txt", readers=["StringJoin"])
    for act in (deploykit.freeze, deploykit.optimize):
        with pytest.raises(GraphError, match=said):
            act(path)
    with pytest.raises(GraphError, match=said):
        deploykit.export(path, tmp_path / "base")
    assert not (tmp_path / "base" / "model").exists()


@pytest.mark.parametrize("kind", ["at load", "at each call"])
def test_no_path_is_followed_out_of_the_models_folder(tmp_path, kind):
    """Else a model could bring home whatever lies on the machine that freezes it."""
    path = model(tmp_path, kind, names_asset=False)
    (tmp_path / "words.txt").write_text("a secret\n")
    with raises(
        RefusedError,
        "reads-file",
        op="InitializeTableFromTextFileV2",
        what="node 'InitializeTableFromTextFileV2'",
    ):
        deploykit.freeze(path)
    (path / "words.txt").write_text("cat\ndog\n")
    np.testing.assert_array_equal(run(deploykit.freeze(path), {"words": WORDS})[0], IDS)


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["../words.txt", "/etc/passwd", "..", ""])
def test_assets_that_lead_elsewhere_are_refused(tmp_path, name):
    path = model(tmp_path, "at load")
    (tmp_path / "words.txt").write_text("a secret\n")
    file = path / "saved_model.pb"
    saved = SavedModel.FromString(file.read_bytes())
    meta = saved.meta_graphs[0]
    meta.collection_def.pop("saved_model_assets")  # where TensorFlow 1 wrote it
    meta.asset_file_def.add(filename=name).tensor_info.name = "path:0"
    file.write_bytes(saved.SerializeToString())
    with raises(RefusedError, "asset-outside"):
        deploykit.freeze(path)
    with raises(RefusedError, "asset-outside"):
        deploykit.export(path, tmp_path / "base")


def test_assets_that_are_no_protos(tmp_path):
    path = model(tmp_path, "at load")
    file = path / "saved_model.pb"
    saved = SavedModel.FromString(file.read_bytes())
    saved.meta_graphs[0].collection_def["saved_model_assets"].any_list.value[0].value = b"\xff"
    file.write_bytes(saved.SerializeToString())
    with raises(GraphError, "assets-damaged"):
        deploykit.freeze(path)


def test_a_vocabulary_that_is_gone(tmp_path):
    path = model(tmp_path, "at load")
    shutil.rmtree(path / "assets")
    with pytest.raises(FileError, match=r"assets/words.txt: No such file"):
        deploykit.freeze(path)


@pytest.mark.parametrize("names_asset", [True, False])
@pytest.mark.parametrize("kind", ["at load", "at each call"])
def test_a_vocabulary_beyond_the_limit_is_not_read(kind, names_asset, tmp_path):
    found = model(tmp_path, kind, names_asset)
    folder = found / "assets" if names_asset else found
    folder.mkdir(exist_ok=True)
    path = folder / "words.txt"
    path.touch()
    os.truncate(path, 40 << 30)  # it takes no space
    with raises(LimitError, "vocabulary-too-large", size="40 GiB", most="1 GiB"):
        deploykit.freeze(found)
