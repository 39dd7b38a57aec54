"""The stubs of tensorflow-serving-api: clients and servers that are not deploykit's."""

from deploykit.transforms.core.protos import without_tensorflow_start

with without_tensorflow_start():
    from tensorflow_serving.apis.model_service_pb2_grpc import (
        ModelServiceServicer,
        ModelServiceStub,
        add_ModelServiceServicer_to_server,
    )
    from tensorflow_serving.apis.prediction_service_pb2_grpc import (
        PredictionServiceServicer,
        PredictionServiceStub,
        add_PredictionServiceServicer_to_server,
    )

__all__ = [
    "ModelServiceServicer",
    "ModelServiceStub",
    "PredictionServiceServicer",
    "PredictionServiceStub",
    "add_ModelServiceServicer_to_server",
    "add_PredictionServiceServicer_to_server",
]
