"""An empty batch ends no server: models of 8 bits answer it, as all others do."""

import json
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from deploykit.serving.client.client import Client
from deploykit.serving.execution.request_inputs import needs_rows, one_row, without_row
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.signatures import Tensor
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.protos import MetaGraphDef
from deploykit.transforms.ir.tensors import DType
from tests.serving.served import Served, free_port
from tests.support import building, says, shows, tf, transform
from tests.transforms.int8_nets import C, calibrated, feeds_of, image, layer, relu
from tests.transforms.layer_matrix import Runner

IMAGES = Tensor("x:0", "float32", (-1, 9, 8, C))
NUMBER = Tensor("n:0", "float32", ())
TEXTS = Tensor("t:0", "string", None)


def images(*shape):
    return np.ones(shape, np.float32)


def test_a_row_takes_the_place_of_none():
    feeds = {"x": images(0, 9, 8, C), "t": np.array([], object), "n": np.float32(3)}
    inputs = {"x": IMAGES, "t": TEXTS, "n": NUMBER}
    row = one_row(inputs, feeds)
    assert row["x"].shape == (1, 9, 8, C)
    assert row["t"].tolist() == [b""]
    assert row["n"] == 3
    assert one_row(inputs, feeds | {"x": images(2, 9, 8, C), "t": np.array([b"a"], object)}) is None


@pytest.mark.parametrize(
    ("feeds", "words"),
    [
        ({"x": images(2, 0, 8, C)}, says("empty-batch-shape", alias="x", shape=[2, 0, 8, 6])),
        ({"x": images(0, 0, 8, C)}, says("empty-batch-shape", alias="x", shape=[0, 0, 8, 6])),
        (
            {"x": images(0, 9, 8, C), "t": np.array([b"a", b"b"], object)},
            says("empty-batch-mixed", empty="x", alias="t", count=2),
        ),
    ],
)
def test_what_is_refused(feeds, words):
    with pytest.raises(ServingError, match=words) as error:
        one_row({"x": IMAGES, "t": TEXTS}, feeds)
    assert error.value.status == "INVALID_ARGUMENT"


def test_only_rows_are_cut_off():
    assert without_row(Tensor("y:0", "float32", (-1, 5)), images(1, 5)).shape == (0, 5)
    assert without_row(Tensor("y:0", "float32", None), images(1, 5)).shape == (0, 5)
    assert without_row(Tensor("y:0", "float32", (-1,)), images(7)).shape == (7,)  # no batch
    assert without_row(Tensor("y:0", "float32", (1, 5)), images(1, 5)).shape == (1, 5)
    assert without_row(Tensor("y:0", "float32", ()), images()).shape == ()


def int8(folder: Path) -> Graph:
    """Return a net on codes, with a Dequantize that others write and that no empty batch survives.

    The last layer refuses what the first makes of an empty batch.
    """

    with building(["x"], ["dense/biased"]) as graph:
        y = relu(layer("conv", image(), "first", channels=5))
        y = tf.reshape(relu(layer("conv", y, "second", channels=4)), [-1, 72 * 4])
        layer("matmul", y, "dense", channels=3)
    graph.prune()
    graph = transform(graph, f'quantize_static(ranges="{calibrated(graph, folder)}")')
    for node in graph:
        if node.op == "QuantizeV2":
            name = f"{node.name}/read"
            read = graph[node.name].with_name(name)
            attrs = {"T": DType("quint8"), "mode": "SCALED"}
            graph.add(
                type(node)(name, "Dequantize", (node.name, *read.inputs[1:])).with_attrs(**attrs)
            )
            graph.outputs = (*graph.outputs, name)
    return graph


def save(graph: Graph, folder: Path) -> None:
    v1 = tf.compat.v1
    with tf.Graph().as_default() as loaded, v1.Session(graph=loaded) as session:
        tf.import_graph_def(graph.to_graph_def(), name="")
        tensors = {name: loaded.get_tensor_by_name(f"{name}:0") for name in ("x", *graph.outputs)}
        outputs = dict(
            zip(("answer", "image"), (tensors[name] for name in graph.outputs), strict=True)
        )
        v1.saved_model.simple_save(session, str(folder), {"x": tensors["x"]}, outputs)


@pytest.mark.slow
def test_a_server_answers_an_empty_batch_and_the_next_call(tmp_path):
    graph = int8(tmp_path)
    runner = Runner("1")
    assert shows(runner.run(graph, feeds_of(graph, 0)), "child-died", signal="SIGABRT")
    runner.close()
    save(graph, tmp_path / "net" / "1")
    rest = free_port()
    server = Served(f"--model_base_path={tmp_path / 'net'}", "--model_name=net",
                    f"--rest_api_port={rest}", TF_ENABLE_ONEDNN_OPTS="1")  # fmt: skip
    try:
        client = Client(server.address)
        for rows in (0, 2, 0, 1):
            found = client.predict("net", {"x": images(rows, 9, 8, C)})
            assert found["answer"].shape == (rows, 3)
            assert found["image"].shape == (rows, 9, 8, C)
        for method, document in (
            ("predict", {"instances": []}),
            ("predict", {"inputs": {"x": []}}),
            ("classify", {"examples": []}),
            ("regress", {"examples": []}),
        ):
            assert status(rest, method, document) == 400
        assert status(rest, "predict", {"instances": images(1, 9, 8, C).tolist()}) == 200
        assert server.process.poll() is None
    finally:
        server.kill()


def status(port: int, method: str, document) -> int:
    url = f"http://127.0.0.1:{port}/v1/models/net:{method}"
    try:
        with urllib.request.urlopen(url, json.dumps(document).encode(), timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.status


def test_which_models_need_rows():
    meta = MetaGraphDef()

    def add(nodes, op, mode=b"", reads=()):
        node = nodes.add(name=f"{op}{len(nodes)}", op=op, input=reads)
        node.attr["mode"].s = mode

    add(meta.graph_def.node, "Const")
    for op in ("Conv2D", "QuantizeV2", "FakeQuantWithMinMaxVars", "QuantizeAndDequantizeV2"):
        add(meta.graph_def.node, op, b"SCALED", ["Const0"])
    add(meta.graph_def.node, "Dequantize", b"SCALED", ["Const0"])
    add(meta.graph_def.node, "Dequantize", b"MIN_FIRST", ["Conv2D1"])
    assert not needs_rows(meta)
    body = meta.graph_def.library.function.add().node_def
    add(body, "_FusedQuantizedConv2D")
    assert needs_rows(meta)
    for op in ("_QuantizedMatMul", "QuantizedAdd", "_MklNativeFusedConv2D"):
        body[0].op = op
        assert needs_rows(meta)
    del body[:]
    add(body, "Dequantize", b"SCALED", ["codes:output:0"])
    assert needs_rows(meta)
