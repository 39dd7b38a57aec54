"""A gRPC server of the official stubs: what it is told to answer, over a real wire."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np

from deploykit.transforms.ir.protos import without_tensorflow_start
from tests.serving.certificates import Authority
from tests.serving.official_stubs import (
    ModelServiceServicer,
    PredictionServiceServicer,
    add_ModelServiceServicer_to_server,
    add_PredictionServiceServicer_to_server,
)

with without_tensorflow_start():
    from tensorflow_serving.apis.classification_pb2 import ClassificationResponse
    from tensorflow_serving.apis.get_model_metadata_pb2 import (
        GetModelMetadataResponse,
        SignatureDefMap,
    )
    from tensorflow_serving.apis.get_model_status_pb2 import GetModelStatusResponse
    from tensorflow_serving.apis.model_management_pb2 import ReloadConfigResponse
    from tensorflow_serving.apis.predict_pb2 import PredictResponse
    from tensorflow_serving.apis.regression_pb2 import RegressionResponse


class Official(PredictionServiceServicer, ModelServiceServicer):
    """Answers `echo` with its inputs; other names of models are orders to misbehave."""

    def __init__(self):
        self.calls: list[str] = []
        self.requests: list[object] = []
        self.shapes = {"x": (1, [-1, 2])}
        self.seconds = 0.0
        self.health = b""
        self.threads = ThreadPoolExecutor(32)
        self.lock = threading.Lock()

    def listen(self, address="127.0.0.1:0", credentials=None) -> int:
        self.server = grpc.server(self.threads, options=[("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", -1)])  # fmt: skip
        add_PredictionServiceServicer_to_server(self, self.server)
        add_ModelServiceServicer_to_server(self, self.server)
        if self.health:
            check = grpc.unary_unary_rpc_method_handler(lambda request, context: self.health)
            service = grpc.method_handlers_generic_handler(
                "grpc.health.v1.Health", {"Check": check}
            )
            self.server.add_generic_rpc_handlers([service])
        if credentials is None:
            port = self.server.add_insecure_port(address)
        else:
            port = self.server.add_secure_port(address, credentials)
        self.server.start()
        return port

    def close(self):
        self.server.stop(None).wait()
        self.threads.shutdown()

    def seen(self, method, request, context):
        with self.lock:
            self.calls.append(method)
            self.requests.append(request)
            number = len(self.calls)
        name = request.model_spec.name
        if name == "missing":
            context.abort(grpc.StatusCode.NOT_FOUND, "not here: Latest(missing)")
        if name == "slow":
            context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "too slow")
        if name == "sleepy":
            time.sleep(1)
        if name == "busy" and number < 3:
            context.abort(grpc.StatusCode.UNAVAILABLE, "busy")
        if name == "full":
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
        time.sleep(self.seconds)

    def Predict(self, request, context):
        self.seen("Predict", request, context)
        answer = PredictResponse(model_spec=request.model_spec, outputs=request.inputs)
        if request.model_spec.name == "large":
            answer.outputs["y"].dtype = 1
            answer.outputs["y"].tensor_shape.dim.add().size = 1_310_720
            answer.outputs["y"].tensor_content = bytes(5_242_880)
        if request.model_spec.name == "damaged":
            answer.outputs["x"].tensor_content = b"123"
        return answer

    def Classify(self, request, context):
        self.seen("Classify", request, context)
        answer = ClassificationResponse()
        for example in request.input.example_list.examples:
            classes = answer.result.classifications.add().classes
            for name in sorted(example.features.feature):
                classes.add(label=name, score=0.5)
        return answer

    def Regress(self, request, context):
        self.seen("Regress", request, context)
        answer = RegressionResponse()
        for example in request.input.example_list.examples:
            answer.result.regressions.add(
                value=example.features.feature["x"].float_list.value[0] / 2 + 2
            )
        return answer

    def GetModelMetadata(self, request, context):
        self.seen("GetModelMetadata", request, context)
        found, answer = SignatureDefMap(), GetModelMetadataResponse()
        signature = found.signature_def["serving_default"]
        signature.method_name = "tensorflow/serving/predict"
        for side, infos in (("in", signature.inputs), ("out", signature.outputs)):
            for alias, (dtype, shape) in self.shapes.items():
                infos[alias].name = f"{side}_{alias}:0"
                infos[alias].dtype = dtype
                infos[alias].tensor_shape.unknown_rank = shape is None
                for size in shape or ():
                    infos[alias].tensor_shape.dim.add().size = size
        answer.metadata["signature_def"].Pack(found)
        return answer

    def GetModelStatus(self, request, context):
        self.seen("GetModelStatus", request, context)
        answer = GetModelStatusResponse()
        loading = request.model_spec.name == "loading"
        answer.model_version_status.add(version=2, state=20 if loading else 30)
        failed = answer.model_version_status.add(version=1, state=50)
        failed.status.error_code, failed.status.error_message = 3, "no SavedModel"
        return answer

    def HandleReloadConfigRequest(self, request, context):
        with self.lock:
            self.calls.append("Reload")
            self.requests.append(request)
        names = [each.name for each in request.config.model_config_list.config]
        if "busy" in names:
            context.abort(grpc.StatusCode.UNAVAILABLE, "busy")
        answer = ReloadConfigResponse()
        if "bad" in names:
            answer.status.error_code, answer.status.error_message = 3, "no such folder"
        return answer


def credentials(authority: Authority, client_verify: bool = False, days: int = 2):
    """Return what a server of an authority shows, and whether it asks for the caller's."""
    key, certificate = authority.pair("server", days)
    pair = (key.encode(), certificate.encode())
    ca = authority.certificate.encode() if client_verify else None
    return grpc.ssl_server_credentials([pair], ca, client_verify)


def pixels(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(size=shape).astype(np.float32)
