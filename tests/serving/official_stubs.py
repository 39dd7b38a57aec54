"""The stubs of tensorflow-serving-api: clients and servers that are not deploykit's.

Clients take and give deploykit's messages: bytes are what goes between the two.
"""

from typing import Any

import grpc

from deploykit.serving.protocol import protos
from deploykit.transforms.ir.protos import without_tensorflow_start

with without_tensorflow_start():
    from tensorflow_serving.apis import model_service_pb2_grpc as models
    from tensorflow_serving.apis import prediction_service_pb2_grpc as predictions
    from tensorflow_serving.apis.model_service_pb2_grpc import (
        ModelServiceServicer,
        add_ModelServiceServicer_to_server,
    )
    from tensorflow_serving.apis.prediction_service_pb2_grpc import (
        PredictionServiceServicer,
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


class _Channel:
    """A channel on which the official messages become deploykit's."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def unary_unary(
        self, method: str, request_serializer: Any, response_deserializer: Any, **more: Any
    ) -> Any:
        theirs = response_deserializer.__self__
        ours = getattr(protos, theirs.DESCRIPTOR.name)
        return self._channel.unary_unary(
            method, lambda request: request.SerializeToString(), ours.FromString, **more
        )


def ModelServiceStub(channel: grpc.Channel) -> Any:
    return models.ModelServiceStub(_Channel(channel))


def PredictionServiceStub(channel: grpc.Channel) -> Any:
    return predictions.PredictionServiceStub(_Channel(channel))
