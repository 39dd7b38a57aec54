"""Names of outputs that are no tensors are refused by every command, with those that there are."""

import pytest

import deploykit as api
from deploykit.cli.main import COMMANDS
from deploykit.importers.graph_files import save_graph
from deploykit.inspection.summary import inspect_graph
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from tests.support import Containing, raises, shows, tf

WRONG = {
    "save/restore_all": Containing("(NoOp)", " 0 "),
    "relu:1": Containing("(Relu)", " 1 "),
    "probs:7": Containing("(Softmax)", " 1 "),
    "Probs": Containing("'Probs'", "probs"),
    "softmax": Containing("'softmax'"),
    "^relu": Containing("(Relu)", " 1 "),
}


def graph() -> Graph:
    kind = DType("float32")
    nodes = [
        Node("x", "Placeholder").with_attrs(dtype=kind, shape=(-1, 3)),
        Node("relu", "Relu", ("x",)).with_attrs(T=kind),
        Node("probs", "Softmax", ("relu",)).with_attrs(T=kind),
        Node("save/restore_all", "NoOp", ("^relu",)),
    ]
    return Graph(nodes, ["x"], ["probs"])


@pytest.mark.parametrize("name", WRONG)
def test_the_message_names_what_may_be_named(name):
    for model in (graph(), graph().to_graph_def(), api.open_model(graph())):
        with raises(GraphError, "outputs-wrong", problem=WRONG[name]):
            api.open_model(model, outputs=[name])
    assert api.open_model(graph(), outputs=["relu:0"]).graph.outputs == ("relu",)


ARGUMENTS = {
    "accuracy": ["--data", "d.npz"],
    "calibrate": ["--data", "d.npz"],
    "diff": ["net.pb"],
    "export": ["served"],
    "gate": ["net.pb", "--data", "d.npz"],
    "infer": ["d.npz", "answers"],
    "sensitivity": ["--calibration", "d.npz"],
    "verify": ["net.pb"],
}


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_refuses_it(deploykit, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if "--outputs" not in deploykit(command, "--help").stdout or command in ("label", "predict"):
        pytest.skip("it has no such option, or reads other files first")
    save_graph(graph(), "net.pb")
    model = ["net.pb", *ARGUMENTS.get(command, [])]
    if command == "transform":
        model = ["--in_graph=net.pb", "--out_graph=out.pb", "--transforms=fold_constants"]
    for name in ("save/restore_all", "softmax"):
        found = deploykit(command, *model, "--outputs", name)
        assert found.status == 2, found.stderr
        assert shows(found.stderr, "outputs-wrong")
    left = {path.name for path in tmp_path.iterdir()} - {"net.ship"}
    assert left == {"net.pb", "net.pb.json"}


@pytest.mark.parametrize("is_new", [True, False])
def test_handles_are_no_outputs(is_new, tmp_path):
    """A scan leaves a TensorArray that nobody reads."""
    graph = tf.Graph()
    was_new = tf.compat.v1.control_flow_v2_enabled()
    switches = tf.compat.v1.disable_control_flow_v2, tf.compat.v1.enable_control_flow_v2
    switches[is_new]()
    try:
        with graph.as_default():
            x = tf.compat.v1.placeholder(tf.float32, [None, 5], name="x")
            sums = tf.scan(lambda total, row: total + row, x)
            array = tf.TensorArray(tf.float32, 1, name="array").write(0, x[0])
            tf.identity(sums[-1] + array.read(0), name="out")
    finally:
        switches[was_new]()
    path = tmp_path / "scan.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    found = api.open_model(path).graph
    types = {name: graph.get_tensor_by_name(name + ":0").dtype for name in found.outputs}
    assert "out" in types
    assert not {tf.variant, tf.resource} & {*types.values()}
    handles = [op.name for op in graph.get_operations()
               if op.outputs and op.outputs[0].dtype in (tf.variant, tf.resource)]  # fmt: skip
    for name in handles:
        with raises(GraphError, "output-is-handle", name=name):
            api.open_model(path, outputs=[name])
    assert handles
    assert not {*handles} & {*inspect_graph(found)["possible_outputs"]}
    if is_new:
        api.optimize(path, outputs=["out"], verify=True)
