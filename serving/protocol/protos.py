"""The official stubs of tensorflow-serving-api, without TensorFlow's start."""

from deploykit.transforms.core.protos import without_tensorflow_start

with without_tensorflow_start():
    from tensorflow.core.example.example_pb2 import Example
    from tensorflow.core.framework.tensor_pb2 import TensorProto
    from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef, SignatureDef, TensorInfo
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
    from tensorflow_serving.apis.classification_pb2 import (
        ClassificationRequest,
        ClassificationResponse,
        ClassificationResult,
    )
    from tensorflow_serving.apis.get_model_metadata_pb2 import (
        GetModelMetadataRequest,
        GetModelMetadataResponse,
        SignatureDefMap,
    )
    from tensorflow_serving.apis.get_model_status_pb2 import (
        GetModelStatusRequest,
        GetModelStatusResponse,
        ModelVersionStatus,
    )
    from tensorflow_serving.apis.inference_pb2 import (
        InferenceResult,
        MultiInferenceRequest,
        MultiInferenceResponse,
    )
    from tensorflow_serving.apis.input_pb2 import Input
    from tensorflow_serving.apis.model_management_pb2 import (
        ReloadConfigRequest,
        ReloadConfigResponse,
    )
    from tensorflow_serving.apis.model_pb2 import ModelSpec
    from tensorflow_serving.apis.model_service_pb2 import DESCRIPTOR as MODEL_SERVICE
    from tensorflow_serving.apis.model_service_pb2_grpc import (
        ModelServiceServicer,
        ModelServiceStub,
        add_ModelServiceServicer_to_server,
    )
    from tensorflow_serving.apis.predict_pb2 import PredictRequest, PredictResponse
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog
    from tensorflow_serving.apis.prediction_service_pb2 import DESCRIPTOR as PREDICTION_SERVICE
    from tensorflow_serving.apis.prediction_service_pb2_grpc import (
        PredictionServiceServicer,
        PredictionServiceStub,
        add_PredictionServiceServicer_to_server,
    )
    from tensorflow_serving.apis.regression_pb2 import (
        RegressionRequest,
        RegressionResponse,
        RegressionResult,
    )
    from tensorflow_serving.config.model_server_config_pb2 import (
        ModelConfig,
        ModelServerConfig,
    )

__all__ = [
    "MODEL_SERVICE",
    "PREDICTION_SERVICE",
    "ClassificationRequest",
    "ClassificationResponse",
    "ClassificationResult",
    "Example",
    "GetModelMetadataRequest",
    "GetModelMetadataResponse",
    "GetModelStatusRequest",
    "GetModelStatusResponse",
    "InferenceResult",
    "Input",
    "MetaGraphDef",
    "ModelConfig",
    "ModelServerConfig",
    "ModelServiceServicer",
    "ModelServiceStub",
    "ModelSpec",
    "ModelVersionStatus",
    "MultiInferenceRequest",
    "MultiInferenceResponse",
    "PredictRequest",
    "PredictResponse",
    "PredictionLog",
    "PredictionServiceServicer",
    "PredictionServiceStub",
    "RegressionRequest",
    "RegressionResponse",
    "RegressionResult",
    "ReloadConfigRequest",
    "ReloadConfigResponse",
    "SavedModel",
    "SignatureDef",
    "SignatureDefMap",
    "TensorInfo",
    "TensorProto",
    "add_ModelServiceServicer_to_server",
    "add_PredictionServiceServicer_to_server",
]
