"""SavedModels of TensorFlow 1 and 2: tags, signatures, names, functions, tables, bad input."""

import shutil

import numpy as np
import pytest

import deploykit
from deploykit.transforms.common.errors import FileError, GraphError, RefusedError
from deploykit.transforms.ir.protos import SavedModel
from tests.support import Containing, because, ops, raises, run, says, shows, tf

pytestmark = pytest.mark.usefixtures("in_process")

X = np.random.default_rng(0).uniform(-1, 1, (2, 3)).astype(np.float32)
WORDS = np.array([b"two", b"none", b"one"], object)


@pytest.fixture(scope="module")
def old(tmp_path_factory) -> str:
    """Return a SavedModel of TensorFlow 1: two graphs, two signatures, a vocabulary, v1 frames."""
    import tensorflow.compat.v1 as tf

    base = tmp_path_factory.mktemp("old")
    vocabulary = base / "words.txt"
    vocabulary.write_text("zero\none\ntwo\n")
    tf.disable_control_flow_v2()
    builder = tf.saved_model.Builder(str(base / "model"))
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None, 3], name="x")
        w = tf.get_variable("w", [3, 3], initializer=tf.ones_initializer(), use_resource=True)
        count = tf.get_local_variable("count", [], initializer=tf.constant_initializer(2.0))
        _, y = tf.while_loop(
            lambda i, y: i < 3, lambda i, y: (i + 1, tf.matmul(y, w) * 0.5), [0, x * count]
        )
        y = tf.identity(y, name="y")
        words = tf.placeholder(tf.string, [None], name="words")
        table = tf.lookup.StaticVocabularyTable(
            tf.lookup.TextFileInitializer(
                str(vocabulary),
                tf.string,
                tf.lookup.TextFileIndex.WHOLE_LINE,
                tf.int64,
                tf.lookup.TextFileIndex.LINE_NUMBER,
            ),
            num_oov_buckets=2,
        )
        ids = tf.identity(table.lookup(words), name="ids")
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        session.run(tf.tables_initializer())
        make = tf.saved_model.build_signature_def
        info = tf.saved_model.build_tensor_info
        signatures = {
            "numbers": make({"in": info(x)}, {"out": info(y)}),
            "words": make({"text": info(words)}, {"ids": info(ids)}),
        }
        start = tf.group(tf.tables_initializer(), tf.local_variables_initializer())
        builder.add_meta_graph_and_variables(
            session, ["serve"], signatures, tf.get_collection("asset_filepaths"), main_op=start
        )
        builder.add_meta_graph(["serve", "gpu"], {"numbers": signatures["numbers"]})
        builder.save()
    tf.enable_control_flow_v2()
    vocabulary.unlink()
    return str(base / "model")


@pytest.fixture(scope="module")
def new(tmp_path_factory) -> str:
    """Return a SavedModel of TensorFlow 2: loops and branches that read variables, tables."""

    class Model(tf.Module):
        def __init__(self, vocabulary: str) -> None:
            super().__init__()
            self.w = tf.Variable(np.full((3, 3), 0.25), dtype=tf.float32, name="w")
            self.half = tf.Variable(np.ones(3), dtype=tf.float16, name="half")
            self.rows = tf.Variable(np.arange(12.0).reshape(4, 3), dtype=tf.float32, name="rows")
            index = tf.lookup.TextFileIndex
            self.table = tf.lookup.StaticHashTable(
                tf.lookup.TextFileInitializer(
                    vocabulary, tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER
                ),
                default_value=-1,
            )
            self.changing = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, -1.0)
            self.changing.insert([b"one", b"two"], [10.0, 20.0])

        @tf.function(
            input_signature=[
                tf.TensorSpec([None, 3], tf.float32, "x"),
                tf.TensorSpec([None], tf.string, "words"),
            ]
        )
        def __call__(self, x, words):
            def body(i, y):
                y = tf.matmul(y, self.w) + tf.cast(self.half, tf.float32)
                y = tf.cond(tf.reduce_sum(y) > 0, lambda: y @ self.w, lambda: y - self.w[0])
                return i + 1, y + tf.gather(self.rows, tf.minimum(i, 3))

            _, y = tf.while_loop(lambda i, y: i < 5, body, (0, x))
            y = tf.switch_case(
                tf.shape(x)[0], [lambda: y, lambda: y + self.rows[1], lambda: y @ self.w]
            )
            return {"y": y, "ids": self.table.lookup(words), "sums": self.changing.lookup(words)}

        @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, "x")])
        def double(self, x):
            return tf.matmul(x, self.w) * 2.0

    base = tmp_path_factory.mktemp("new")
    vocabulary = base / "words.txt"
    vocabulary.write_text("zero\none\ntwo\n")
    model = Model(str(vocabulary))
    tf.saved_model.save(model, str(base / "model"), signatures=model.__call__)
    vocabulary.unlink()
    return str(base / "model")


