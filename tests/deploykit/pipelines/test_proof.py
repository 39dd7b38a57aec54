"""What freeze, optimize and quantize write is run once, and compared with the model as it was."""

import json
import sys

import numpy as np
import pytest

import deploykit as api
from deploykit.importers import graph_files, initializers
from deploykit.pipelines import rewrite
from deploykit.transforms.common.errors import VerificationError
from deploykit.transforms.ir.graph import Graph
from tests import pairwise
from tests.support import built, raises, random, showing, shows, tf, transform

COMMANDS = ("freeze", "optimize", "quantize", "transform")


@pytest.fixture
def written(deploykit, tmp_path):
    """Call a command on a graph that it writes anew; return what it ended with, and the file."""

    def written(command: str, graph: Graph, *more: object):
        source, output = tmp_path / "model.pb", tmp_path / f"{command}.pb"
        graph_files.save_graph(graph, source, force=True)
        for file in tmp_path.glob(f"{output.name}*"):
            file.unlink()
        if command == "transform":
            files = (f"--in_graph={source}", f"--out_graph={output}", "--transforms=fold_constants")
            return deploykit(command, *files, "--json", *more), output
        return deploykit(command, source, "-o", output, "--json", *more), output

    return written


@built(["x"], ["out"])
def graph_of(make):
    """Return a graph from x, [any, 6], to out."""
    x = tf.compat.v1.placeholder(tf.float32, [None, 6], name="x")
    tf.identity(make(tf, x), name="out")


def dense(tf, x):
    return tf.nn.relu(tf.matmul(x, random(6, 400)) + random(400, seed=1))


def asserting(tf, x):
    with tf.control_dependencies([tf.raw_ops.Assert(condition=x[0, 0] > 5, data=[x])]):
        return dense(tf, x)


def aborting(tf, x):
    with tf.control_dependencies([tf.raw_ops.Abort(error_msg="now")]):
        return dense(tf, x)


def reading(tf, x):
    length = tf.strings.length(tf.io.read_file("/proc/version"))
    return dense(tf, x) * tf.cast(length, tf.float32)


def silent(tf, x):
    return tf.nn.relu(dense(tf, x) - 99)


def nan_weights(tf, x):
    return dense(tf, x) * np.full(400, np.nan, np.float32)


def invalid_pattern(tf, x):
    texts = tf.raw_ops.StaticRegexReplace(input=tf.as_string(x), pattern="(", rewrite="")
    return tf.strings.to_number(texts)


@pytest.mark.sampled
@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("command", COMMANDS)
def test_the_file_is_run_once(written, command):
    more = ["--verify"] if command == "transform" else []
    found, output = written(command, graph_of(dense), *more)
    assert found.status == 0, found.stderr
    document = json.loads(found.stdout)
    assert (document["verified"], document["passed"]) == (True, True)
    assert int(document["run"].split()[0]) > 0
    assert document["run_seconds"] > 0
    assert document["compared_values"] >= document["distinct_values"] > 1
    assert output.exists()


@pytest.mark.usefixtures("in_process")
def test_transform_runs_nothing_unless_asked(written):
    found, output = written("transform", graph_of(aborting), "--allow-op", "Abort")
    assert found.status == 0
    assert "run" not in json.loads(found.stdout)
    assert output.exists()


@pytest.mark.parametrize("command", COMMANDS[:3])
def test_what_is_run_is_the_file(written, monkeypatch, command):
    """A graph that is written wrong is seen, although it is right in memory."""
    serialized = Graph.serialized

    def wrong(graph):
        other = graph.copy()
        for node in tuple(other):
            if node.op == "Const" and node.value.dtype == np.float32 and node.value.size == 400:
                other.replace(node, type(node).constant(node.name, -node.value))
        return serialized(other)

    graph = graph_of(dense)
    keep, output = written(command, graph)
    assert keep.status == 0
    save = graph_files.save_graph

    def saved(graph, path, **options):
        with monkeypatch.context() as patch:
            patch.setattr(Graph, "serialized", wrong)
            return save(graph, path, **options)

    monkeypatch.setattr(rewrite, "save_graph", saved)
    found, output = written(command, graph)
    assert found.status == 5, found.stdout
    assert not list(output.parent.glob(f"*{output.name}*"))


@pytest.mark.usefixtures("in_process")
def test_a_step_that_breaks_the_numbers_is_named(written, monkeypatch):
    optimize = sys.modules["deploykit.api.rewriting"]
    monkeypatch.setattr(optimize, "OPTIMIZE", "fold_constants remove_nodes(op=Relu)")
    found, output = written("optimize", graph_of(dense))
    assert found.status == 5
    assert shows(
        found.stderr, "step-differs", reason=showing("step-fails", place=2, step="remove_nodes")
    )
    assert not output.exists()


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("command", COMMANDS[:3])
def test_where_both_fail_alike_it_is_written_and_said(written, command):
    found, output = written(command, graph_of(asserting), "--allow-unverified")
    assert found.status == 0, found.stderr
    assert shows(found.stderr, "written-unverified")
    document = json.loads(found.stdout)
    assert shows(document["run"], "verification-not-possible")
    assert (document["verified"], document["passed"]) == (False, False)
    assert output.exists()


