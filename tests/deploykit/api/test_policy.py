"""What acts on files, processes or the network is used by no function, unless its op is named."""

import numpy as np
import pytest

import deploykit
from deploykit.importers.open_model import OpenedModel
from deploykit.transforms.common.errors import RefusedError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.protos import FunctionDefLibrary, SavedModel
from deploykit.transforms.ir.tensors import DType
from tests.support import Containing, raises

F32 = DType("float32")

ARRAYS = {"x": np.zeros((8, 4), np.float32)}
PHOTO = np.zeros((4, 4), np.uint8)

FUNCTIONS = {
    "freeze": deploykit.freeze,
    "optimize": deploykit.optimize,
    "transform": lambda model, **how: deploykit.transform(model, "remove_device", **how),
    "quantize": deploykit.quantize,
    "quantize to 8 bits": lambda model, **how: deploykit.quantize(model, calibration=ARRAYS, **how),
    "verify": lambda model, **how: deploykit.verify(model, graph("pure"), **how),
    "verify with": lambda model, **how: deploykit.verify(graph("pure"), model, **how),
    "calibrate": lambda model, **how: deploykit.calibrate(model, ARRAYS, **how),
    "sensitivity": lambda model, **how: deploykit.sensitivity(model, ARRAYS, **how),
    "label": lambda model, **how: deploykit.label(PHOTO, model, ["a"], **how),
    "benchmark": lambda model, **how: deploykit.benchmark(model, runs=1, rounds=1, **how),
    "gate": lambda model, **how: deploykit.gate(graph("pure"), model, ARRAYS, **how),
    "tune": lambda model, **how: deploykit.tune(model, **how),
    "placement": lambda model, **how: deploykit.placement(model, **how),
    "infer": lambda model, **how: deploykit.infer(model, "data.npz", "answers", **how),
    "export": lambda model, **how: deploykit.export(model, "served", name="m", **how),
}


def graph(where):
    """Return x -> y, with a node that writes a file: read by y, behind it, beside it, ..."""
    x = Node("x", "Placeholder").with_attrs(dtype=F32, shape=(-1, 4))
    weights = Node.constant("w", np.ones((4, 3), np.float32))
    product = Node("p", "MatMul", ("x", "w")).with_attrs(T=F32)
    y = Node("y", "Softmax", ("p",)).with_attrs(T=F32)
    text = [Node.constant(n, np.array(b"here", object)) for n in ("name", "text")]
    write = Node("write", "WriteFile", ("name", "text"))
    call = Node("call", "f", ())
    nodes, library = [x, weights, product, y], FunctionDefLibrary()
    if where in ("before", "beside"):
        nodes = [*text, write, *nodes]
    if where == "before":
        nodes[-1] = Node("y", "Softmax", ("p", "^write")).with_attrs(T=F32)
    if where in ("function", "unused function", "nested function"):
        inner = library.function.add()
        inner.signature.name = "f"
        inner.node_def.extend(node.to_proto() for node in [*text, write])
        inner.node_def[-1].input[:] = ["name:output:0", "text:output:0"]
        inner.control_ret["done"] = "write"
        inner.signature.control_output.append("done")
        inner.signature.is_stateful = True
    if where == "nested function":
        outer = library.function.add()
        outer.signature.name = "g"
        outer.node_def.add(name="call", op="f")
        outer.signature.is_stateful = True
        call = Node("call", "g", ())
    if where in ("function", "nested function"):
        nodes = [call, *nodes[:-1], Node("y", "Softmax", ("p", "^call")).with_attrs(T=F32)]
    return Graph(nodes, ("x",), ("y",), library=library)


@pytest.mark.sampled
@pytest.mark.parametrize("where", ["before", "beside", "function", "nested function"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_refuses_it_and_leaves_nothing(name, where, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with raises(RefusedError, "acts-beyond", op="WriteFile") as e:
        FUNCTIONS[name](graph(where))
    assert e.value.exit_status == 3
    assert not list(tmp_path.rglob("*"))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_takes_the_names_of_ops_that_are_allowed(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(OpenedModel, "refuse_effects", told)
    with pytest.raises(RefusedError, match=r"allowed: \['ReadFile', 'WriteFile'\]"):
        FUNCTIONS[name](graph("before"), allow_ops=["ReadFile", "WriteFile"])


def told(self, allowed, **_):
    raise RefusedError(f"allowed: {list(allowed)}")


def test_with_the_name_of_its_op_it_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the proof runs it
    for name, function in (("a.pb", deploykit.optimize), ("b.pb", deploykit.freeze)):
        function(graph("before"), output=tmp_path / name, allow_ops=["WriteFile"])
    with pytest.raises(RefusedError):
        deploykit.optimize(tmp_path / "a.pb")


@pytest.mark.parametrize("where", ["pure", "unused function"])
def test_what_nothing_calls_does_not_count(where):
    assert len(deploykit.optimize(graph(where))) == 4


def test_what_keeps_checkpoints_counts_only_where_it_is_run():
    """Every training graph has it."""
    save = [
        Node.constant("prefix", np.array(b"model", object)),
        Node.constant("names", np.array([b"w"], object)),
        Node("save", "SaveV2", ("prefix", "names", "names", "w")).with_attrs(dtypes=[F32]),
    ]
    pure = graph("pure")
    trained = Graph([*pure, *save], ("x",), ("y",))
    assert len(deploykit.optimize(trained)) == 4
    nodes = [*save, *(node for node in pure if node.name != "y")]
    waits = Node("y", "Softmax", ("p", "^save")).with_attrs(T=F32)
    with pytest.raises(RefusedError, match="'save': SaveV2"):
        deploykit.optimize(
            Graph([nodes[-2], *save, *nodes[3:-2], nodes[-1], waits], ("x",), ("y",))
        )


@pytest.mark.sampled
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_a_saved_model_does_when_it_is_loaded_counts(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = SavedModel(saved_model_schema_version=1)
    meta = model.meta_graphs.add()
    meta.meta_info_def.tags.append("serve")
    meta.graph_def.CopyFrom(graph("beside").to_graph_def())
    signature = meta.signature_def["serving_default"]
    signature.method_name = "tensorflow/serving/predict"
    for side, tensor in ((signature.inputs, "x"), (signature.outputs, "y")):
        side[tensor].name, side[tensor].dtype = f"{tensor}:0", 1
        side[tensor].tensor_shape.unknown_rank = True
    (tmp_path / "model").mkdir()
    path = tmp_path / "model" / "saved_model.pb"
    path.write_bytes(model.SerializeToString())
    assert len(deploykit.optimize("model")) == 4  # nothing runs it
    meta.collection_def["saved_model_main_op"].node_list.value.append("write")
    path.write_bytes(model.SerializeToString())
    with raises(
        RefusedError,
        "acts-beyond",
        op="WriteFile",
        source="model",
        what=Containing("'write'", "WriteFile"),
    ):
        FUNCTIONS[name]("model")
    assert len(list(tmp_path.rglob("*"))) == 2