@pytest.mark.sampled
def test_new_loops_and_branches_take_values_for_variables(new):
    graph = deploykit.freeze(new)
    assert graph.inputs == ("words", "x")
    assert graph.outputs == ("ids", "sums", "y")
    found = ops(graph)
    assert not {"VarHandleOp", "ReadVariableOp", "StatefulPartitionedCall"} & set(found)
    assert {"While", "StatelessWhile"} & set(found)
    assert {"Case", "StatelessCase"} & set(found)
    bodies = {node.op for f in graph.library.function for node in f.node_def}
    assert not {"ReadVariableOp", "ResourceGather"} & bodies
    answer = tf.saved_model.load(new).signatures["serving_default"]
    expected = answer(x=tf.constant(X), words=tf.constant(WORDS))
    for grappler in (False, True):
        values = run(graph, {"x": X, "words": WORDS}, grappler)
        np.testing.assert_array_equal(values[0], [2, -1, 1])
        np.testing.assert_array_equal(values[1], [20, -1, 10])
        np.testing.assert_allclose(values[2], expected["y"], rtol=1e-6)


@pytest.mark.sampled
def test_the_result_goes_through_the_whole_job(new):
    graph = deploykit.freeze(new)
    optimized = deploykit.optimize(graph)
    found = deploykit.verify(graph, optimized, data={"x": X, "words": WORDS[:2]})
    assert found.passed, found
    again = deploykit.transform(graph, "strip_unused_nodes sort_by_execution_order")
    np.testing.assert_array_equal(run(again, {"x": X, "words": WORDS})[0], [2, -1, 1])


@pytest.mark.sampled
def test_old_frames_vocabularies_and_local_variables(old):
    graph = deploykit.freeze(old, signature="numbers")
    assert graph.inputs == ("x",)
    assert graph.outputs == ("y",)
    assert {"Enter", "Merge", "NextIteration"} <= set(ops(graph))
    y = X * 2
    for _ in range(3):
        y = y @ np.ones((3, 3), np.float32) * 0.5
    np.testing.assert_allclose(run(graph, {"x": X})[0], y, rtol=1e-6)
    graph = deploykit.freeze(old, signature="words")
    assert "InitializeTableFromTextFileV2" not in ops(graph)
    np.testing.assert_array_equal(run(graph, {"words": WORDS[::2]})[0], [2, 1])


def test_outputs_by_their_names_in_the_signature(new):
    graph = deploykit.freeze(new, outputs=["ids"])
    assert graph.outputs == ("ids",)
    assert "While" not in ops(graph)


def test_a_function_that_is_no_signature(new):
    graph = deploykit.freeze(new, signature="double")
    np.testing.assert_allclose(run(graph, {"x": X})[0], X @ np.full((3, 3), 0.5), rtol=1e-6)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({}, says("signature-ambiguous", known=["numbers", "words"])),
        ({"tags": ["train"]}, says("saved-model-tags-missing", wanted="the tags train")),
        (
            {"signature": "word"},
            says(
                "unknown-meta-signature",
                name="word",
                hint=Containing("words"),
                signatures=["numbers", "words"],
            ),
        ),
    ],
)
def test_what_there_is_is_listed(old, wanted, message):
    with pytest.raises(GraphError, match=message):
        deploykit.freeze(old, **wanted)
    assert deploykit.freeze(old, tags=["gpu", "serve"]).outputs == ("y",)


@pytest.fixture(scope="module")
def net():
    """Return a network of Keras 3 that has seen data."""
    import keras

    keras.utils.set_random_seed(1)
    inner = keras.Sequential([keras.layers.Dense(4), keras.layers.BatchNormalization()])
    net = keras.Sequential([keras.Input((3,)), inner, keras.layers.Dense(2)])
    for variable in net.variables:
        variable.assign(variable + 0.25)
    return net


@pytest.mark.sampled
def test_keras_3_written_by_tensorflow(net, tmp_path):
    """Its checkpoint has copies of the variables, which the graph does not read."""
    tf.saved_model.save(net, str(tmp_path / "model"))
    graph = deploykit.freeze(tmp_path / "model")
    np.testing.assert_allclose(run(graph, {graph.inputs[0]: X})[0], net(X), rtol=1e-5)


