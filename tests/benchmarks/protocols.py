"""CPU per request of the Open Inference Protocol beside the TensorFlow Serving API, one caller.

One server answers both in turn, for the same tensors; binary HTTP stands beside gRPC.
"""

import http.client
import json
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import grpc
import numpy as np

import deploykit
from deploykit.serving.protocol.open_inference import (
    HEADER_LENGTH,
    INFERENCE_SERVICE,
    ModelInferRequest,
)
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import Array, DType
from tests.benchmarks.figures import Figure
from tests.benchmarks.measuring import deploykit as command
from tests.benchmarks.measuring import run
from tests.benchmarks.served import METHOD, Server, request, serving
from tests.serving.served import free_port

ROUNDS, SMALL_CALLS, IMAGE_CALLS = 7, 1000, 200
MOST = 1.10  # of the CPU of the same request by the TensorFlow Serving API
SMALL, IMAGE = (1, 16), (1, 224, 224, 3)
Call = Callable[[], object]


def figures() -> list[Figure]:
    """Measure small tensors and a 602 kB image by each protocol."""
    with tempfile.TemporaryDirectory() as folder:
        _export(Path(folder, "small.pb"), Path(folder, "models"), (-1, *SMALL[1:]))
        _export(Path(folder, "image.pb"), Path(folder, "models"), (-1, *IMAGE[1:]))
        port = free_port()
        with serving(
            Path(folder, "models"), ["small", "image"], f"--rest_api_port={port}"
        ) as server:
            return _measured(server, port)


def _export(graph: Path, base: Path, shape: tuple[int, ...]) -> None:
    """Export a net that takes the mean of each row, which costs next to nothing."""
    axes = np.arange(1, len(shape), dtype=np.int32)
    nodes = [
        Node("x", "Placeholder").with_attrs(dtype=DType("float32"), shape=shape),
        Node.constant("axes", axes),
        Node("y", "Mean", ("x", "axes")).with_attrs(
            T=DType("float32"), Tidx=DType("int32"), keep_dims=False
        ),
    ]
    deploykit.save_graph(Graph(nodes, ["x"], ["y"]), graph)
    run(command("export", str(graph), str(base)))


def _measured(server: Server, port: int) -> list[Figure]:
    random = np.random.default_rng(0)
    small, image = (random.random(shape, np.float32) for shape in (SMALL, IMAGE))
    options = [("grpc.max_send_message_length", -1)]
    with (
        grpc.insecure_channel(server.address, options) as channel,
        closing(http.client.HTTPConnection("127.0.0.1", port)) as connection,
    ):
        predict = channel.unary_unary(METHOD)
        infer = channel.unary_unary(f"/{INFERENCE_SERVICE}/ModelInfer")

        def post(path: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
            connection.request("POST", path, body, dict(headers or {}))
            answer = connection.getresponse()
            if (content := answer.read()) and answer.status != 200:
                raise RuntimeError(content.decode())

        rows, flat = (json.dumps(each).encode() for each in _documents(small))
        document, headers = _binary(image)
        calls: dict[str, tuple[Call, int]] = {
            "Predict": (lambda: predict(_predict("small", small)), SMALL_CALLS),
            "ModelInfer": (lambda: infer(_infer("small", small)), SMALL_CALLS),
            "Predict image": (lambda: predict(_predict("image", image)), IMAGE_CALLS),
            "ModelInfer image": (lambda: infer(_infer("image", image)), IMAGE_CALLS),
            ":predict": (lambda: post("/v1/models/small:predict", rows), SMALL_CALLS),
            "infer": (lambda: post("/v2/models/small/infer", flat), SMALL_CALLS),
            "binary image": (
                lambda: post("/v2/models/image/infer", document, headers),
                IMAGE_CALLS,
            ),
        }
        cpu = {name: list[float]() for name in calls}
        for _ in range(ROUNDS):
            for name, (call, count) in calls.items():
                cpu[name].append(_milliseconds(server, call, count))
    pairs = (
        ("ModelInfer against Predict, a small tensor", "ModelInfer", "Predict", MOST),
        ("... a 602 kB image", "ModelInfer image", "Predict image", MOST),
        ("HTTP infer against :predict, a small tensor in JSON", "infer", ":predict", MOST),
        ("binary HTTP against ModelInfer, a 602 kB image", "binary image", "ModelInfer image", 1.0),
    )
    return [
        Figure(f"CPU of the server: {what}", "ms", cpu[ours], cpu[peer], at_most_ratio=most)
        for what, ours, peer, most in pairs
    ]


def _milliseconds(server: Server, call: Call, count: int) -> float:
    call()
    start = server.cpu()
    for _ in range(count):
        call()
    return 1000 * (server.cpu() - start) / count


def _predict(model: str, array: Array) -> bytes:
    return bytes(request(model, "x", array).SerializeToString())


def _infer(model: str, array: Array) -> bytes:
    made = ModelInferRequest(model_name=model, raw_input_contents=[array.tobytes()])
    made.inputs.add(name="x", datatype="FP32", shape=array.shape)
    return bytes(made.SerializeToString())


def _documents(array: Array) -> tuple[object, object]:
    tensor = {"name": "x", "datatype": "FP32", "shape": array.shape, "data": array.ravel().tolist()}
    return {"inputs": {"x": array.tolist()}}, {"inputs": [tensor]}


def _binary(array: Array) -> tuple[bytes, dict[str, str]]:
    content = array.tobytes()
    size = {"binary_data_size": len(content)}
    tensor = {"name": "x", "datatype": "FP32", "shape": array.shape, "parameters": size}
    both = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
    document = json.dumps(both).encode()
    return document + content, {HEADER_LENGTH: str(len(document))}
