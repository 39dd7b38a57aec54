"""What `deploykit.check` finds in models of every form."""

import hashlib
import json
import shutil

import numpy as np
import pytest

import deploykit
from deploykit.transforms.common.errors import FileError, GraphError, RefusedError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.protos import AttrValue, FunctionDefLibrary, SavedModel
from deploykit.transforms.ir.tensors import DType
from tests.support import Containing, because, raises, says, showing, shows, tf
from tests.transforms.ir.test_validate import X, call, library, relu


def written(path, nodes, functions=None):
    """Write a graph, sound or not."""
    graph = Graph(nodes, library=functions or FunctionDefLibrary())
    path.write_bytes(b"".join(graph.serialized()))
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "graph.pb"


def text(name):
    return Node.constant(name, np.array(b"/tmp/x", object))


@pytest.mark.sampled
def test_a_sound_graph(path):
    nodes = [
        X,
        Node.constant("w", np.ones((3, 3), np.float32)),
        call("y", "f", "x"),
        call("z", "g", "y"),
    ]
    functions = library(f=[call("n", "g", "a")], g=[relu("n", "a"), relu("m", "n:activations:0")])
    found = deploykit.check(written(path, nodes, functions))
    assert (found.problems, found.refused_ops, found.error) == ([], [], None)
    (facts,) = found.graphs
    assert (facts.nodes, facts.functions, facts.function_nodes) == (4, 2, 3)
    assert (facts.call_depth, facts.expanded_nodes) == (2, 4 + 1 + 2 + 2)
    assert facts.largest_constant == "w"
    assert found.bytes == facts.bytes == path.stat().st_size


def test_all_custom_ops_are_named_and_their_readers_are_not(path):
    nodes = [
        X,
        Node("a", "Mine", ("x",)),
        Node("b", "Mine", ("a:7",)),
        Node("c", "Other", ("b",)),
        relu("y", "c"),
    ]
    found = deploykit.check(written(path, nodes, library(f=[Node("n", "Third", ("a",))])))
    (facts,) = found.graphs
    assert {use.op: use.nodes for use in facts.custom_ops} == {
        "Mine": ("a", "b"), "Other": ("c",), "Third": ("f/n",),
    }  # fmt: skip
    assert found.problems[0] == because("custom-op", node="a", more=" and 1 more", op="Mine")
    assert len(found.problems) == 3
    assert isinstance(found.error, GraphError)
    assert str(found.error).startswith(f"{path}: node 'a'")
    assert shows(found.error, "graph-invalid", others=Containing("2"))


SIDE = [X, relu("r", "x"), Node("u", "Mine", ("r",)), relu("y", "r")]
FRONT = [X, Node("u", "Mine", ("x",)), relu("h", "u:1"), relu("y", "h")]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("nodes", "named", "is_sound"),
    [
        (SIDE, {"outputs": ["y"]}, True),
        (SIDE, {}, False),  # no node reads `u`, so it counts as an output
        (SIDE, {"outputs": ["y", "u"]}, False),
        (FRONT, {"outputs": ["y"]}, False),
        (FRONT, {"inputs": ["h"], "outputs": ["y"]}, True),
        ([X, relu("r", "x"), Node("u", "Mine", ("r",)), relu("y", "r", "^u")],
         {"outputs": ["y"]}, False),
    ],
)  # fmt: skip
def test_a_custom_op_that_no_output_needs_is_a_warning(path, nodes, named, is_sound):
    found = deploykit.check(deploykit.ModelSource(written(path, nodes), **named))
    (facts,) = found.graphs
    custom = because("custom-op", node="u", more="", op="Mine")
    assert facts.problems == ([] if is_sound else [custom])
    assert facts.warnings == ([f"{custom}; no output needs it"] if is_sound else [])
    assert [use.op for use in facts.custom_ops] == ["Mine"]