@pytest.mark.sampled
@pytest.mark.parametrize("kinds", ["open", "two batches", "open and one"])
def test_keras_3_inside_a_module_without_a_signature(net, kinds, tmp_path, caplog):
    class Module(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        @tf.function
        def __call__(self, x, training=False):
            return {"doubled": self.net(x, training=training) * 2.0}

    module = Module()
    open_batch = tf.TensorSpec([None, 3], tf.float32)
    module.__call__.get_concrete_function(open_batch, training=True)
    if kinds != "two batches":
        module.__call__.get_concrete_function(open_batch)
    if kinds != "open":
        module.__call__.get_concrete_function(tf.TensorSpec([1, 3], tf.float32))
    if kinds == "two batches":
        module.__call__.get_concrete_function(tf.TensorSpec([2, 3], tf.float32))
    tf.saved_model.save(module, str(tmp_path / "model"))
    if kinds == "two batches":
        with raises(GraphError, "function-traced-often", name="__call__", count=3):
            deploykit.freeze(tmp_path / "model")
        return
    with caplog.at_level("INFO", "deploykit"):
        graph = deploykit.freeze(tmp_path / "model")
    assert because("function-frozen", name="__call__") in caplog.text
    assert graph.inputs == ("x",)
    assert graph.outputs == ("doubled",)
    for each in (graph, deploykit.optimize(graph)):
        np.testing.assert_allclose(run(each, {"x": X})[0], net(X) * 2, rtol=1e-5)


@pytest.mark.sampled
def test_a_function_keeps_its_tables(tmp_path):
    class Module(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            pairs = tf.lookup.KeyValueTensorInitializer(["one", "two"], [1.0, 2.0])
            self.table = tf.lookup.StaticHashTable(pairs, -1.0)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "words")])
        def find(self, words):
            return self.table.lookup(words)

    tf.saved_model.save(Module(), str(tmp_path / "model"))
    graph = deploykit.freeze(tmp_path / "model", signature="find")
    np.testing.assert_array_equal(run(graph, {"words": WORDS})[0], [2, -1, 1])


def tables():
    keys, values = tf.constant([1, 2, 3], tf.int64), tf.constant([10.0, 20.0, 30.0])
    pairs = tf.stack([values, values + 1], 1)
    lookup = tf.lookup.experimental
    marks = {"empty_key": 0, "deleted_key": -1}
    for anonymous in (False, True):
        more = {"experimental_is_anonymous": anonymous}
        fixed = tf.lookup.KeyValueTensorInitializer(keys, values)
        yield tf.lookup.StaticHashTable(fixed, -1.0, **more)
        for table, held in (
            (lookup.MutableHashTable(tf.int64, tf.float32, -1.0, **more), values),
            (lookup.MutableHashTable(tf.int64, tf.float32, [-1.0, -1.0], **more), pairs),
            (lookup.DenseHashTable(tf.int64, tf.float32, -1.0, **marks, **more), values),
            (lookup.DenseHashTable(tf.int64, tf.float32, [-1.0, -2.0], **marks, **more), pairs),
        ):
            table.insert(keys, held)
            yield table


@pytest.mark.parametrize("place", range(10))
def test_each_kind_of_table_keeps_its_contents(place, tmp_path):
    class Module(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = list(tables())[place]

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, "ids")])
        def __call__(self, ids):
            return self.table.lookup(ids)

    module, ids = Module(), np.array([1, 3, 7])
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=module.__call__)
    frozen = deploykit.freeze(tmp_path / "model")
    for graph in (frozen, deploykit.optimize(frozen)):
        np.testing.assert_array_equal(run(graph, {"ids": ids})[0], module(ids))


def test_a_constant_that_is_an_output_or_is_named_as_one_is_kept(tmp_path, caplog):
    class Tagger(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = tf.Variable(np.ones((3, 3)), dtype=tf.float32, name="weights")
            self.moves = tf.Variable(np.arange(9.0).reshape(3, 3), name="crf/transitions")

        @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, "x")])
        def both(self, x):
            return {"scores": x @ self.weights, "transitions": self.moves.read_value()}

        @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, "x")])
        def scores(self, x):
            return {"scores": x @ self.weights}

    tagger, path = Tagger(), tmp_path / "model"
    signatures = {"both": tagger.both, "scores": tagger.scores}
    tf.saved_model.save(tagger, str(path), signatures=signatures)
    wanted = {"signature": "both"}
    named = {"signature": "scores", "outputs": ["scores", "crf/transitions"]}
    for arguments in (wanted, named):
        graph = deploykit.optimize(deploykit.freeze(path, **arguments))
        np.testing.assert_array_equal(run(graph, {"x": X})[1], tagger.moves)
    with caplog.at_level("INFO", "deploykit"):
        deploykit.freeze(path, signature="scores")
    assert shows(caplog.text, "values-dropped", names=Containing("'crf/transitions'"))


def copy(source: str, folder) -> SavedModel:
    shutil.copytree(source, folder)
    return SavedModel.FromString((folder / "saved_model.pb").read_bytes())


