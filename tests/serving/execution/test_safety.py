"""What a server does not load: models that read what is not theirs, or that would end it."""

from pathlib import Path

import numpy as np
import pytest

from deploykit.serving.execution.engines.engine import Loading
from deploykit.serving.execution.engines.open_version import open_version
from deploykit.transforms.common.errors import FileError, GraphError, RefusedError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.protos import SavedModel
from deploykit.transforms.runtime.child_process import call
from deploykit.transforms.untrusted.vocabularies import Vocabularies
from tests.deploykit.importers.test_bad_checkpoints import BAD, written
from tests.serving.small_models import half_plus
from tests.support import Containing, raises, showing, tf

WORDS = np.array([b"dog", b"fish", b"cat"], object)


def served(folder: Path, allowed: tuple[str, ...] = ()) -> list[int]:
    """Load a model in a process of its own, and return the numbers of some words."""
    return call(f"{__name__}:answers", folder, allowed)


def answers(folder: Path, allowed: tuple[str, ...]) -> list[int]:
    servable = open_version(folder, "words", 1, Loading(allow_ops=allowed))
    feeds = dict.fromkeys(servable.signatures["serving_default"].inputs, WORDS)
    (found,) = servable.run(
        "serving_default", feeds, list(servable.signatures["serving_default"].outputs)
    ).values()
    return found.tolist()


def model(folder: Path, form: str, vocabulary: Path | None = None) -> Path:
    """Write a model that numbers words; without a vocabulary of others, with one of its own."""
    own = folder / "words.txt"
    own.write_text("cat\ndog\n")
    saved = folder / "model"
    if form == "TensorFlow 2":
        made = tf.Module()
        filling = tf.lookup.TextFileInitializer(str(own), tf.string, -2, tf.int64, -1)
        made.table = tf.lookup.StaticHashTable(filling, -1)
        made.f = tf.function(
            lambda words: made.table.lookup(words), [tf.TensorSpec([None], tf.string)]
        )
        tf.saved_model.save(made, str(saved), {"serving_default": made.f})
    else:
        v1 = tf.compat.v1
        with tf.Graph().as_default() as graph, v1.Session() as session:
            words = v1.placeholder(tf.string, [None], name="words")
            path = tf.constant(str(own), name="path")
            table = tf.raw_ops.HashTableV2(
                key_dtype=tf.string, value_dtype=tf.int64, shared_name="table"
            )
            fill = tf.raw_ops.InitializeTableFromTextFileV2(
                table_handle=table, filename=path, key_index=-2, value_index=-1
            )
            with tf.control_dependencies([fill] if form == "at each call" else []):
                ids = tf.raw_ops.LookupTableFindV2(
                    table_handle=table, keys=words, default_value=np.int64(-1)
                )
            graph.add_to_collection("asset_filepaths", path)
            signature = v1.saved_model.predict_signature_def({"words": words}, {"ids": ids})
            builder = v1.saved_model.Builder(str(saved))
            builder.add_meta_graph_and_variables(
                session, ["serve"], {"serving_default": signature},
                graph.get_collection("asset_filepaths"),
                main_op=tf.no_op() if form == "at each call" else fill,
            )  # fmt: skip
            builder.save()
    if vocabulary is not None:
        take_from(saved, vocabulary)
    own.unlink()
    return saved


def take_from(folder: Path, path: Path) -> None:
    """Let the tables of a model be filled from any file."""
    proto = SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    (meta,) = proto.meta_graphs
    meta.ClearField("asset_file_def")
    meta.collection_def.pop("saved_model_assets", None)
    for node in meta.graph_def.node:
        if node.name in ("path", "asset_path_initializer"):  # of TensorFlow 1, of TensorFlow 2
            constant = Node.constant(node.name, np.array(str(path), object)).to_proto()
            node.CopyFrom(constant)
    (folder / "saved_model.pb").write_bytes(proto.SerializeToString())


FORMS = ["TensorFlow 1", "TensorFlow 2", "at each call"]


@pytest.mark.sampled
@pytest.mark.parametrize("form", FORMS[:2])
def test_a_model_reads_its_own_vocabulary(form, tmp_path):
    assert served(model(tmp_path, form)) == [1, -1, 0]


@pytest.mark.sampled
@pytest.mark.parametrize("form", FORMS)
def test_a_model_does_not_read_that_of_others(form, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("fish\n")
    folder = model(tmp_path, form, secret)
    with raises(RefusedError, "reads-file", op="InitializeTableFromTextFileV2"):
        served(folder)
    assert served(folder, ("InitializeTableFromTextFileV2",)) == [-1, 0, -1]


def test_a_file_that_a_branch_reads_is_none_of_the_models():
    """A function that is not inlined does not tell which file it is given."""

    def filled():
        table = tf.raw_ops.HashTableV2(key_dtype=tf.string, value_dtype=tf.int64)
        tf.raw_ops.InitializeTableFromTextFileV2(
            table_handle=table, filename="/etc/passwd", key_index=-2, value_index=-1
        )
        return 1

    with tf.Graph().as_default() as made:
        tf.cond(tf.compat.v1.placeholder(tf.bool, [], name="x"), filled, lambda: 0, name="y")
    graph = Graph.from_graph_def(made.as_graph_def())
    graph.outputs = ("y",)
    with raises(RefusedError, "reads-file", op="InitializeTableFromTextFileV2"):
        Vocabularies().refuse_side_effects(graph)


def test_what_is_read_at_each_call_is_no_asset(tmp_path):
    """TensorFlow gives the path of an asset to what it runs at load alone."""
    folder = model(tmp_path, "at each call")
    with raises(
        RefusedError,
        "reads-file",
        op="InitializeTableFromTextFileV2",
        reason=showing("reads-foreign-file", file=Containing("/words.txt")),
        what="node 'InitializeTableFromTextFileV2'",
    ):
        served(folder)


def test_an_asset_that_leads_elsewhere(tmp_path):
    folder = model(tmp_path, "TensorFlow 2")
    proto = SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    proto.meta_graphs[0].asset_file_def[0].filename = "../../secret.txt"
    (folder / "saved_model.pb").write_bytes(proto.SerializeToString())
    with raises(RefusedError, "asset-outside"):
        served(folder)


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["a negative size", "a size that overflows", "a negative part"])
def test_variables_that_would_end_the_server(kind, tmp_path):
    folder = next(half_plus(tmp_path / "model", 2).iterdir())
    for path in (folder / "variables").iterdir():
        path.unlink()
    prefix = written(folder / "variables", BAD[kind])
    for end in (".index", ".data-00000-of-00001"):
        Path(f"{prefix}{end}").rename(folder / "variables" / f"variables{end}")
    with pytest.raises(GraphError, match=r"variables\.index: .*'a' "):
        served(folder)


@pytest.mark.sampled
@pytest.mark.parametrize("where", ["pipe", "device", "loop"])
def test_variables_that_lead_out_of_the_folder(where, tmp_path):
    folder = next(half_plus(tmp_path / "model", 2).iterdir())
    data = folder / "variables" / "variables.data-00000-of-00001"
    data.unlink()
    if where == "pipe":
        import os

        os.mkfifo(data)
    else:
        data.symlink_to("/dev/zero" if where == "device" else data)
    with pytest.raises(FileError, match=r"variables\.data-00000-of-00001: "):
        served(folder)