def test_outputs_beside_a_graph_tell_whether_a_custom_op_is_needed(path):
    nodes = [X, relu("y", "x")]
    graph = Graph(nodes)
    graph.inputs, graph.outputs = ("x",), ("y",)
    deploykit.save_graph(graph, path)
    sidecar = path.with_name(f"{path.name}.json")
    written(path, [*nodes, Node("u", "Mine", ("x",))])
    document = json.loads(sidecar.read_text())
    document["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    sidecar.write_text(json.dumps(document))
    assert deploykit.check(path).error is None


def test_an_output_that_is_not_there_is_an_error(path):
    for nodes in (SIDE, [X, relu("y", "x")]):
        with raises(GraphError, "outputs-wrong", problem=showing("graph-node-missing", name="z")):
            deploykit.check(deploykit.ModelSource(written(path, nodes), outputs=["z"]))


@pytest.mark.sampled
def test_a_custom_op_beside_the_signatures_of_a_saved_model_is_a_warning(saved, tmp_path):
    def edit(model):
        node = Node("u", "Mine", ("serving_default_x",)).to_proto()
        model.meta_graphs[0].graph_def.node.append(node)

    found = deploykit.check(changed(saved, tmp_path, edit))
    assert found.error is None
    assert "node 'u': Mine" in found.graphs[0].warnings[0]


def test_all_effects_are_named_live_or_not_and_in_functions(path):
    nodes = [
        X, text("name"), Node("dead", "ReadFile", ("name",)), Node("end", "Abort"), relu("y", "x"),
        Node("print", "PrintV2", ("name",)).with_attrs(output_stream="file:///tmp/x"),
        Node("fine", "PrintV2", ("name",)),
    ]  # fmt: skip
    function = library(
        f=[Node.constant("n", np.array(b"x", object)), Node("w", "WriteFile", ("n", "n"))]
    )
    found = deploykit.check(written(path, nodes, function), allow_ops=["Abort"])
    (facts,) = found.graphs
    assert [(use.op, use.nodes, use.allowed) for use in facts.effects] == [
        ("Abort", ("end",), True),
        ("PrintV2", ("print",), False),
        ("ReadFile", ("dead",), False),
        ("WriteFile", ("f/w",), False),
    ]
    assert found.refused_ops == ["PrintV2", "ReadFile", "WriteFile"]
    assert isinstance(found.error, RefusedError)
    assert deploykit.check(path, allow_ops=["Abort", *found.refused_ops]).error is None


def test_what_tensorflow_alone_refuses_is_a_problem(path):
    placeholder = X.with_attrs(shape=(2, 3))
    product = Node("y", "MatMul", ("x", "x")).with_attrs(T=DType("float32"))
    found = deploykit.check(written(path, [placeholder, product]))
    assert shows(found.problems[0], "runtime-failed", runtime="TensorFlow", action="load the graph")
    with raises(GraphError, "runtime-failed", reason=Containing("Dimensions must be")):
        deploykit.inspect(path)
    deploykit.load_graph(path)  # which does not start TensorFlow


@pytest.mark.sampled
@pytest.mark.parametrize("content", [b"", b"\x0a", b"\x80\x04x", b"\x0a\x00" * 2_000_000])
def test_a_file_that_cannot_be_read_is_a_problem(path, content):
    path.write_bytes(content)
    found = deploykit.check(path)
    assert len(found.problems) == 1
    assert str(found.error).count(str(path)) == 1


def test_a_missing_file_is_no_finding(tmp_path):
    with pytest.raises(FileError):
        deploykit.check(tmp_path / "none.pb")


def test_a_graph_in_memory():
    assert deploykit.check(Graph([X, relu("y", "x")])).error is None


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A SavedModel of TensorFlow 2 with variables, a table of words, and its savers."""
    folder = tmp_path_factory.mktemp("saved")
    words = folder / "words.txt"
    words.write_text("a\nb\n")
    module = tf.Module()
    module.v = tf.Variable([1.0, 2.0])
    module.table = tf.lookup.StaticHashTable(
        tf.lookup.TextFileInitializer(
            str(words), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        ), -1,
    )  # fmt: skip
    module.serve = tf.function(
        lambda x: module.v * tf.cast(module.table.lookup(x), tf.float32),
        input_signature=[tf.TensorSpec([2], tf.string)],
    )
    tf.saved_model.save(module, folder / "model", signatures=module.serve)
    return folder / "model"


def changed(saved, tmp_path, edit):
    """Return a copy of a SavedModel whose proto has been edited."""
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    model = SavedModel.FromString((saved / "saved_model.pb").read_bytes())
    edit(model)
    (tmp_path / "saved_model.pb").write_bytes(model.SerializeToString())
    return tmp_path


@pytest.mark.sampled
def test_a_saved_model_may_store_its_variables(saved):
    found = deploykit.check(saved)
    assert (found.problems, found.refused_ops) == ([], [])
    assert found.graphs[0].tags == ("serve",)
    assert found.graphs[0].functions > 3


def add_writing(model, role):
    """Let a signature or the initialiser write a file, or nobody."""
    meta = model.meta_graphs[0]
    for name, array in (("where", b"/tmp/x"), ("what", b"y")):
        meta.graph_def.node.append(Node.constant(name, np.array(array, object)).to_proto())
    meta.graph_def.node.append(Node("evil", "WriteFile", ("where", "what")).to_proto())
    meta.graph_def.node.append(
        Node("shown", "Identity", ("what", "^evil")).with_attrs(T=DType("string")).to_proto()
    )
    if role == "signature":
        meta.signature_def["serving_default"].outputs["more"].name = "shown:0"
    elif role == "initialiser":
        meta.signature_def["__saved_model_init_op"].outputs["more"].name = "evil"


@pytest.mark.sampled
@pytest.mark.parametrize("role", ["signature", "initialiser", "nobody"])
def test_who_writes_a_file_counts(saved, tmp_path, role):
    found = deploykit.check(changed(saved, tmp_path, lambda model: add_writing(model, role)))
    assert (found.problems, found.refused_ops) == ([], ["WriteFile"])


def test_a_signature_that_saves_counts(saved, tmp_path):
    def edit(model):
        meta = model.meta_graphs[0]
        name = meta.saver_def.save_tensor_name
        meta.signature_def["serving_default"].outputs["saved"].name = name

    assert "SaveV2" in deploykit.check(changed(saved, tmp_path, edit)).refused_ops


@pytest.mark.sampled
@pytest.mark.parametrize("op", ["Unstage", "MapPeek"])
@pytest.mark.parametrize("run", [True, False])
def test_what_waits_counts_where_a_signature_runs_it(saved, tmp_path, op, run):
    def edit(model):
        meta = model.meta_graphs[0]
        for name, value in (("key", np.int64(1)), ("index", np.int32([0]))):
            meta.graph_def.node.append(Node.constant(name, np.array(value)).to_proto())
        inputs = ("key", "index") if op == "MapPeek" else ()
        attr = AttrValue()
        attr.list.type.append(1)
        waits = Node("waits", op, inputs, {"dtypes": attr})
        meta.graph_def.node.append(waits.to_proto())
        if run:
            meta.signature_def["serving_default"].outputs["more"].name = "waits:0"

    found = deploykit.check(changed(saved, tmp_path, edit))
    assert (found.problems, found.refused_ops) == ([], [op] if run else [])


def test_a_signature_of_nothing_is_a_problem(saved, tmp_path):
    def edit(model):
        outputs = model.meta_graphs[0].signature_def["serving_default"].outputs
        next(iter(outputs.values())).name = "gone:0"

    found = deploykit.check(changed(saved, tmp_path, edit))
    (problem,) = found.problems
    assert shows(problem, "signature-node-missing", tensor=Containing("gone"))


@pytest.mark.sampled
def test_all_graphs_of_a_saved_model_are_looked_at(saved, tmp_path):
    def edit(model):
        second = model.meta_graphs.add()
        second.CopyFrom(model.meta_graphs[0])
        second.meta_info_def.tags[:] = ["train"]
        second.graph_def.node.add(name="mine", op="Mine")

    found = deploykit.check(changed(saved, tmp_path, edit))
    assert [graph.tags for graph in found.graphs] == [("serve",), ("train",)]
    assert [len(graph.warnings) for graph in found.graphs] == [0, 1]


def test_a_checkpoint_is_looked_at_through_its_meta_file(tmp_path):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [2], "x")
        v = tf.compat.v1.get_variable("v", [2], use_resource=False)
        tf.identity(x * v, "y")
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver().save(session, str(tmp_path / "model"))
    found = deploykit.check(tmp_path / "model.meta")
    assert (found.problems, found.refused_ops) == ([], [])
    assert found.graphs[0].nodes > 5


ATTRS = AttrValue(type=1), AttrValue(s=b"x"), AttrValue(i=3), AttrValue(list={"i": [1]})


@pytest.mark.parametrize("attr", ATTRS, ids=str)
def test_a_huge_split_and_a_wrong_attribute_take_no_memory(path, attr):
    nodes = [
        X, Node.constant("axis", np.int32(0)),
        Node("s", "Split", ("axis", "x")).with_attrs(T=DType("float32"), num_split=1 << 30),
    ]  # fmt: skip
    written(path, nodes)
    assert shows(deploykit.check(path).problems[0], "too-many", count=1073741824, unit="outputs")
    with pytest.raises(GraphError, match=says("too-many", count=1073741824, unit="outputs")):
        deploykit.load_graph(path)
    tensor = Node.constant("t", np.ones(3)).attrs["value"]
    for value in (tensor, AttrValue(shape={}), attr):
        if value.WhichOneof("value") != "type":
            written(path, [Node("y", "Placeholder").with_attrs(dtype=value)])
            with raises(
                GraphError, "attribute-invalid", attribute="dtype", node="y", op="Placeholder"
            ):
                deploykit.load_graph(path)