@pytest.mark.sampled
@pytest.mark.parametrize("in_loop", [False, True])
def test_a_model_that_updates_variables_is_refused_by_name(tmp_path, in_loop):
    class Counting(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = tf.Variable(0.0, name="calls")

        @tf.function(input_signature=[tf.TensorSpec([3], tf.float32, "x")])
        def __call__(self, x):
            if not in_loop:
                return x + self.calls.assign_add(1.0)
            for _ in tf.range(3):
                x += self.calls.assign_add(1.0)
            return x

    tf.saved_model.save(Counting(), str(tmp_path / "model"))
    with raises(GraphError, "variable-not-frozen", op="AssignAddVariableOp"):
        deploykit.freeze(tmp_path / "model")


def test_a_text_proto_is_read_too(new, tmp_path):
    from google.protobuf import text_format

    model = copy(new, tmp_path / "text")
    (tmp_path / "text" / "saved_model.pb").unlink()
    (tmp_path / "text" / "saved_model.pbtxt").write_text(text_format.MessageToString(model))
    assert deploykit.freeze(tmp_path / "text").outputs == ("ids", "sums", "y")


def test_damaged_saved_models(new, tmp_path):
    model = copy(new, tmp_path / "model")
    folder = tmp_path / "model"
    data = folder / "variables" / "variables.data-00000-of-00001"
    data.rename(folder / "variables" / "variables.data-00000-of-00002")
    with raises(FileError, "checkpoint-part-missing"):
        deploykit.freeze(folder)
    shutil.rmtree(folder / "variables")
    with raises(GraphError, "not-initialised", what="variable", op="VarHandleOp"):
        deploykit.freeze(folder)
    custom = model.meta_graphs[0].graph_def.library.function
    for function in custom:
        for node in function.node_def:
            if node.op == "MatMul":
                node.op = "FancyMatMul"
    (folder / "saved_model.pb").write_bytes(model.SerializeToString())
    with pytest.raises(GraphError, match=says("op-unknown", op="FancyMatMul")):
        deploykit.freeze(folder)
    (folder / "saved_model.pb").write_bytes(b"\x00\x01")
    with raises(GraphError, "not-a"):
        deploykit.freeze(folder)


def test_a_missing_vocabulary(old, tmp_path):
    copy(old, tmp_path / "model")
    shutil.rmtree(tmp_path / "model" / "assets")
    with pytest.raises(FileError, match=r"assets/words.txt: No such file"):
        deploykit.freeze(tmp_path / "model", signature="words")


def test_an_initialiser_that_runs_python_is_refused(old, tmp_path):
    model = copy(old, tmp_path / "model")
    graph_def = model.meta_graphs[0].graph_def
    fill = next(n for n in graph_def.node if n.op.startswith("InitializeTableFromTextFile"))
    node = graph_def.node.add(name="evil", op="PyFunc")
    node.attr["token"].s = b"x"
    node.attr["Tin"].list.SetInParent()
    node.attr["Tout"].list.type.append(7)
    del fill.input[1]
    fill.input.insert(1, "evil")
    (tmp_path / "model" / "saved_model.pb").write_bytes(model.SerializeToString())
    with raises(RefusedError, "reads-file", op="PyFunc", reason=Containing("Python")):
        deploykit.freeze(tmp_path / "model", signature="words")


def test_a_folder_of_versions_says_which_to_give(new, tmp_path):
    for version in ("2", "10"):
        shutil.copytree(new, tmp_path / version)
    with raises(FileError, "folder-of-saved-models", names=["10", "2"], source=tmp_path):
        deploykit.freeze(tmp_path)


def test_entries_of_a_table_of_another_type_are_refused(tmp_path):
    """TensorFlow does not restore them either, and their numbers are others."""

    def save(folder, dtype):
        class Lookup(tf.Module):
            def __init__(self):
                self.table = tf.lookup.experimental.MutableHashTable(
                    tf.int64, dtype, tf.cast(0, dtype), name="seen"
                )
                self.table.insert(tf.constant([1, 2], tf.int64), tf.constant([3, 4], dtype))

            @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, "x")])
            def __call__(self, x):
                return {"y": self.table.lookup(x)}

        model = Lookup()
        tf.saved_model.save(model, str(folder), signatures=model.__call__)
        return folder

    whole, other = save(tmp_path / "a", tf.float32), save(tmp_path / "b", tf.int64)
    (found,) = run(deploykit.freeze(whole), {deploykit.freeze(whole).inputs[0]: np.array([2, 1])})
    assert found.tolist() == [4, 3]
    shutil.rmtree(whole / "variables")
    shutil.copytree(other / "variables", whole / "variables")
    with raises(GraphError, "variable-type", dtype="float32", found="int64"):
        deploykit.freeze(whole)
