"""A server of the Open Inference Protocol that answers as MLServer or Triton may, not as deploykit.

Over HTTP it takes JSON alone unless it is told to have binary data; over gRPC it answers with typed
contents. Its versions have names or there are none, its probes have no body.
"""

import json
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np

from deploykit.serving.protocol.open_inference import METHODS, message
from deploykit.serving.rest.listener import Listener, Response

DTYPES = {"FP32": np.float32, "INT64": np.int64}
CODES = {
    "missing": (grpc.StatusCode.NOT_FOUND, 404),
    "full": (grpc.StatusCode.RESOURCE_EXHAUSTED, 429),
    "broken": (grpc.StatusCode.INTERNAL, 500),
}


class OtherServer:
    """Returns what a model is sent; some names of models are orders to misbehave."""

    def __init__(self, *, versions=(), inputs=(("x", "FP32", [-1, 2]),), binary=False, tls=None):
        self.versions, self.inputs, self.binary = list(versions), inputs, binary
        self.ready = self.describes = True
        self.seconds = 0.0
        self.requests: list[object] = []
        self.lock = threading.Lock()
        self.http = Listener(self._answer, tls=tls)
        self.http.start()
        self.grpc = grpc.server(ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)])
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                getattr(self, f"_{name}"),
                request_deserializer=message(f"{name}Request").FromString,
                response_serializer=lambda answer: answer.SerializeToString(),
            )
            for name in METHODS
        }
        service = grpc.method_handlers_generic_handler("inference.GRPCInferenceService", handlers)
        self.grpc.add_generic_rpc_handlers([service])
        port = self.grpc.add_insecure_port("127.0.0.1:0")
        self.grpc.start()
        scheme = "http" if tls is None else "https"
        self.addresses = {
            "grpc": f"127.0.0.1:{port}", "http": f"{scheme}://localhost:{self.http.port}"
        }  # fmt: skip

    def close(self) -> None:
        self.grpc.stop(None).wait()
        self.http.close()

    def _about(self, model: str) -> dict:
        inputs, outputs = (
            [{"name": f"{name}{end}", "datatype": datatype, "shape": shape}
             for name, datatype, shape in self.inputs]
            for end in ("", "_out")
        )  # fmt: skip
        return {"name": model, "versions": self.versions, "platform": "", "inputs": inputs,
                "outputs": outputs}  # fmt: skip

    def _seen(self, request) -> None:
        with self.lock:
            self.requests.append(request)
        time.sleep(self.seconds)

    # gRPC

    def _ServerLive(self, request, context):
        return message("ServerLiveResponse")(live=True)

    def _ServerReady(self, request, context):
        return message("ServerReadyResponse")(ready=self.ready)

    def _ModelReady(self, request, context):
        known = not request.version or request.version in self.versions
        ready = self.ready and known and request.name not in CODES
        return message("ModelReadyResponse")(ready=ready)

    def _ServerMetadata(self, request, context):
        if not self.describes:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "not here")
        return message("ServerMetadataResponse")(name="other", version="v9")

    def _ModelMetadata(self, request, context):
        if request.name == "missing":
            context.abort(grpc.StatusCode.NOT_FOUND, "no such model")
        about, answer = self._about(request.name), message("ModelMetadataResponse")()
        answer.versions.extend(about["versions"])
        for side, into in (("inputs", answer.inputs), ("outputs", answer.outputs)):
            for each in about[side]:
                into.add(**each)
        return answer

    def _ModelInfer(self, request, context):
        self._seen(request)
        if request.model_name in CODES:
            context.abort(CODES[request.model_name][0], "as it was told")
        answer = message("ModelInferResponse")(model_name=request.model_name)
        for tensor, raw in zip(request.inputs, request.raw_input_contents, strict=True):
            output = answer.outputs.add(
                name=f"{tensor.name}_out", datatype=tensor.datatype, shape=tensor.shape
            )
            if tensor.datatype == "BYTES":
                while raw:
                    (size,) = struct.unpack_from("<I", raw)
                    output.contents.bytes_contents.append(raw[4 : 4 + size])
                    raw = raw[4 + size :]
            else:
                values = np.frombuffer(raw, DTYPES[tensor.datatype]).tolist()
                field = {"FP32": "fp32_contents", "INT64": "int64_contents"}[tensor.datatype]
                getattr(output.contents, field).extend(values)
        if request.model_name == "damaged":
            answer.outputs[0].shape[0] += 1
        return answer

    # HTTP

    def _answer(self, request) -> Response:
        path = request.target
        if path == "/v2/health/live":
            return Response(200, b"")
        if path == "/v2/health/ready":
            return Response(200 if self.ready else 400, b"")
        if path == "/v2" and self.describes:
            extensions = ["binary_tensor_data"] if self.binary else []
            return self._json({"name": "other", "version": "v9", "extensions": extensions})
        _, _, models, *rest = [*path.split("/"), "", ""]
        if models != "models":
            return self._json({"error": f"no {path}"}, 404)
        name, end = rest[0], path.rsplit("/", 1)[-1]
        if end == "ready":
            version = rest[2] if rest[1] == "versions" else ""
            ready = self.ready and name not in CODES and (not version or version in self.versions)
            return Response(200 if ready else 400, b"")
        if end == "infer":
            return self._infer(name, request)
        if name == "missing":
            return self._json({"error": "no such model"}, 404)
        return self._json(self._about(name))

    def _infer(self, name: str, request) -> Response:
        if "inference-header-content-length" in request.headers:
            return self._json({"error": "no binary data here"}, 400)
        document = json.loads(bytes(request.body))
        self._seen(document)
        if name in CODES:
            return self._json({"error": "as it was told"}, CODES[name][1])
        outputs = [
            {
                "name": f"{each['name']}_out",
                "datatype": each["datatype"],
                "shape": each["shape"],
                "data": np.array(each["data"]).reshape(each["shape"]).tolist(),
            }
            for each in document["inputs"]
        ]
        if name == "damaged":
            outputs[0]["shape"][0] += 1
        return self._json({"model_name": name, "outputs": outputs, "parameters": {"x": 1}})

    def _json(self, document, status: int = 200) -> Response:
        return Response(status, json.dumps(document).encode())