@pytest.mark.sampled
@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "make",
    pairwise.drawn(
        "without_a_comparison_nothing_is_written",
        [asserting, silent, nan_weights, invalid_pattern],
        1,
        quick=2,
    ),
)
def test_without_a_comparison_nothing_is_written(written, command, make):
    more = {"transform": ["--verify"], "quantize": ["--allow-float"]}.get(command, [])
    found, output = written(command, graph_of(make), *more)
    assert (found.status, found.printed) == (5, "")
    for words in ("--data", "--input-range", "--allow-unverified"):
        assert words in found.stderr
    assert not list(output.parent.glob(f"*{output.name}*"))
    found, output = written(command, graph_of(make), *more, "--allow-unverified")
    assert found.status == 0, found.stderr
    assert shows(found.stderr, "written-unverified")
    assert output.exists()


@pytest.mark.sampled
@pytest.mark.usefixtures("in_process")
def test_verify_fails_where_it_verified_nothing(deploykit, tmp_path):
    for make in (asserting, silent):
        path = tmp_path / f"{make.__name__}.pb"
        graph_files.save_graph(graph_of(make), path)
        found = deploykit("verify", path, path)
        assert found.status == 5
        assert shows(found.stderr, "not-verified")
        found = deploykit("verify", path, path, "--allow-unverified", "--json")
        assert found.status == 0
        assert json.loads(found.stdout)["verified"] is False


@pytest.mark.sampled
@pytest.mark.parametrize(("make", "op"), [(aborting, "Abort"), (reading, "ReadFile")])
@pytest.mark.parametrize("command", COMMANDS)
def test_what_acts_is_refused_before_it_is_dropped(written, command, make, op):
    found, output = written(command, graph_of(make))
    assert (found.status, found.printed) == (3, "")
    assert f"--allow-op {op}" in found.stderr
    assert not output.exists()
    if command == "freeze":
        allowed = ["--allow-op", op, "--allow-unverified"]
        found, output = written(command, graph_of(make), *allowed)
        assert found.status == 0, found.stderr
        assert ("died" in found.stderr) == (make is aborting)
        assert op in {node.op for node in graph_files.load_graph(output)}


def test_an_abort_is_no_longer_dropped_by_freezing():
    frozen = api.freeze(graph_of(aborting), allow_ops=["Abort"])
    assert any(node.op == "Abort" for node in frozen)


@pytest.mark.usefixtures("in_process")
def test_the_reference_is_the_graph_as_it_was_read(tmp_path):
    """What is lost on the way into the frozen graph is seen by `optimize` as well."""
    path = tmp_path / "model.pb"
    graph_files.save_graph(graph_of(dense), path)
    opened = api.open_model(path)
    broken = transform(opened.graph, "remove_nodes(op=Relu)")
    object.__setattr__(opened, "frozen", broken)
    with raises(VerificationError, "step-differs", reason=showing("freezing-fails")):
        api.optimize(opened, output=tmp_path / "out.pb")
    assert not (tmp_path / "out.pb").exists()


@pytest.fixture(scope="module")
def saved_model(tmp_path_factory):
    class Dense(tf.Module):
        def __init__(self):
            super().__init__()
            self.weights = tf.Variable(random(6, 4))

        @tf.function(input_signature=[tf.TensorSpec([None, 6], tf.float32, "x")])
        def __call__(self, x):
            return {"scores": tf.nn.relu(tf.matmul(x, self.weights))}

    folder = str(tmp_path_factory.mktemp("saved") / "dense")
    model = Dense()
    tf.saved_model.save(model, folder, {"serving_default": model.__call__})
    return folder


@pytest.mark.sampled
def test_a_saved_model_is_compared_with_what_tensorflow_loads(
    deploykit, saved_model, tmp_path, monkeypatch
):
    opened = api.open_model(saved_model)
    assert set(opened.original.outputs) == set(opened.graph.outputs)
    right = api.freeze(saved_model, output=tmp_path / "right.pb").report.verification
    assert right.passed
    fill = initializers.fill_variables

    def wrong(graph, values, *more):
        fill(graph, {name: -value for name, value in values.items()}, *more)

    monkeypatch.setattr(initializers, "fill_variables", wrong)
    found = deploykit("freeze", saved_model, "-o", tmp_path / "wrong.pb")
    assert (found.status, found.printed) == (5, "")
    assert shows(found.stderr, "result-differs")
    assert not list(tmp_path.glob("*wrong*"))


def test_where_tensorflow_cannot_load_a_saved_model_the_graph_is_run_alone(saved_model, tmp_path):
    """The first loader needs the variables under the names of the graph."""
    import shutil

    opened = api.open_model(saved_model)
    assert opened.graph.inputs
    broken = tmp_path / "broken"
    shutil.copytree(saved_model, broken)
    model = api.open_model(broken)
    assert model.original is not None
    shutil.rmtree(broken / "variables")
    graph = api.freeze(model, output=tmp_path / "out.pb")
    assert graph.report.verification.passed
